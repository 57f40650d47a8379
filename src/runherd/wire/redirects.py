"""Following redirects, by the rules of Go's ``http.Client``."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urljoin

from multidict import CIMultiDict

from runherd.wire.target import Target, describe
from runherd.wire.transport import (
    DEFAULT_TIMEOUTS,
    DeadlineExceededError,
    Request,
    Response,
    ResponseStream,
    Timeouts,
    Transport,
    TransportError,
)

__all__ = ["RedirectError", "RedirectingTransport"]

# Headers that are for one host's eyes only.
_SENSITIVE = (
    "Authorization",
    "Cookie",
    "Cookie2",
    "Proxy-Authenticate",
    "Proxy-Authorization",
    "WWW-Authenticate",
)
# Headers that speak of a body, which is gone once a redirect has turned a call into a GET.
_OF_THE_BODY = ("Content-Encoding", "Content-Language", "Content-Length", "Content-Location", "Content-Type")


class RedirectError(TransportError):
    """A redirect that isn't followed: one too many, or to something that can't be called. A repeat doesn't help."""


class RedirectingTransport:
    """A :class:`~runherd.wire.transport.Transport` over another one that follows redirects.

    301, 302 and 303 turn every method but HEAD into GET and drop the body; 307 and 308 repeat the call as it was.
    Credentials are sent to the host of the first request and those below it only. A redirect without ``Location`` is a
    response like any other. The deadlines hold for the whole chain.
    """

    def __init__(self, transport: Transport, *, limit: int = 10) -> None:
        """``limit`` is how many requests one call may consist of."""
        self._transport = transport
        self._limit = limit

    async def request(self, request: Request, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> Response:
        chain = _Chain(request, timeouts, self._limit)
        while True:
            response = await self._transport.request(chain.request, chain.timeouts())
            if not chain.follows(response.status, response.headers):
                return response

    @asynccontextmanager
    async def stream(self, request: Request, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> AsyncIterator[ResponseStream]:
        chain = _Chain(request, timeouts, self._limit)
        while True:
            async with AsyncExitStack() as stack:
                stream = await stack.enter_async_context(self._transport.stream(chain.request, chain.timeouts()))
                if not chain.follows(stream.status, stream.headers):
                    yield stream
                    return

    async def close(self) -> None:
        await self._transport.close()


class _Chain:
    """The requests of one call."""

    def __init__(self, request: Request, timeouts: Timeouts, limit: int) -> None:
        #: The request to make now.
        self.request = request
        self._first = Target.parse(request.url)
        self._timeouts = timeouts
        self._started = asyncio.get_running_loop().time()
        self._left = limit

    def timeouts(self) -> Timeouts:
        """What is left of the deadlines."""
        if self._timeouts.total is None:
            return self._timeouts
        left = self._timeouts.total - (asyncio.get_running_loop().time() - self._started)
        if left <= 0:
            raise DeadlineExceededError(
                f"{describe(self.request)}: not answered within {self._timeouts.total} s", request_sent=True
            )
        return dataclasses.replace(self._timeouts, total=left)

    def follows(self, status: int, headers: Mapping[str, str]) -> bool:
        """Whether this response is a redirect; if so :attr:`request` becomes the next one."""
        location = headers.get("Location")
        if status not in (301, 302, 303, 307, 308) or not location:
            return False
        self._left -= 1
        if self._left <= 0:
            raise RedirectError(f"{describe(self.request)}: redirected too often", request_sent=True)
        url = urljoin(self.request.url, location)
        try:
            target = Target.parse(url)
        except ValueError:
            raise RedirectError(
                f"{describe(self.request)}: redirected to something that is no http or https URL", request_sent=True
            ) from None
        self.request = self._next(url, target, keeps_body=status in (307, 308))
        return True

    def _next(self, url: str, target: Target, *, keeps_body: bool) -> Request:
        headers = CIMultiDict(self.request.headers)
        # Once gone they stay gone, should a later redirect lead back.
        dropped: tuple[str, ...] = () if _is_within(target.host, self._first.host) else _SENSITIVE
        headers.popall("Host", None)
        method, body = self.request.method, self.request.body
        if not keeps_body:
            method, body = ("HEAD" if method == "HEAD" else "GET"), b""
            dropped += _OF_THE_BODY
        for name in dropped:
            headers.popall(name, None)
        return Request(method, url, headers, body)


def _is_within(host: str, domain: str) -> bool:
    """Whether ``host`` is ``domain`` or below it. Addresses are below nothing."""
    return host == domain or (":" not in host and "%" not in host and host.endswith(f".{domain}"))
