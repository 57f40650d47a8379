"""HTTP over the network, by aiohttp."""

from __future__ import annotations

import asyncio
import io
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar, Token
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING

import aiohttp
from multidict import CIMultiDictProxy
from yarl import URL

from runherd.wire.failures import translated
from runherd.wire.target import Target, describe
from runherd.wire.transport import (
    DEFAULT_TIMEOUTS,
    ConnectionLostError,
    Request,
    Response,
    Timeouts,
    TransportError,
)

if TYPE_CHECKING:
    from aiohttp.connector import AddrInfoType, Connection
    from aiohttp.tracing import Trace

__all__ = ["NetworkTransport"]

# aiohttp warns about bodies above this size when they are handed over as bytes, since it writes those in one go.
_WRITE_IN_PIECES_ABOVE = 2**20

# Go's defaults. Without them a peer that vanished without a word is never noticed by a call that has no idle deadline.
_KEEP_ALIVE_SECONDS = 15
_KEEP_ALIVE_PROBES = 9


class NetworkTransport:
    """A :class:`~runherd.wire.transport.Transport` over TCP and TLS, with a pool of kept-alive connections.

    Nothing is opened before the first call, and all calls must come from one event loop. There is no limit on the
    number of connections, since every watch holds one: callers that need a limit have their own.

    No call is repeated, not even the idempotent ones that HTTP would allow. A kept-alive connection that the server
    closed while the request was on its way ends in :class:`ConnectionLostError` with ``request_sent=True``. Redirects
    are not followed (see :mod:`runherd.wire.redirects`), cookies not kept, and no environment variable is read.
    """

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        server_hostname: str | None = None,
        keepalive: float = 30.0,
    ) -> None:
        """``tls`` is for https (:mod:`runherd.wire.tls` makes contexts; by default the system's roots count).

        ``server_hostname`` replaces the URL's host in SNI and in the check of the server's certificate. ``keepalive``
        is how many seconds a connection may lie unused.
        """
        self._tls = tls
        self._server_hostname = server_hostname
        self._keepalive = keepalive
        self._session: aiohttp.ClientSession | None = None
        self._calls: set[_Call] = set()
        self._streams: set[_NetworkStream] = set()
        self._closed = False

    def set_tls(self, tls: ssl.SSLContext) -> None:
        """Use ``tls`` from the next call on (a rotated client certificate). Open connections end with their calls."""
        self._tls = tls

    async def request(self, request: Request, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> Response:
        with _Call(self, request, timeouts) as call:
            response = await self._send(call)
            body = await response.read()
        return Response(response.status, response.headers, body)

    @asynccontextmanager
    async def stream(self, request: Request, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> AsyncIterator[_NetworkStream]:
        with _Call(self, request, timeouts) as call:
            response = await self._send(call)
        stream = _NetworkStream(call, response)
        self._streams.add(stream)
        try:
            yield stream
        finally:
            self._streams.discard(stream)
            response.close()

    async def close(self) -> None:
        self._closed = True
        for call in list(self._calls):
            call.abort()
        for stream in list(self._streams):
            stream.abort()
        if self._session is not None:
            await self._session.close()

    async def _send(self, call: _Call) -> aiohttp.ClientResponse:
        """Send, and return once the headers of the answer have come."""
        request = call.request
        target = Target.parse(request.url)
        body = request.body
        return await self._open_session().request(
            request.method,
            URL(target.url, encoded=True),
            headers=request.headers,
            data=io.BytesIO(body) if len(body) > _WRITE_IN_PIECES_ABOVE else body or None,
            allow_redirects=False,
            timeout=_client_timeout(call.timeouts),
            ssl=self._tls or True,
            server_hostname=self._server_hostname,
        )

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=_Connector(
                    limit=0, keepalive_timeout=self._keepalive, socket_factory=_socket, happy_eyeballs_delay=0.3
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                read_bufsize=2**18,
                max_line_size=2**16,
                max_field_size=2**16,
                skip_auto_headers=("Accept", "Content-Type", "User-Agent"),
            )
            # aiohttp would repeat an idempotent request by itself when a kept-alive connection turns out to be dead.
            self._session._retry_connection = False
        return self._session


class _Call:
    """One call between its start and the moment its answer has come; turns what aiohttp raises into our errors."""

    __slots__ = ("_cancelling", "_progress", "_task", "_token", "_transport", "aborted", "request", "timeouts")

    def __init__(self, transport: NetworkTransport, request: Request, timeouts: Timeouts) -> None:
        self._transport = transport
        self.request = request
        self.timeouts = timeouts
        self.aborted = False

    def __enter__(self) -> _Call:
        if self._transport._closed:
            raise _closed_error(self.request, request_sent=False)
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a transport can only be called from a task")
        self._task = task
        self._cancelling = task.cancelling()
        self._progress = _Progress()
        self._token: Token[_Progress] = _progress.set(self._progress)
        self._transport._calls.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._transport._calls.discard(self)
        _progress.reset(self._token)
        if error is None:
            return
        request_sent = self._progress.request_sent
        if self.aborted:
            if isinstance(error, asyncio.CancelledError) and self._task.uncancel() > self._cancelling:
                return  # someone else cancelled the task as well
            raise _closed_error(self.request, request_sent=request_sent) from None
        if isinstance(error, Exception):
            # `from None`: what aiohttp says of an error may hold the query or the headers.
            raise translated(error, self.request, self.timeouts, request_sent=request_sent) from None

    def abort(self) -> None:
        """End the call because the transport is being closed."""
        self.aborted = True
        self._task.cancel()


class _NetworkStream:
    """A :class:`~runherd.wire.transport.ResponseStream`."""

    def __init__(self, call: _Call, response: aiohttp.ClientResponse) -> None:
        self._call = call
        self._response = response
        self._aborted = False

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> CIMultiDictProxy[str]:
        return self._response.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        content = self._response.content
        while True:
            try:
                chunk = await content.readany()
            except Exception as error:
                raise self._translated(error) from None
            if not chunk:
                return
            yield chunk

    async def read(self) -> bytes:
        try:
            return await self._response.content.read()
        except Exception as error:
            raise self._translated(error) from None

    def abort(self) -> None:
        """End whoever reads because the transport is being closed."""
        self._aborted = True
        self._response.close()

    def _translated(self, error: Exception) -> Exception:
        if self._aborted:
            return _closed_error(self._call.request, request_sent=True)
        return translated(error, self._call.request, self._call.timeouts, request_sent=True)


class _Progress:
    """How far a call has come."""

    __slots__ = ("request_sent",)

    def __init__(self) -> None:
        self.request_sent = False


_progress: ContextVar[_Progress] = ContextVar("_progress")


class _Connector(aiohttp.TCPConnector):
    """Notes when a call has got its connection: from then on the server may see the request."""

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        connection = await super().connect(req, traces, timeout)
        _progress.get().request_sent = True
        return connection


def _closed_error(request: Request, *, request_sent: bool) -> TransportError:
    """What a call ends with when its transport has been closed."""
    return ConnectionLostError(f"{describe(request)}: the transport is closed", request_sent=request_sent)


@lru_cache(maxsize=256)
def _client_timeout(timeouts: Timeouts) -> aiohttp.ClientTimeout:
    """The same deadlines in aiohttp's words, to the millisecond (it rounds up long ones unless told not to)."""
    return aiohttp.ClientTimeout(
        connect=_positive(timeouts.connect),
        total=_positive(timeouts.total),
        sock_read=_positive(timeouts.idle),
        ceil_threshold=float("inf"),
    )


def _positive(seconds: float | None) -> float | None:
    # To aiohttp 0 means no deadline; to us it is one that has passed.
    return None if seconds is None else max(seconds, 1e-6)


def _socket(address: AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", _KEEP_ALIVE_SECONDS),
        ("TCP_KEEPINTVL", _KEEP_ALIVE_SECONDS),
        ("TCP_KEEPCNT", _KEEP_ALIVE_PROBES),
    ):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return sock
