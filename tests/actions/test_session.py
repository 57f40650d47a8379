"""``docs/spec/actions-service.md`` 5.1 to 5.3."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import pytest

from runherd.actions import (
    RETRYING,
    CallPolicy,
    MessageQueueTokenExpiredError,
    MessageSession,
    NotFoundError,
    ServiceError,
    ServiceUnreachableError,
    SessionConflictError,
    SessionGoneError,
    UnauthorizedError,
    UndecodableMessageError,
    UnexpectedResponseError,
)
from runherd.actions.retry import ONE_ATTEMPT
from runherd.wire.transport import DeadlineExceededError, Request, Response
from tests.actions.scripted import Reply, Scripted, connect, error_body, hang, reply, virtual

SESSION_ID = "6b1c7a1e-5f0a-4c39-9c0e-0d9a1d0f2b11"
SESSIONS = "/tenant/123/_apis/runtime/runnerscalesets/42/sessions"
SESSION = {
    "sessionId": SESSION_ID,
    "ownerName": "arc-set-754b578d-listener",
    "runnerScaleSet": {"id": 42, "name": "arc-set"},
    "messageQueueUrl": "https://queue.example/scalesets/message?sessionId=6b1c&lastMessageId=1",
    "messageQueueAccessToken": "queue-token",
    "statistics": {"totalAssignedJobs": 2, "totalRunningJobs": 1},
}
MESSAGE = {
    "messageId": 100000007,
    "messageType": "RunnerScaleSetJobMessages",
    "body": '[{"messageType":"JobAssigned"}]',
    "statistics": {"totalAssignedJobs": 3},
}


def refreshed(**changes: object) -> Reply:
    return reply(200, {**SESSION, "messageQueueAccessToken": "new-token", **changes})


async def opened(service: Scripted, policy: CallPolicy = ONE_ATTEMPT) -> MessageSession:
    service.script.appendleft(reply(200, SESSION))
    session = await connect(service, policy=policy).for_scale_set(42).create_message_session(42, "me")
    service.sent.clear()
    return session


@virtual
async def test_create() -> None:
    service = Scripted()
    service.will(reply(200, SESSION))
    session = await connect(service).create_message_session(42, "me")
    (sent,) = service.sent
    assert (sent.method, urlsplit(sent.url).path) == ("POST", SESSIONS)
    assert urlsplit(sent.url).query == "api-version=6.0-preview"
    assert sent.request.body == b'{"sessionId":"00000000-0000-0000-0000-000000000000","ownerName":"me"}'
    assert session.session_id == UUID(SESSION_ID)
    assert session.statistics is not None
    assert session.statistics.total_assigned_jobs == 2
    assert "queue-token" not in repr(session)


@virtual
async def test_create_while_somebody_holds_one() -> None:
    service = Scripted()
    service.will(reply(409, error_body("RunnerScaleSetSessionConflictException", "already has an active session")))
    with pytest.raises(SessionConflictError, match="already has an active session"):
        await connect(service, policy=RETRYING).create_message_session(42, "me")
    assert len(service.sent) == 1


INCOMPLETE = [
    {**SESSION, "sessionId": None},
    {**SESSION, "sessionId": str(UUID(int=0))},
    {**SESSION, "sessionId": "x"},
    {**SESSION, "messageQueueUrl": None},
    {**SESSION, "messageQueueUrl": ""},
    {**SESSION, "messageQueueUrl": "/relative"},
    {**SESSION, "messageQueueUrl": "ftp://queue.example/"},
    {**SESSION, "messageQueueAccessToken": ""},
]


@pytest.mark.parametrize("body", [*INCOMPLETE, {**SESSION, "statistics": None}])
def test_create_with_an_incomplete_answer(body: object) -> None:
    @virtual
    async def main() -> None:
        service = Scripted()
        service.will(reply(200, body))
        with pytest.raises(UnexpectedResponseError) as caught:
            await connect(service).create_message_session(42, "me")
        assert "queue-token" not in str(caught.value)

    main()


@pytest.mark.parametrize("status", [201, 204])
def test_create_succeeds_with_200_only(status: int) -> None:
    @virtual
    async def main() -> None:
        service = Scripted()
        service.will(reply(status, SESSION))
        with pytest.raises(ServiceError):
            await connect(service).create_message_session(42, "me")

    main()


@virtual
async def test_close() -> None:
    service = Scripted()
    session = await opened(service)
    service.will(reply(204), reply(200))
    await session.close()
    (sent,) = service.sent
    assert (sent.method, urlsplit(sent.url).path) == ("DELETE", f"{SESSIONS}/{SESSION_ID}")
    with pytest.raises(ServiceError):
        await session.close()


@virtual
async def test_closing_a_session_that_is_gone_is_done() -> None:
    service = Scripted()
    session = await opened(service)
    service.will(
        reply(404),
        reply(404, error_body("RunnerScaleSetNotFoundException")),
        reply(400, error_body("RunnerScaleSetSessionExpiredException")),
        reply(401, error_body("SomethingElseException")),
        reply(403, error_body("SomethingElseException")),
    )
    for _ in range(3):
        await session.close()
    with pytest.raises(ServiceError):
        await session.close()


@virtual
async def test_get_message() -> None:
    service = Scripted()
    session = await opened(service)
    service.will(reply(200, MESSAGE))
    message = await session.get_message(100000006, 0)
    assert message is not None
    assert (message.message_id, len(message.assigned)) == (100000007, 1)
    (sent,) = service.sent
    assert (sent.method, urlsplit(sent.url).path) == ("GET", "/scalesets/message")
    assert parse_qs(urlsplit(sent.url).query) == {"sessionId": ["6b1c"], "lastMessageId": ["100000006"]}
    agent = sent.header("User-Agent") or ""
    assert sent.request.headers == {
        "Authorization": "Bearer queue-token",
        "Accept": "application/json; api-version=6.0-preview",
        "X-ScaleSetMaxCapacity": "0",
        "User-Agent": agent,
    }
    assert json.loads(agent)["scale_set_id"] == 42
    # The service holds the call for 50 s: only silence ends it.
    assert (sent.timeouts.connect, sent.timeouts.total, sent.timeouts.idle) == (10.0, None, 60.0)


@virtual
async def test_the_first_poll_leaves_the_url_as_it_is() -> None:
    service = Scripted()
    session = await opened(service)
    service.will(reply(202, b"ignored"))
    assert await session.get_message(0, 2147483647) is None
    assert service.sent[0].url == SESSION["messageQueueUrl"]
    assert service.sent[0].header("X-ScaleSetMaxCapacity") == "2147483647"


@pytest.mark.parametrize("status", [204, 400, 403, 404, 410, 500])
def test_other_answers_to_a_poll_are_errors(status: int) -> None:
    @virtual
    async def main() -> None:
        service = Scripted()
        session = await opened(service)
        service.will(reply(status))
        with pytest.raises(ServiceError) as caught:
            await session.get_message(0, 5)
        assert caught.value.status == status
        assert isinstance(caught.value, NotFoundError) is (status == 404)

    main()


@pytest.mark.parametrize("body", [b"", b"<html></html>", b"{}", b"null", b"[]", {**MESSAGE, "messageId": 0}])
def test_a_message_that_is_none(body: object) -> None:
    @virtual
    async def main() -> None:
        service = Scripted()
        session = await opened(service)
        service.will(reply(200, body))
        with pytest.raises(UnexpectedResponseError) as caught:
            await session.get_message(0, 5)
        assert not isinstance(caught.value, UndecodableMessageError)

    main()


@pytest.mark.parametrize("change", [{"body": "{"}, {"messageType": "Other"}, {"statistics": None}])
def test_a_message_that_cannot_be_read_says_which_one_it_is(change: dict[str, object]) -> None:
    @virtual
    async def main() -> None:
        service = Scripted()
        session = await opened(service)
        service.will(reply(200, {**MESSAGE, **change}))
        with pytest.raises(UndecodableMessageError, match="message 100000007 can't be read") as caught:
            await session.get_message(0, 5)
        assert caught.value.message_id == 100000007

    main()


@virtual
async def test_polls_are_retried_as_other_calls_are() -> None:
    service = Scripted()
    session = await opened(service, RETRYING)
    service.will(reply(503), DeadlineExceededError("x", request_sent=True), reply(429), reply(202))
    assert await session.get_message(0, 5) is None
    assert [sent.at for sent in service.sent] == [0, 1, 3, 7]


@virtual
async def test_delete_message() -> None:
    service = Scripted()
    session = await opened(service)
    service.will(reply(204))
    await session.delete_message(100000007)
    (sent,) = service.sent
    assert sent.method == "DELETE"
    assert sent.url == "https://queue.example/scalesets/message/100000007?sessionId=6b1c&lastMessageId=1"
    agent = sent.header("User-Agent")
    assert sent.request.headers == {
        "Authorization": "Bearer queue-token",
        "Content-Type": "application/json",
        "User-Agent": agent,
    }
    assert (sent.timeouts.total, sent.timeouts.idle) == (30.0, None)
    for status in (200, 202, 404):
        service.will(reply(status))
        with pytest.raises(ServiceError):
            await session.delete_message(100000007)


@virtual
async def test_acquire_jobs() -> None:
    service = Scripted()
    session = await opened(service)
    service.will(reply(200, {"count": 1, "value": [7848923]}))
    assert await session.acquire_jobs([7848922, 7848923]) == [7848923]
    (sent,) = service.sent
    assert (sent.method, urlsplit(sent.url).path) == (
        "POST",
        "/tenant/123/_apis/runtime/runnerscalesets/42/acquirejobs",
    )
    assert urlsplit(sent.url).query == "api-version=6.0-preview"
    assert sent.request.body == b"[7848922,7848923]"
    assert sent.header("Authorization") == "Bearer queue-token"
    assert sent.header("Content-Type") == "application/json"
    service.will(reply(200, {"count": 0}), reply(200, {"value": []}))
    assert await session.acquire_jobs([1]) == []
    assert await session.acquire_jobs([1]) == []
    assert await session.acquire_jobs([]) == []
    assert len(service.sent) == 3
    service.will(reply(201))
    with pytest.raises(ServiceError):
        await session.acquire_jobs([1])


@pytest.mark.parametrize("body", [b"", {}, {"count": 2}, {"count": 1, "value": ["1"]}, [1], b"<html>"])
def test_acquired_jobs_that_are_not_told(body: object) -> None:
    @virtual
    async def main() -> None:
        service = Scripted()
        session = await opened(service)
        service.will(reply(200, body))
        with pytest.raises(UnexpectedResponseError):
            await session.acquire_jobs([1])

    main()


CALLS: dict[str, tuple[Callable[[MessageSession], Awaitable[Any]], Reply]] = {
    "get": (lambda session: session.get_message(0, 5), reply(202)),
    "delete": (lambda session: session.delete_message(3), reply(204)),
    "acquire": (lambda session: session.acquire_jobs([1]), reply(200, {"count": 0, "value": []})),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("body", [b"", b"anything", error_body("SomeException")])
def test_an_expired_token_is_refreshed_once_and_the_call_repeated_once(name: str, body: object) -> None:
    call, good = CALLS[name]

    @virtual
    async def main() -> None:
        service = Scripted()
        session = await opened(service)
        service.will(reply(401, body), refreshed(messageQueueUrl="https://queue.example/moved"), good)
        await call(session)
        first, refresh, second = service.sent
        assert (refresh.method, urlsplit(refresh.url).path) == ("PATCH", f"{SESSIONS}/{SESSION_ID}")
        assert refresh.request.body == b""
        assert (refresh.header("Authorization") or "").startswith("Bearer ey")
        assert first.header("Authorization") == "Bearer queue-token"
        assert second.header("Authorization") == "Bearer new-token"
        if name != "acquire":
            assert second.url.startswith("https://queue.example/moved")
        # What was learnt is kept.
        service.will(good)
        await call(session)
        assert service.sent[-1].header("Authorization") == "Bearer new-token"
        assert len(service.logged_in) == 2

    main()


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("status", [401, 404, 500])
def test_a_second_failure_is_returned(name: str, status: int) -> None:
    call, _ = CALLS[name]

    @virtual
    async def main() -> None:
        service = Scripted()
        session = await opened(service)
        service.will(reply(401), refreshed(), reply(status))
        with pytest.raises(ServiceError) as caught:
            await call(session)
        assert caught.value.status == status
        assert isinstance(caught.value, MessageQueueTokenExpiredError) is (status == 401)
        assert isinstance(caught.value, UnauthorizedError) is (status == 401)
        assert len(service.sent) == 3

    main()


GONE = [reply(404), reply(404, error_body("X")), reply(400, error_body("RunnerScaleSetSessionExpiredException"))]


@pytest.mark.parametrize("gone", GONE)
@pytest.mark.parametrize("name", CALLS)
def test_a_session_that_is_gone_on_refresh(name: str, gone: Reply) -> None:
    call, _ = CALLS[name]

    @virtual
    async def main() -> None:
        service = Scripted()
        session = await opened(service, RETRYING)
        service.will(reply(401), gone)
        with pytest.raises(SessionGoneError, match="the service has forgotten this session") as caught:
            await call(session)
        assert isinstance(caught.value.__cause__, ServiceError)
        assert caught.value.method == "PATCH"

    main()


@pytest.mark.parametrize("status", [400, 403, 409, 500])
def test_other_failures_to_refresh(status: int) -> None:
    @virtual
    async def main() -> None:
        service = Scripted()
        session = await opened(service)
        service.will(reply(401), reply(status))
        with pytest.raises(ServiceError) as caught:
            await session.get_message(0, 5)
        assert not isinstance(caught.value, SessionGoneError)
        assert (caught.value.status, caught.value.method) == (status, "PATCH")

    main()


@pytest.mark.parametrize("body", INCOMPLETE)
def test_a_refresh_with_an_incomplete_answer_changes_nothing(body: object) -> None:
    @virtual
    async def main() -> None:
        service = Scripted()
        session = await opened(service)
        service.will(reply(401), reply(200, body), reply(202))
        with pytest.raises(UnexpectedResponseError):
            await session.get_message(0, 5)
        await session.get_message(0, 5)
        assert service.sent[-1].header("Authorization") == "Bearer queue-token"

    main()


@virtual
async def test_a_refresh_needs_no_statistics() -> None:
    service = Scripted()
    session = await opened(service)
    service.will(refreshed(statistics=None))
    await session.refresh()
    assert session.statistics is None


@virtual
async def test_a_refresh_repeats_after_a_new_login_when_the_admin_token_is_refused() -> None:
    service = Scripted()
    session = await opened(service)
    service.will(reply(401), reply(401), refreshed(), reply(202))
    assert await session.get_message(0, 5) is None
    assert len(service.logged_in) == 4


@virtual
async def test_many_calls_with_an_expired_token_refresh_it_once() -> None:
    service = Scripted()
    session = await opened(service)

    async def answer(request: Request) -> Response:
        await asyncio.sleep(1)
        if request.method == "PATCH":
            return reply(200, {**SESSION, "messageQueueAccessToken": "new-token"})
        return reply(204 if request.headers["Authorization"] == "Bearer new-token" else 401)

    service.will(*[answer] * 11)
    await asyncio.gather(*(session.delete_message(number) for number in range(1, 6)))
    assert [sent.method for sent in service.sent].count("PATCH") == 1


@virtual
async def test_a_late_refusal_of_the_old_token_does_not_refresh_again() -> None:
    service = Scripted()
    session = await opened(service)

    async def late(request: Request) -> Response:
        await asyncio.sleep(10)
        return reply(401)

    service.will(late, reply(401), refreshed(), reply(204), reply(202))
    poll = asyncio.ensure_future(session.get_message(0, 5))
    await asyncio.sleep(1)
    await session.delete_message(3)
    assert await poll is None
    assert [sent.method for sent in service.sent] == ["GET", "DELETE", "PATCH", "DELETE", "GET"]


@virtual
async def test_polls_take_no_place_of_other_calls() -> None:
    service = Scripted()
    service.will(reply(200, SESSION))
    client = connect(service, max_calls=1)
    session = await client.create_message_session(42, "me")
    service.will(hang, hang, reply(204))
    polls = [asyncio.ensure_future(session.get_message(0, 5)) for _ in range(2)]
    await asyncio.sleep(1)
    await client.remove_runner(7)
    for poll in polls:
        poll.cancel()


@virtual
async def test_cancelling_a_poll_ends_it() -> None:
    service = Scripted()
    session = await opened(service)
    service.will(hang)
    poll = asyncio.ensure_future(session.get_message(0, 5))
    await asyncio.sleep(5)
    poll.cancel()
    with pytest.raises(asyncio.CancelledError):
        await poll


@virtual
async def test_the_queues_secrets_are_in_no_error() -> None:
    service = Scripted()
    session = await opened(service)
    service.will(DeadlineExceededError("GET https://queue.example/scalesets/message: silence", request_sent=True))
    with pytest.raises(ServiceUnreachableError) as caught:
        await session.get_message(77, 5)
    assert (caught.value.path, "6b1c" in repr(caught.value)) == ("/scalesets/message", False)
