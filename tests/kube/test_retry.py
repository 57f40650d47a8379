from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from runherd.api.core import PODS
from runherd.kube.client import Client
from runherd.kube.errors import (
    ConflictError,
    InternalError,
    ServerTimeoutError,
    ServiceUnavailableError,
    TooManyRequestsError,
)
from runherd.kube.limiter import WriteLimiter
from runherd.kube.patch import MergePatch
from runherd.kube.retry import Attempts, Repeat, RetryPolicy
from runherd.wire.transport import CertificateError, ConnectError, ConnectionLostError, DeadlineExceededError
from tests.kube.scripted import Script, answer, client_of, pod, refusal, stream_of
from tests.support.virtual_time import run_in_virtual_time

LOST = ConnectionLostError("cut", request_sent=True)
NAMED = pod("web")
GENERATED = {"metadata": {"generateName": "web-", "namespace": "default"}}

CALLS: dict[str, Callable[[Client], Awaitable[Any]]] = {
    "get": lambda client: client.get(PODS, "web", "default"),
    "list": lambda client: client.list(PODS),
    "create": lambda client: client.create(PODS, NAMED),
    "create with a generated name": lambda client: client.create(PODS, GENERATED),
    "update": lambda client: client.update(PODS, NAMED),
    "patch": lambda client: client.patch(PODS, "web", "default", patch=MergePatch({})),
    "delete": lambda client: client.delete(PODS, "web", "default"),
    "delete of a uid": lambda client: client.delete(PODS, "web", "default", uid="u"),
}
SAFE = {"get", "list", "delete of a uid"}


def success(name: str) -> Any:
    return answer({"metadata": {"resourceVersion": "1"}, "items": []} if name == "list" else pod("web"))


def outcome(name: str, *answers: Any) -> tuple[int, float, BaseException | None]:
    """How many requests a call made when it got ``answers``, how many (virtual) seconds it took, and its error."""

    async def main() -> tuple[int, float, BaseException | None]:
        script = Script(*answers)
        error: BaseException | None = None
        try:
            await CALLS[name](client_of(script))
        except Exception as raised:
            error = raised
        return len(script.requests), asyncio.get_running_loop().time(), error

    return run_in_virtual_time(main())


@pytest.mark.parametrize("name", CALLS)
def test_429_is_repeated_after_what_the_server_asks_for(name: str) -> None:
    requests, seconds, error = outcome(name, refusal(429, "TooManyRequests", retry_after="7"), success(name))
    assert (requests, error) == (2, None)
    assert 7 <= seconds < 8


@pytest.mark.parametrize("name", CALLS)
def test_what_was_not_sent_is_repeated(name: str) -> None:
    requests, seconds, error = outcome(name, ConnectError("refused"), ConnectError("refused"), success(name))
    assert (requests, error) == (3, None)
    assert 0.75 <= seconds < 1.5


@pytest.mark.parametrize("name", CALLS)
def test_a_lost_answer_is_asked_for_again_only_where_that_is_safe(name: str) -> None:
    requests, _, error = outcome(name, LOST, success(name))
    assert (requests, error) == ((2, None) if name in SAFE else (1, LOST))


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(("code", "reason"), [(500, "InternalError"), (503, "ServiceUnavailable")])
def test_a_failing_server_is_asked_again_only_where_that_is_safe(name: str, code: int, reason: str) -> None:
    requests, _, error = outcome(name, refusal(code, reason), success(name))
    if name in SAFE:
        assert (requests, error) == (2, None)
    else:
        assert requests == 1
        assert isinstance(error, InternalError | ServiceUnavailableError)


@pytest.mark.parametrize("name", CALLS)
def test_a_server_that_asks_for_it_is_asked_again_unless_that_could_leave_two_objects(name: str) -> None:
    requests, seconds, error = outcome(name, refusal(500, "ServerTimeout", retryAfterSeconds=2), success(name))
    if name == "create with a generated name":
        assert requests == 1
        assert isinstance(error, ServerTimeoutError)
        assert error.retry_after == 2.0
    else:
        assert (requests, error) == (2, None)
        assert seconds >= 2


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(("code", "reason"), [(400, "BadRequest"), (409, "Conflict"), (501, ""), (302, "")])
def test_other_refusals_are_final(name: str, code: int, reason: str) -> None:
    requests, seconds, error = outcome(name, refusal(code, reason))
    assert (requests, seconds) == (1, 0)
    assert error is not None


def test_a_certificate_that_is_not_accepted_is_final() -> None:
    requests, _, error = outcome("get", CertificateError("unknown authority"))
    assert requests == 1
    assert isinstance(error, CertificateError)
    assert error.__notes__ == ["while trying to get pods default/web (attempt 1)"]


def test_retry_after_may_be_a_date() -> None:
    date = "Thu, 01 Jan 2026 00:00:20 GMT"  # virtual time begins with that day
    requests, seconds, error = outcome("get", refusal(503, "", retry_after=date), success("get"))
    assert (requests, error) == (2, None)
    assert 20 <= seconds <= 22


def test_waits_grow_and_end() -> None:
    requests, seconds, error = outcome("get", *[LOST] * 6)
    assert (requests, error) == (6, LOST)
    assert 0.25 + 0.5 + 1 + 2 + 4 <= seconds <= 1.5 * (0.25 + 0.5 + 1 + 2 + 4)


def test_retry_after_zero_is_no_reason_to_hurry() -> None:
    requests, seconds, error = outcome("get", *[refusal(429, "TooManyRequests", retry_after="0")] * 6)
    assert requests == 6
    assert isinstance(error, TooManyRequestsError)
    assert error.attempts == 6
    assert seconds > 7


def test_a_wait_that_is_too_long_is_left_to_the_caller() -> None:
    requests, seconds, error = outcome("get", refusal(429, "TooManyRequests", retry_after="3600"))
    assert (requests, seconds) == (1, 0)
    assert isinstance(error, TooManyRequestsError)
    assert error.retry_after == 3600


def test_all_waits_together_are_bounded() -> None:
    requests, seconds, error = outcome("get", *[refusal(503, "ServiceUnavailable", retry_after="25")] * 6)
    assert isinstance(error, ServiceUnavailableError)
    assert requests == 3
    assert seconds <= 60


def test_a_write_that_waits_for_its_repeat_lets_others_pass() -> None:
    async def main() -> None:
        limiter = WriteLimiter(max_in_flight=1)
        script = Script(refusal(429, "TooManyRequests", retry_after="30"), success("patch"), success("create"))
        client = client_of(script, limiter=limiter)
        slow = asyncio.create_task(client.create(PODS, NAMED))
        await asyncio.sleep(1)
        await client.patch(PODS, "web", "default", patch=MergePatch({}))
        assert asyncio.get_running_loop().time() == pytest.approx(1)
        await slow
        assert [request.method for request in script.requests] == ["POST", "PATCH", "POST"]

    run_in_virtual_time(main())


def test_only_the_opening_of_a_watch_is_repeated() -> None:
    async def main() -> None:
        script = Script(LOST, refusal(503, "ServiceUnavailable"), stream_of(end=RuntimeError("server breaks off")))
        async with client_of(script).watch(PODS) as events:
            with pytest.raises(ConnectionLostError):
                await anext(events)
        assert len(script.requests) == 3

    run_in_virtual_time(main())


def test_a_conflict_is_never_mistaken_for_something_to_repeat() -> None:
    requests, _, error = outcome("update", refusal(409, "Conflict", retry_after="1"))
    assert requests == 1
    assert isinstance(error, ConflictError)


def test_a_deadline_that_passed_after_sending_counts_as_a_lost_answer() -> None:
    late = DeadlineExceededError("30 s", request_sent=True)
    assert outcome("create", late)[0] == 1
    assert outcome("get", late, success("get"))[0] == 2


def test_clients_that_were_told_the_same_do_not_all_come_back_at_once() -> None:
    waits = {Attempts(RetryPolicy(), Random(seed), Repeat.ALWAYS).after_status(429, 10.0) for seed in range(20)}
    assert len(waits) == 20
    assert all(wait is not None and 10 <= wait <= 11 for wait in waits)
