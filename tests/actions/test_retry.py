"""``docs/spec/actions-service.md`` 2.4, row by row."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from email.utils import format_datetime

import pytest

from runherd.actions import (
    RETRYING,
    CallPolicy,
    RateLimitedError,
    ServiceError,
    ServiceUnreachableError,
    UnexpectedResponseError,
)
from runherd.wire.redirects import RedirectError
from runherd.wire.transport import (
    CertificateError,
    ConnectError,
    ConnectionLostError,
    DeadlineExceededError,
    ProxyError,
    TransportError,
)
from tests.actions.scripted import Reply, Scripted, connect, error_body, reply, virtual

RUNNER = {"id": 7, "name": "r", "runnerScaleSetId": 1}

RETRIED = [429, 500, 502, 503, 504, 505, 599]
NOT_RETRIED = [202, 204, 304, 400, 402, 403, 404, 405, 408, 409, 410, 422, 425, 501]


@pytest.mark.parametrize("status", RETRIED)
def test_retried_statuses_and_the_waits_between(status: int) -> None:
    @virtual
    async def main() -> None:
        service = Scripted()
        service.will(*[reply(status, error_body("SomeException"))] * 5)
        with pytest.raises(ServiceError, match="giving up after 5 attempts") as caught:
            await connect(service, policy=RETRYING).remove_runner(7)
        assert [sent.at for sent in service.sent] == [0, 1, 3, 7, 15]
        assert (caught.value.status, caught.value.attempts) == (status, 5)
        # Unlike in Go, where the last answer is lost, the error still says what the service said.
        assert caught.value.message == "it says so"

    main()


@pytest.mark.parametrize("status", NOT_RETRIED)
def test_statuses_that_are_not_retried(status: int) -> None:
    @virtual
    async def main() -> None:
        service = Scripted()
        service.will(reply(status))
        with pytest.raises(ServiceError) as caught:
            await connect(service, policy=RETRYING).get_runner(7)
        assert (caught.value.status, caught.value.attempts) == (status, 1)
        assert "giving up" not in str(caught.value)
        assert len(service.sent) == 1

    main()


@pytest.mark.parametrize(
    ("error", "retried"),
    [
        (ConnectError("x"), True),
        (ProxyError("x"), True),
        (ConnectionLostError("x", request_sent=True), True),
        (DeadlineExceededError("x", request_sent=True), True),
        (TransportError("x", request_sent=True), True),
        (CertificateError("x"), False),
        (RedirectError("x", request_sent=True), False),
        (ValueError("a header with a line break"), False),
    ],
)
def test_transport_errors(error: Exception, retried: bool) -> None:
    @virtual
    async def main() -> None:
        service = Scripted()
        service.will(*[error] * 5)
        with pytest.raises(ServiceUnreachableError) as caught:
            await connect(service, policy=RETRYING).get_runner(7)
        assert len(service.sent) == (5 if retried else 1)
        assert caught.value.retryable is retried
        assert caught.value.request_sent is getattr(error, "request_sent", False)

    main()


@virtual
async def test_an_attempt_that_times_out_counts_as_a_transport_error() -> None:
    service = Scripted()
    service.will(DeadlineExceededError("x", request_sent=True), reply(200, RUNNER))
    assert (await connect(service, policy=RETRYING).get_runner(7)).id == 7
    assert [(sent.timeouts.connect, sent.timeouts.total) for sent in service.sent] == [(10.0, 30.0)] * 2


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(("value", "wait"), [("7", 7.0), ("0", 0.0), ("100", 100.0)])
def test_retry_after_in_seconds_has_no_cap(status: int, value: str, wait: float) -> None:
    @virtual
    async def main() -> None:
        service = Scripted()
        service.will(reply(status, Retry_After=value), reply(200, RUNNER))
        await connect(service, policy=RETRYING).get_runner(7)
        assert service.sent[1].at == wait

    main()


@pytest.mark.parametrize(("seconds", "wait"), [(50, 50.0), (-50, 0.0)])
def test_retry_after_as_a_date(seconds: int, wait: float) -> None:
    @virtual
    async def main() -> None:
        service = Scripted()
        date = format_datetime(service.clock.now() + timedelta(seconds=seconds), usegmt=True)
        service.will(reply(503, Retry_After=date), reply(200, RUNNER))
        await connect(service, policy=RETRYING).get_runner(7)
        assert service.sent[1].at == wait

    main()


@pytest.mark.parametrize(("status", "value"), [(500, "7"), (502, "7"), (503, "soon"), (503, "-1"), (429, "1.5")])
def test_retry_after_that_does_not_count(status: int, value: str) -> None:
    @virtual
    async def main() -> None:
        service = Scripted()
        service.will(reply(status, Retry_After=value), reply(200, RUNNER))
        await connect(service, policy=RETRYING).get_runner(7)
        assert service.sent[1].at == 1.0

    main()


CALLS = {
    "GET": lambda client: client.get_runner(7),
    "DELETE": lambda client: client.remove_runner(7),
    "POST": lambda client: client.generate_jit_runner_config(1, "r", "_work"),
}


@pytest.mark.parametrize("method", CALLS)
def test_all_methods_are_retried_alike_with_their_body(method: str) -> None:
    @virtual
    async def main() -> None:
        service = Scripted()
        good: Reply = reply(204) if method == "DELETE" else reply(200, RUNNER)
        if method == "POST":
            good = reply(200, {"runner": RUNNER, "encodedJITConfig": "x"})
        service.will(reply(500), good)
        await CALLS[method](connect(service, policy=RETRYING))
        first, second = service.sent
        assert first.method == second.method == method
        assert first.request.body == second.request.body

    main()


@virtual
async def test_a_body_that_is_wrong_is_not_retried() -> None:
    service = Scripted()
    service.will(reply(200, b"<html>"))
    with pytest.raises(UnexpectedResponseError):
        await connect(service, policy=RETRYING).get_runner(7)
    assert len(service.sent) == 1


@virtual
async def test_one_attempt_by_default() -> None:
    service = Scripted()
    service.will(reply(500))
    with pytest.raises(ServiceError) as caught:
        await connect(service).get_runner(7)
    assert caught.value.retryable
    assert caught.value.attempts == 1


@virtual
async def test_the_caller_chooses() -> None:
    service = Scripted()
    service.will(*[reply(500)] * 3)
    client = connect(service).with_policy(CallPolicy(attempts=3, first_wait=4.0, longest_wait=6.0))
    with pytest.raises(ServiceError, match="giving up after 3 attempts"):
        await client.get_runner(7)
    assert [sent.at for sent in service.sent] == [0, 4, 10]


@virtual
async def test_the_registration_is_retried_when_it_is_refused() -> None:
    for status in (401, 403):
        service = Scripted()
        service.logins.extend([reply(201, {"token": "t"}), reply(status)])
        service.will(reply(200, RUNNER))
        await connect(service, policy=RETRYING).get_runner(7)
        assert len(service.logged_in) == 4


@virtual
async def test_a_registration_that_stays_refused_tells_why() -> None:
    service = Scripted()
    service.logins.extend([reply(201, {"token": "t"}), reply(403, {"message": "Resource not accessible"})] * 5)
    with pytest.raises(ServiceError, match=r"Resource not accessible.*giving up after 5 attempts") as caught:
        await connect(service, policy=RETRYING).get_runner(7)
    assert caught.value.status == 403


@virtual
async def test_cancelling_ends_the_wait_at_once() -> None:
    service = Scripted()
    service.will(reply(503, Retry_After="1000"))
    call = asyncio.ensure_future(connect(service, policy=RETRYING).get_runner(7))
    await asyncio.sleep(5)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert asyncio.get_running_loop().time() == 5


@virtual
async def test_a_rate_limit_is_retried_and_a_plain_403_is_not() -> None:
    service = Scripted()
    service.will(reply(403, Retry_After="9"), reply(200, RUNNER), reply(403))
    client = connect(service, policy=RETRYING)
    await client.get_runner(7)
    assert service.sent[1].at == 9.0
    with pytest.raises(ServiceError) as caught:
        await client.get_runner(7)
    assert not isinstance(caught.value, RateLimitedError)
