"""When the service says that we call too often."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from multidict import CIMultiDict

from runherd.actions import (
    RETRYING,
    ActionsClient,
    CallPolicy,
    PersonalAccessToken,
    RateLimitedError,
    ServiceError,
    ThrottledError,
)
from runherd.actions.rate_limit import RateLimit, rate_limit
from runherd.wire.transport import Request, Response
from tests.actions.scripted import Scripted, connect, reply, virtual

RUNNER = {"id": 7, "name": "r", "runnerScaleSetId": 1}
SESSION = {
    "sessionId": "6b1c7a1e-5f0a-4c39-9c0e-0d9a1d0f2b11",
    "messageQueueUrl": "https://queue.example/message",
    "messageQueueAccessToken": "queue-token",
    "statistics": {},
}
NOW = datetime(2026, 1, 1, tzinfo=UTC)
RESET = str(int(NOW.timestamp()) + 120)
TOO_MANY = (1.0, 60.0)
FORBIDDEN = (60.0, 900.0)


@pytest.mark.parametrize(
    ("status", "headers", "message", "expected"),
    [
        (429, {}, "", RateLimit(None, *TOO_MANY)),
        (429, {"retry-after": "7"}, "", RateLimit(7.0, *TOO_MANY)),
        (429, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": RESET}, "", RateLimit(120.0, *TOO_MANY)),
        (429, {"x-ratelimit-remaining": "5", "x-ratelimit-reset": RESET}, "", RateLimit(None, *TOO_MANY)),
        (403, {"X-RateLimit-Remaining": "0"}, "", RateLimit(None, *FORBIDDEN)),
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": RESET}, "", RateLimit(120.0, *FORBIDDEN)),
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1"}, "", RateLimit(1.0, *FORBIDDEN)),
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "soon"}, "", RateLimit(None, *FORBIDDEN)),
        (
            403,
            {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": RESET, "Retry-After": "9"},
            "",
            RateLimit(9.0, *FORBIDDEN),
        ),
        (403, {"Retry-After": "9"}, "", RateLimit(9.0, *FORBIDDEN)),
        (403, {}, "You have exceeded a Secondary Rate Limit.", RateLimit(None, *FORBIDDEN)),
        (403, {"X-RateLimit-Remaining": "4999"}, "Resource not accessible", None),
        (200, {"X-RateLimit-Remaining": "0"}, "", None),
        (503, {"Retry-After": "9"}, "", None),
        (404, {"Retry-After": "9"}, "secondary rate limit", None),
    ],
)
def test_the_signals(status: int, headers: dict[str, str], message: str, expected: RateLimit | None) -> None:
    assert rate_limit(status, CIMultiDict(headers), message, NOW) == expected


@virtual
async def test_a_signal_pauses_the_configuration_and_no_other() -> None:
    service, other_service = Scripted(), Scripted()
    client, other = connect(service), connect(other_service, config_url="https://github.com/other")
    service.will(reply(403, {"message": "slow down"}, Retry_After="30"), *[reply(200, RUNNER)] * 3)
    other_service.will(reply(200, RUNNER))
    with pytest.raises(RateLimitedError, match="slow down") as caught:
        await client.get_runner(7)
    assert (caught.value.retry_after, caught.value.retryable, caught.value.status) == (30.0, True, 403)
    assert client.throttle.paused_for == 30.0
    calls = [asyncio.ensure_future(view.get_runner(7)) for view in (client, client, client.for_scale_set(5))]
    await other.get_runner(7)
    assert other.throttle.paused_for == 0
    await asyncio.sleep(10)
    assert client.throttle.paused_for == 20.0
    await asyncio.gather(*calls)
    assert [sent.at for sent in service.sent] == [0, 30, 30, 30]
    assert client.throttle.paused_for == 0


@virtual
async def test_a_signal_at_the_login_counts_as_well() -> None:
    service = Scripted()
    service.logins.append(reply(403, x_ratelimit_remaining="0", x_ratelimit_reset=RESET))
    service.will(reply(200, RUNNER))
    client = connect(service)
    with pytest.raises(RateLimitedError) as caught:
        await client.get_runner(7)
    assert caught.value.retry_after == 120.0
    await client.get_runner(7)
    assert service.logged_in[1].at == 120.0


async def paused(service: Scripted) -> ActionsClient:
    """A client whose calls pause for 30 s."""
    client = connect(service)
    service.will(reply(429, Retry_After="30"))
    with pytest.raises(RateLimitedError):
        await client.get_runner(7)
    return client


@virtual
async def test_patience() -> None:
    service = Scripted()
    client = await paused(service)
    with pytest.raises(
        ThrottledError, match=r"not sent: the service asked to slow down, calls go on in 30 s"
    ) as caught:
        await client.with_policy(CallPolicy(patience=29.0)).get_runner(7)
    assert caught.value.retry_after == 30.0
    assert asyncio.get_running_loop().time() == 0
    service.will(reply(200, RUNNER))
    await client.with_policy(CallPolicy(patience=30.0)).get_runner(7)
    assert service.sent[-1].at == 30.0


@virtual
async def test_whoever_waits_for_a_place_notices_the_pause() -> None:
    service = Scripted()
    client = connect(service, max_calls=1)

    async def slow_then_limited(request: Request) -> Response:
        await asyncio.sleep(5)
        return reply(429, Retry_After="30")

    service.will(slow_then_limited, reply(200, RUNNER))
    first = asyncio.ensure_future(client.get_runner(7))
    second = asyncio.ensure_future(client.get_runner(7))
    with pytest.raises(RateLimitedError):
        await first
    await second
    assert [sent.at for sent in service.sent] == [0, 35]


@virtual
async def test_whoever_waits_for_a_place_at_the_queue_notices_it_too() -> None:
    service = Scripted()
    service.will(reply(200, SESSION))
    client = connect(service, max_calls=1)
    session = await client.create_message_session(42, "me")

    async def slow_then_limited(request: Request) -> Response:
        await asyncio.sleep(5)
        return reply(429, Retry_After="30")

    service.will(slow_then_limited, reply(204))
    first = asyncio.ensure_future(session.delete_message(1))
    second = asyncio.ensure_future(session.delete_message(2))
    with pytest.raises(RateLimitedError):
        await first
    await second
    assert service.sent[-1].at == 35


@virtual
async def test_without_a_hint_the_pause_grows_with_every_signal() -> None:
    service = Scripted()
    client = connect(service)
    service.will(*[reply(429)] * 9)
    times = []
    for _ in range(9):
        with pytest.raises(RateLimitedError) as caught:
            await client.get_runner(7)
        assert caught.value.retry_after is None
        times.append(client.throttle.paused_for)
    assert times == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    service.will(reply(200, RUNNER), reply(429))
    await client.get_runner(7)
    with pytest.raises(RateLimitedError):
        await client.get_runner(7)
    assert client.throttle.paused_for == 1


@virtual
async def test_a_403_without_a_hint_pauses_for_a_minute() -> None:
    service = Scripted()
    client = connect(service, policy=RETRYING)
    service.will(*[reply(403, {"message": "secondary rate limit"})] * 2, reply(200, RUNNER))
    await client.get_runner(7)
    assert [sent.at for sent in service.sent] == [0, 60, 180]


@virtual
async def test_many_calls_that_are_told_at_once_are_one_signal() -> None:
    service = Scripted()
    client = connect(service)

    async def a_second_later(request: Request) -> Response:
        await asyncio.sleep(1)
        return reply(429)

    service.will(*[a_second_later] * 16)
    errors = await asyncio.gather(*(client.get_runner(7) for _ in range(16)), return_exceptions=True)
    assert all(isinstance(error, RateLimitedError) for error in errors)
    assert client.throttle.paused_for == 1


@virtual
async def test_a_late_success_does_not_end_the_pause() -> None:
    service = Scripted()
    client = connect(service)

    async def late(request: Request) -> Response:
        await asyncio.sleep(3)
        return reply(200, RUNNER)

    service.will(late, reply(429, Retry_After="30"))
    call = asyncio.ensure_future(client.get_runner(7))
    await asyncio.sleep(1)
    with pytest.raises(RateLimitedError):
        await client.get_runner(7)
    await call
    assert client.throttle.paused_for == 28.0


@virtual
async def test_a_success_from_before_the_signal_does_not_calm_us() -> None:
    service = Scripted()
    client = connect(service)

    async def late(request: Request) -> Response:
        await asyncio.sleep(3)
        return reply(200, RUNNER)

    service.will(late, reply(429), reply(429))
    call = asyncio.ensure_future(client.get_runner(7))
    await asyncio.sleep(1)
    with pytest.raises(RateLimitedError):
        await client.get_runner(7)
    await call
    with pytest.raises(RateLimitedError):
        await client.get_runner(7)
    assert client.throttle.paused_for == 2.0


@virtual
async def test_a_plain_refusal_pauses_nothing() -> None:
    service = Scripted()
    client = connect(service)
    service.will(reply(403, {"message": "Resource not accessible"}))
    with pytest.raises(ServiceError) as caught:
        await client.get_runner(7)
    assert not isinstance(caught.value, RateLimitedError)
    assert client.throttle.paused_for == 0


@virtual
async def test_polls_pause_as_well() -> None:
    service = Scripted()
    service.will(reply(200, SESSION))
    client = connect(service)
    session = await client.create_message_session(42, "me")
    service.will(reply(429, Retry_After="30"), reply(202))
    with pytest.raises(RateLimitedError):
        await client.get_runner(7)
    assert await session.get_message(0, 5) is None
    assert service.sent[-1].at == 30


def test_the_credentials_are_not_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    @virtual
    async def main() -> None:
        service = Scripted()
        client = connect(
            service,
            config_url="https://user:password@github.com/octo-org?key=value",
            credentials=PersonalAccessToken("a-secret-token"),
        )
        service.will(reply(429, Retry_After="30"))
        with pytest.raises(RateLimitedError):
            await client.get_runner(7)

    main()
    assert "octo-org: the service asks to slow down, calls pause for 30 s" in caplog.text
    for secret in ("password", "a-secret-token", "value"):
        assert secret not in caplog.text
