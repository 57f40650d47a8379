"""One configuration's way to the service: what all its callers share.

That is the login, the connections to the network, the bound on calls under way, and the pause after a rate limit.
No lock is held while a call is on its way: a call that hangs costs its own place and nobody else's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from urllib.parse import urlsplit

from runherd.actions.answers import Answer
from runherd.actions.config_url import ConfigURL
from runherd.actions.credentials import Credentials
from runherd.actions.errors import (
    ClientClosedError,
    Exchange,
    MessageQueueTokenExpiredError,
    ServiceUnreachableError,
    ThrottledError,
)
from runherd.actions.limits import CallLimiter, RegistrationLimit, TurnTooLateError
from runherd.actions.login import AdminConnection, Login
from runherd.actions.rate_limit import Pause
from runherd.actions.retry import CallPolicy
from runherd.actions.service_url import service_url
from runherd.wire.clock import Clock
from runherd.wire.redirects import RedirectError, RedirectingTransport
from runherd.wire.target import describe
from runherd.wire.transport import (
    CertificateError,
    ProxyCredentialsError,
    Request,
    Response,
    ResponseStream,
    Timeouts,
    Transport,
    TransportError,
)

__all__ = ["LONG_POLL", "ORDINARY", "Caller", "ServiceConnection", "Throttle"]

#: Deadlines of an ordinary attempt, in seconds.
ORDINARY = Timeouts(connect=10.0, total=30.0, idle=None)

#: Deadlines of the long poll: the service answers within about 50 s, so a minute of silence means that nobody is there.
LONG_POLL = Timeouts(connect=10.0, total=None, idle=60.0)

#: Bytes of an answer's body that are read. A page of what the service keeps, or a full batch of job messages, is far
#: smaller; what sends more is not the service.
BODY_LIMIT = 2**23


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls: its name for the service, what it wants of its calls, and the flow that takes turns with others."""

    user_agent: str
    policy: CallPolicy
    flow: object


@dataclass(frozen=True, slots=True)
class Throttle:
    """What keeps a configuration's calls waiting now; all zero when nothing does. Durations in seconds."""

    #: Calls pause for so long since the service asked to slow down.
    paused_for: float = 0.0
    #: So many registrations wait since as many were made as GitHub allows ...
    registrations_waiting: int = 0
    #: ... and the first of them goes on in so long.
    registrations_resume_in: float = 0.0
    #: So many calls wait for others to end.
    calls_waiting: int = 0


@dataclass(slots=True)
class _Registration:
    """Permission to register one runner, and whether the service may have seen that."""

    sent: bool = False


class ServiceConnection:
    """Sends calls for many callers at once."""

    def __init__(
        self,
        config: ConfigURL,
        credentials: Credentials,
        transport: Transport,
        *,
        user_agent: str,
        clock: Clock,
        max_calls: int = 16,
        registrations: RegistrationLimit | None = None,
    ) -> None:
        """``user_agent`` names us at the login, which serves all callers; ``registrations`` is shared between
        connections to the same owner. Raises :class:`~runherd.actions.CredentialsError`."""
        self.config = config
        self._transport = RedirectingTransport(transport)
        self._clock = clock
        self._limiter = CallLimiter(max_calls)
        self._registrations = registrations
        self._pause = Pause(str(config))
        self._login = Login(config, credentials, self._send, user_agent, clock)
        self._calls = 0
        self._last_used = float("-inf")
        self._closed = False

    @property
    def throttle(self) -> Throttle:
        """What keeps calls waiting now, for a status condition."""
        registrations = self._registrations
        waiting = 0 if registrations is None else registrations.waiting
        return Throttle(
            paused_for=self._pause.remaining,
            registrations_waiting=waiting,
            registrations_resume_in=registrations.resumes_in if registrations is not None and waiting else 0.0,
            calls_waiting=self._limiter.waiting,
        )

    def idle_since(self) -> float | None:
        """The loop time of the last call's end; ``None`` while one is under way."""
        return self._last_used if self._calls == 0 else None

    async def close(self) -> None:
        """Close the network connections. Calls under way fail, later ones raise :class:`ClientClosedError`."""
        self._closed = True
        await self._transport.close()
        await self._login.wait_closed()

    async def service_call(
        self,
        caller: Caller,
        method: str,
        endpoint: str,
        *,
        expected: int,
        query: Mapping[str, str | int] | None = None,
        body: bytes = b"",
        token: str | None = None,
        registers: bool = False,
    ) -> Answer:
        """Call ``endpoint`` of the Actions service and return the answer of the ``expected`` status.

        ``token`` replaces the admin token. ``registers`` says that a runner is registered by this call. Raises
        :class:`~runherd.actions.RequestError`. An admin token that the service refuses is replaced once.
        """
        replaced = False

        async def attempt() -> Answer:
            nonlocal replaced
            async with self._registration(caller, method, endpoint, registers) as registration:
                while True:
                    async with self._turn(caller, method, endpoint) as admin:
                        headers = {
                            "Authorization": f"Bearer {token or admin.token}",
                            "Content-Type": "application/json",
                            "User-Agent": caller.user_agent,
                        }
                        request = Request(method, service_url(admin.service_url, endpoint, query), headers, body)
                        answer = await self._send(request, registration=registration)
                    if answer.response.status != 401 or token is not None or replaced:
                        break
                    replaced = True
                    self._login.reject(admin)
            return _checked(answer, (expected,), queue_token=token is not None)

        with self._use():
            return await caller.policy.run(attempt)

    async def queue_call(
        self, caller: Caller, request: Request, expected: tuple[int, ...], *, long_poll: bool = False
    ) -> Answer:
        """Send ``request`` to a message queue, complete with its token; return an answer of an ``expected`` status.

        A long poll takes none of the places for calls under way: it spends its time waiting, and there are many.
        """

        async def attempt() -> Answer:
            while True:
                await self._pass_pause(caller, request.method, urlsplit(request.url).path)
                async with nullcontext() if long_poll else self._limiter.slot(caller.flow):
                    # The wait for the place may have been long.
                    if self._pause.remaining > 0:
                        continue
                    answer = await self._send(request, LONG_POLL if long_poll else ORDINARY)
                return _checked(answer, expected, queue_token=True)

        with self._use():
            return await caller.policy.run(attempt)

    @asynccontextmanager
    async def _turn(self, caller: Caller, method: str, endpoint: str) -> AsyncIterator[AdminConnection]:
        """Inside, a call may be made: nothing pauses, we are logged in, and a place is free."""
        waited = False
        while True:
            # Logging in comes before taking a place, so that a login that hangs holds none.
            await self._pass_pause(caller, method, endpoint)
            admin = await self._login.connection()
            async with self._limiter.slot(caller.flow):
                # The wait for the place may have been long. Once only, in case all tokens are short-lived.
                stale = self._login.current is not admin and not waited
                if not stale and self._pause.remaining == 0:
                    yield admin
                    return
            waited = True

    @asynccontextmanager
    async def _registration(
        self, caller: Caller, method: str, endpoint: str, registers: bool
    ) -> AsyncIterator[_Registration | None]:
        """Inside, a runner may be registered, if that is what the call does."""
        if not registers or self._registrations is None:
            yield None
            return
        try:
            await self._registrations.acquire(caller.flow, caller.policy.patience)
        except TurnTooLateError as error:
            raise ThrottledError(
                Exchange(method, endpoint),
                f"not sent: as many runners of {self._registrations.owner} were registered in the last minutes as "
                f"GitHub allows, and the next turn comes in about {error.seconds:.0f} s",
                retry_after=error.seconds,
            ) from None
        registration = _Registration()
        try:
            yield registration
        finally:
            self._registrations.release(counts=registration.sent)

    async def _pass_pause(self, caller: Caller, method: str, path: str) -> None:
        if not await self._pause.wait(caller.policy.patience):
            seconds = self._pause.remaining
            raise ThrottledError(
                Exchange(method, path),
                f"not sent: the service asked to slow down, calls go on in {seconds:.0f} s",
                retry_after=seconds,
            )

    async def _send(
        self, request: Request, timeouts: Timeouts = ORDINARY, registration: _Registration | None = None
    ) -> Answer:
        """One attempt. Returns an answer of whatever status, of its body ``BODY_LIMIT`` bytes at most; raises when none
        comes."""
        if self._closed:
            raise ClientClosedError
        if registration is not None:
            registration.sent = True
        sent_at = asyncio.get_running_loop().time()
        try:
            async with self._transport.stream(request, timeouts) as stream:
                body, cut = await _read(stream)
                response = Response(stream.status, stream.headers, body)
        except TransportError as error:
            if registration is not None:
                registration.sent = error.request_sent
            if self._closed:
                raise ClientClosedError from None
            raise ServiceUnreachableError(
                Exchange.of(request.method, request.url),
                f"no answer: {str(error).removeprefix(f'{describe(request)}: ')}",
                request_sent=error.request_sent,
                retryable=not isinstance(error, CertificateError | ProxyCredentialsError | RedirectError),
            ) from error
        except ValueError as error:
            raise ServiceUnreachableError(
                Exchange.of(request.method, request.url),
                f"can't be called: {error}",
                request_sent=False,
                retryable=False,
            ) from None
        secrets = (request.headers["Authorization"].partition(" ")[2], *self._login.secrets())
        answer = Answer(request, response, self._clock.now(), secrets, cut)
        limit = answer.rate_limit()
        if limit is None:
            self._pause.answered(sent_at)
        else:
            self._pause.signal(limit, sent_at)
        return answer

    @contextmanager
    def _use(self) -> Iterator[None]:
        if self._closed:
            raise ClientClosedError
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            self._last_used = asyncio.get_running_loop().time()


async def _read(stream: ResponseStream) -> tuple[bytes, bool]:
    """The body up to ``BODY_LIMIT``, and whether it goes on."""
    chunks, size = [], 0
    async for chunk in stream.chunks():
        chunks.append(chunk)
        size += len(chunk)
        if size > BODY_LIMIT:
            return b"".join(chunks)[:BODY_LIMIT], True
    return b"".join(chunks), False


def _checked(answer: Answer, expected: tuple[int, ...], *, queue_token: bool) -> Answer:
    if answer.response.status in expected:
        return answer
    expired = queue_token and answer.response.status == 401
    raise answer.error(MessageQueueTokenExpiredError if expired else None)
