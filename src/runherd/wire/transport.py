"""The one way in which this project speaks HTTP, and the two sides of it.

A client calls a :class:`Transport`; a server is a :class:`Handler`. :class:`~runherd.wire.network.NetworkTransport`
puts a network between the two, :class:`~runherd.wire.in_process.InProcessTransport` calls the handler directly, with
the same bytes and status codes and no socket. That is what lets one event loop hold the whole system: the demo, one
machine without a cluster, and tests in virtual time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
from multidict import CIMultiDict, CIMultiDictProxy

__all__ = [
    "DEFAULT_TIMEOUTS",
    "CertificateError",
    "ConnectError",
    "ConnectionLostError",
    "DeadlineExceededError",
    "Handler",
    "ProxyCredentialsError",
    "ProxyError",
    "Request",
    "Response",
    "ResponseStream",
    "StreamingResponse",
    "Timeouts",
    "Transport",
    "TransportError",
]

_NO_HEADERS: CIMultiDictProxy[str] = CIMultiDictProxy(CIMultiDict())


def _no_headers() -> CIMultiDictProxy[str] | CIMultiDict[str]:
    return _NO_HEADERS


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Deadlines of one call, in seconds; ``None`` switches one off.

    ``connect`` covers name resolution, the proxy's answer and the TLS handshake. ``total`` covers everything, from the
    call to the last byte of the body. ``idle`` is the longest silence between two pieces of the answer (the time to
    the response headers included), which is the deadline that fits a long poll or a watch.
    """

    connect: float | None = 10.0
    total: float | None = 30.0
    idle: float | None = None


#: What a call gets that names no deadlines.
DEFAULT_TIMEOUTS = Timeouts()


# These two are made for every call, and a msgspec struct is made in a tenth of the time that a frozen dataclass takes.


class Request(msgspec.Struct, frozen=True):
    """One HTTP request: an absolute ``url``, a complete ``body``.

    ``repr`` shows neither headers nor body, since both carry secrets.
    """

    method: str
    url: str
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    body: bytes = b""

    def __repr__(self) -> str:
        return f"Request(method={self.method!r}, url={self.url!r})"


class Response(msgspec.Struct, frozen=True):
    """One HTTP response whose body has been read to its end (content codings undone). ``repr`` as above."""

    status: int
    headers: CIMultiDictProxy[str] | CIMultiDict[str] = msgspec.field(default_factory=_no_headers)
    body: bytes = b""

    def __repr__(self) -> str:
        return f"Response(status={self.status!r})"


@dataclass(frozen=True, slots=True)
class StreamingResponse:
    """What a :class:`Handler` answers when the body has no known end.

    ``chunks`` is iterated by the server as fast as the client reads, and closed (``aclose``) when the client goes away.
    """

    status: int
    chunks: AsyncIterator[bytes] = field(repr=False)
    headers: CIMultiDictProxy[str] | CIMultiDict[str] = field(default_factory=_no_headers, repr=False)


class ResponseStream(Protocol):
    """An open response on the client's side: headers are here, the body comes piece by piece."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> CIMultiDictProxy[str]: ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The body's pieces as they arrive, of any size; ends when the server ends it.

        Raises :class:`ConnectionLostError` when the connection ends before the body does, and
        :class:`DeadlineExceededError` when a deadline of the call passes.
        """
        ...

    async def read(self) -> bytes:
        """The rest of the body (for an error answer to a streaming call)."""
        ...


class Transport(Protocol):
    """Sends requests. Safe to use from many tasks at once; every call has its own deadlines.

    A response of any status is a result, never an exception. Only what kept the response from coming is raised, as a
    :class:`TransportError`; a URL or a header that can't be sent is a ``ValueError``. Cancelling the calling task
    closes the connection that the call was using.
    """

    async def request(self, request: Request, timeouts: Timeouts = ...) -> Response:
        """Send ``request`` and read the whole answer."""
        ...

    def stream(self, request: Request, timeouts: Timeouts = ...) -> AbstractAsyncContextManager[ResponseStream]:
        """Send ``request``; inside the context the headers have come and the body can be read piece by piece.

        Leaving the context closes the connection when the body was not read to its end.
        """
        ...

    async def close(self) -> None:
        """Close all connections. Calls in flight end with :class:`ConnectionLostError`; so do later ones."""
        ...


#: The server's side: takes a request, answers it. It is cancelled when the client goes away before the answer.
Handler = Callable[[Request], Awaitable[Response | StreamingResponse]]


class TransportError(Exception):
    """No response came.

    ``request_sent`` tells whether the server may have seen (and acted on) the request: where it is ``False`` a repeat
    is always safe. The text names method, scheme, host and path; never query, user info, headers or body.
    """

    def __init__(self, message: str, *, request_sent: bool) -> None:
        super().__init__(message)
        self.request_sent = request_sent


class ConnectError(TransportError):
    """No connection could be made: name resolution, refusal, TLS handshake, or the proxy. Nothing was sent."""

    def __init__(self, message: str) -> None:
        super().__init__(message, request_sent=False)


class CertificateError(ConnectError):
    """The server's certificate was not accepted (or ours by it). Trying again doesn't help."""


class ProxyError(ConnectError):
    """The proxy refused to connect us, or did not answer as a proxy does."""


class ProxyCredentialsError(ProxyError):
    """The proxy wants credentials and got none, or others. Trying again doesn't help."""


class ConnectionLostError(TransportError):
    """The connection ended before the response was complete."""


class DeadlineExceededError(TransportError):
    """A deadline of :class:`Timeouts` passed before the response was complete."""
