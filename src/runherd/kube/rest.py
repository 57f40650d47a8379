"""Sends requests to an API server: the write limiter, repeats, errors and request metrics, for any kind of object.

Authentication is none of its business: a :class:`~runherd.kube.auth.AuthenticatedTransport` adds what it takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Protocol
from urllib.parse import urlsplit

from runherd.kube.errors import ApiError, api_error
from runherd.kube.limiter import Priority, WriteLimiter
from runherd.kube.retry import Attempts, Repeat, RetryPolicy
from runherd.wire.clock import Clock
from runherd.wire.retry import parse_retry_after
from runherd.wire.transport import DeadlineExceededError, Request, ResponseStream, Timeouts, Transport, TransportError

__all__ = ["Call", "RequestObserver", "RestClient"]

JSON = "application/json"


class RequestObserver(Protocol):
    """Is told about every request, for metrics. Implementations are quick and never raise."""

    def request_finished(self, method: str, host: str, code: str, seconds: float) -> None:
        """One attempt is over after ``seconds`` (for a stream: its headers have come).

        ``code`` is the HTTP status, or ``<error>`` when no answer came. Feeds ``rest_client_requests_total`` and
        ``rest_client_request_duration_seconds``.
        """

    def limiter_waited(self, method: str, host: str, seconds: float) -> None:
        """A write waited ``seconds`` in the limiter. Feeds ``rest_client_rate_limiter_duration_seconds``."""


@dataclass(slots=True)
class Call:
    """One request as its caller means it. ``what`` names it in errors: ``create pods default/web``."""

    method: str
    path: str
    what: str
    body: bytes = b""
    content_type: str = JSON
    accept: str = JSON
    repeat: Repeat = Repeat.ALWAYS


class RestClient:
    """Speaks to the API server at ``base_url`` through ``transport``.

    ``limiter=None`` lets writes pass without limit, which is right for leader election: a lease must not wait behind
    a ramp. Raises :class:`~runherd.kube.errors.ApiError` for every answer of status 300 and above, and passes on the
    last :class:`~runherd.wire.transport.TransportError` once repeats are used up or would not be safe.
    """

    def __init__(
        self,
        transport: Transport,
        base_url: str,
        *,
        limiter: WriteLimiter | None,
        clock: Clock,
        random: Random,
        user_agent: str,
        observer: RequestObserver | None = None,
        retry: RetryPolicy | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._transport = transport
        self._base_url = base_url.rstrip("/")
        self._host = urlsplit(base_url).netloc.rpartition("@")[2]
        self._limiter = limiter
        self._clock = clock
        self._random = random
        self._observer = observer
        self._retry = retry or RetryPolicy()
        self._headers = {"User-Agent": user_agent, **(headers or {})}
        self._headers_of: dict[tuple[str, str], dict[str, str]] = {}

    async def read(self, call: Call, timeouts: Timeouts) -> bytes:
        """Send a request that changes nothing; the body of its answer."""
        request = self._request(call)
        attempts = Attempts(self._retry, self._random, call.repeat)
        while True:
            outcome = await self._attempt(call, request, timeouts, attempts)
            if isinstance(outcome, bytes):
                return outcome
            await asyncio.sleep(outcome)

    async def write(self, call: Call, timeouts: Timeouts, owner: str, priority: Priority) -> bytes:
        """Send a request that may change something, when it is its turn; the body of its answer.

        While it waits for a repeat it does not hold a place in the limiter.
        """
        limiter = self._limiter
        if limiter is None:
            return await self.read(call, timeouts)
        request = self._request(call)
        attempts = Attempts(self._retry, self._random, call.repeat)
        observer = self._observer
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            await limiter.acquire(owner, priority)
            try:
                if observer is not None:
                    observer.limiter_waited(call.method, self._host, loop.time() - started)
                outcome = await self._attempt(call, request, timeouts, attempts)
            finally:
                limiter.release()
            if isinstance(outcome, bytes):
                return outcome
            await asyncio.sleep(outcome)

    @asynccontextmanager
    async def stream(self, call: Call, timeouts: Timeouts, open_within: float) -> AsyncIterator[ResponseStream]:
        """Send a request that changes nothing; inside the context its answer can be read piece by piece.

        The headers must come within ``open_within`` seconds. Only the opening is repeated, never the reading.
        """
        request = self._request(call)
        attempts = Attempts(self._retry, self._random, call.repeat)
        while True:
            async with AsyncExitStack() as stack:
                outcome = await self._open(call, request, timeouts, open_within, attempts, stack)
                if not isinstance(outcome, float):
                    yield outcome
                    return
            await asyncio.sleep(outcome)

    async def _attempt(self, call: Call, request: Request, timeouts: Timeouts, attempts: Attempts) -> bytes | float:
        """One attempt: the answer's body, or the seconds to wait before the next one."""
        started = asyncio.get_running_loop().time()
        try:
            response = await self._transport.request(request, timeouts)
        except TransportError as error:
            return self._failed(call, error, started, attempts)
        self._observe(call, response.status, started)
        if 200 <= response.status < 300:
            return response.body
        return self._refused(call, response.status, response.headers.get("Retry-After"), response.body, attempts)

    async def _open(
        self,
        call: Call,
        request: Request,
        timeouts: Timeouts,
        within: float,
        attempts: Attempts,
        stack: AsyncExitStack,
    ) -> ResponseStream | float:
        """One attempt to open a stream, which ``stack`` then closes; or the seconds to wait before the next one."""
        started = asyncio.get_running_loop().time()
        body = b""
        try:
            async with asyncio.timeout(within):
                stream = await stack.enter_async_context(self._transport.stream(request, timeouts))
                if stream.status >= 300:
                    body = await stream.read()
        except TimeoutError:
            late = DeadlineExceededError(f"{call.what}: no answer within {within:g} s", request_sent=True)
            return self._failed(call, late, started, attempts)
        except TransportError as error:
            return self._failed(call, error, started, attempts)
        self._observe(call, stream.status, started)
        if 200 <= stream.status < 300:
            return stream
        return self._refused(call, stream.status, stream.headers.get("Retry-After"), body, attempts)

    def _observe(self, call: Call, status: int | None, started: float) -> None:
        if self._observer is not None:
            seconds = asyncio.get_running_loop().time() - started
            code = "<error>" if status is None else str(status)
            self._observer.request_finished(call.method, self._host, code, seconds)

    def _failed(self, call: Call, error: TransportError, started: float, attempts: Attempts) -> float:
        self._observe(call, None, started)
        wait = attempts.after_failure(error)
        if wait is None:
            error.add_note(f"while trying to {call.what} (attempt {attempts.made})")
            raise error
        return wait

    def _refused(self, call: Call, code: int, retry_after: str | None, body: bytes, attempts: Attempts) -> float:
        asked = None if retry_after is None else parse_retry_after(retry_after, self._clock.now())
        error: ApiError = api_error(call.what, code, body, retry_after=asked)
        error.attempts = attempts.made + 1
        wait = attempts.after_status(code, error.retry_after)
        if wait is None:
            raise error
        return wait

    def _request(self, call: Call) -> Request:
        content_type = call.content_type if call.body else ""
        headers = self._headers_of.get((call.accept, content_type))
        if headers is None:
            headers = {"Accept": call.accept, **self._headers}
            if content_type:
                headers["Content-Type"] = content_type
            self._headers_of[call.accept, content_type] = headers
        return Request(call.method, self._base_url + call.path, headers, call.body)
