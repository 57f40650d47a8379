"""The message session of a scale set: its queue, and the token that opens it (``docs/spec/actions-service.md`` 5)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from uuid import UUID

import msgspec

from runherd.actions.answers import Answer
from runherd.actions.connection import Caller, ServiceConnection
from runherd.actions.decoding import NotAsPromisedError, to
from runherd.actions.errors import (
    MessageQueueTokenExpiredError,
    NotFoundError,
    RunnerScaleSetNotFoundError,
    ServiceError,
    SessionExpiredError,
    SessionGoneError,
    UndecodableMessageError,
    service_error_class,
)
from runherd.actions.messages import Envelope, RunnerScaleSetMessage
from runherd.actions.objects import ServiceObject, Session, Statistics
from runherd.actions.service_url import API_VERSION, message_url, poll_url, require_http
from runherd.actions.single_flight import SingleFlight
from runherd.wire.transport import Request

__all__ = ["MessageSession", "new_session"]


class _Acquired(ServiceObject, frozen=True, kw_only=True):
    value: list[int] | None = None
    count: int | None = None


class MessageSession:
    """An open session; see :meth:`~runherd.actions.ActionsClient.create_message_session`.

    When the queue refuses the token, the session is refreshed once and the call repeated once. A session that the
    service has forgotten raises :class:`~runherd.actions.SessionGoneError` then: open a new one.
    """

    def __init__(
        self, connection: ServiceConnection, caller: Caller, scale_set_endpoint: str, session: Session
    ) -> None:
        """For :class:`~runherd.actions.ActionsClient`, which knows how the service describes a session."""
        self._connection = connection
        self._caller = caller
        self._scale_set = scale_set_endpoint
        self._session = session
        self._refresh = SingleFlight("refresh a message session", self._renew)

    def __repr__(self) -> str:
        return f"MessageSession({self._session!r})"

    @property
    def session_id(self) -> UUID:
        return self._session.session_id

    @property
    def statistics(self) -> Statistics | None:
        """The scale set's counts when the session was opened; a refresh need not bring any."""
        return self._session.statistics

    async def get_message(self, last_message_id: int, max_capacity: int) -> RunnerScaleSetMessage | None:
        """The message after ``last_message_id`` (0: the oldest); ``None`` when the service has none within about 50 s.

        ``max_capacity`` is how many runners there may be, which bounds the jobs that are assigned to the scale set.
        Raises :class:`~runherd.actions.UndecodableMessageError` for a message that can't be read.
        """

        async def poll(session: Session) -> Answer:
            headers = {
                "Authorization": f"Bearer {session.message_queue_access_token}",
                "Accept": f"application/json; api-version={API_VERSION}",
                "X-ScaleSetMaxCapacity": str(max_capacity),
                "User-Agent": self._caller.user_agent,
            }
            request = Request("GET", poll_url(session.message_queue_url, last_message_id), headers)
            return await self._connection.queue_call(self._caller, request, (200, 202), long_poll=True)

        answer = await self._with_fresh_token(poll)
        return None if answer.response.status == 202 else _message(answer)

    async def delete_message(self, message_id: int) -> None:
        """Acknowledge a message, so that it doesn't come again."""

        async def delete(session: Session) -> Answer:
            headers = {
                "Authorization": f"Bearer {session.message_queue_access_token}",
                "Content-Type": "application/json",
                "User-Agent": self._caller.user_agent,
            }
            request = Request("DELETE", message_url(session.message_queue_url, message_id), headers)
            return await self._connection.queue_call(self._caller, request, (204,))

        await self._with_fresh_token(delete)

    async def acquire_jobs(self, runner_request_ids: list[int]) -> list[int]:
        """Take available jobs; returns the ids of those that we got, which may be some of them only."""
        if not runner_request_ids:
            return []

        async def acquire(session: Session) -> Answer:
            return await self._connection.service_call(
                self._caller,
                "POST",
                f"{self._scale_set}/acquirejobs",
                expected=200,
                body=msgspec.json.encode(runner_request_ids),
                token=session.message_queue_access_token,
            )

        answer = await self._with_fresh_token(acquire)
        return answer.read(_acquired)

    async def refresh(self) -> None:
        """Have the service renew the session, token included. Calls do this by themselves when they need it.

        Raises :class:`~runherd.actions.SessionGoneError`.
        """
        await self._refresh.result()

    async def close(self) -> None:
        """Delete the session, so that another can be opened at once. One that is gone already counts as closed."""
        # What closing is for is done then, and whoever closes in a ``finally`` has another error to tell of.
        with suppress(NotFoundError, RunnerScaleSetNotFoundError, SessionExpiredError):
            await self._connection.service_call(
                self._caller, "DELETE", f"{self._scale_set}/sessions/{self.session_id}", expected=204
            )

    async def _with_fresh_token(self, call: Callable[[Session], Awaitable[Answer]]) -> Answer:
        session = self._session
        try:
            return await call(session)
        except MessageQueueTokenExpiredError:
            # Somebody else may have come first; then the token in hand is new already.
            if self._session is session:
                await self.refresh()
        return await call(self._session)

    async def _renew(self) -> None:
        try:
            answer = await self._connection.service_call(
                self._caller, "PATCH", f"{self._scale_set}/sessions/{self.session_id}", expected=200
            )
        except (NotFoundError, SessionExpiredError) as error:
            raise _gone(error) from error
        self._session = answer.read(_session)


def new_session(body: Any) -> Session:
    """The session in the answer to its creation, which promises statistics. Raises :class:`NotAsPromisedError`."""
    session = _session(body)
    if session.statistics is None:
        raise NotAsPromisedError("the session lacks statistics")
    return session


def _session(body: Any) -> Session:
    session = to(Session, body)
    if session.session_id.int == 0:
        raise NotAsPromisedError("the session lacks an id")
    require_http(session.message_queue_url, "the address of the session's message queue")
    if not session.message_queue_access_token:
        raise NotAsPromisedError("the session lacks a token for its message queue")
    return session


def _gone(error: ServiceError) -> ServiceError:
    return service_error_class(error.status, kind=SessionGoneError)(
        error.exchange,
        status=error.status,
        problem="the service has forgotten this session",
        type_name=error.type_name,
        message=error.message,
    )


def _acquired(body: Any) -> list[int]:
    acquired = to(_Acquired, body)
    if acquired.value is None and acquired.count != 0:
        raise NotAsPromisedError("the body doesn't say which jobs were acquired")
    return acquired.value or []


def _message(answer: Answer) -> RunnerScaleSetMessage:
    envelope = answer.read(_envelope)
    try:
        return envelope.open()
    except NotAsPromisedError as problem:
        raise UndecodableMessageError(
            answer.exchange,
            f"message {envelope.message_id} can't be read: {problem}",
            message_id=envelope.message_id,
        ) from None


def _envelope(body: Any) -> Envelope:
    envelope = to(Envelope, body)
    if envelope.message_id <= 0:
        raise NotAsPromisedError("the message has no id")
    return envelope
