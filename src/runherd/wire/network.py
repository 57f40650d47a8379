"""HTTP over the network, by aiohttp."""

from __future__ import annotations

import asyncio
import io
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from contextvars import Token
from functools import lru_cache
from types import TracebackType

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from runherd.wire.connectors import Progress, make_connector, progress
from runherd.wire.failures import closed, proxy_refused, translated
from runherd.wire.proxy import ProxyConfig, ProxyServer
from runherd.wire.target import USER_AGENT, Target
from runherd.wire.tls import client_context
from runherd.wire.transport import DEFAULT_TIMEOUTS, Request, Response, Timeouts

__all__ = ["NetworkTransport"]

# aiohttp warns about bodies above this size when they are handed over as bytes, since it writes those in one go.
_WRITE_IN_PIECES_ABOVE = 2**20


class NetworkTransport:
    """A :class:`~runherd.wire.transport.Transport` over TCP and TLS, with a pool of kept-alive connections.

    Nothing is opened before the first call, and all calls must come from one event loop. There is no limit on the
    number of connections, since every watch holds one: callers that need a limit have their own.

    No call is repeated, not even the idempotent ones that HTTP would allow. A kept-alive connection that the server
    closed while the request was on its way ends in :class:`~runherd.wire.transport.ConnectionLostError` with
    ``request_sent=True``. Redirects are not followed (see :mod:`runherd.wire.redirects`), cookies not kept, and no
    environment variable is read.

    Calls raise ``ValueError`` for a URL or a header that can't be sent.
    """

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        server_hostname: str | None = None,
        proxies: ProxyConfig | None = None,
        keepalive: float = 30.0,
    ) -> None:
        """``tls`` is for https (:func:`runherd.wire.tls.client_context`), an https proxy included; by default the
        system's roots count.

        ``server_hostname`` replaces the URL's host in SNI and in the check of the server's certificate. ``keepalive``
        is how many seconds a connection may lie unused.
        """
        self._tls = tls
        self._server_hostname = server_hostname
        self._proxies = proxies
        self._keepalive = keepalive
        #: One for each socks5 proxy; ``None`` is for all else.
        self._sessions: dict[ProxyServer | None, aiohttp.ClientSession] = {}
        self._calls: set[_Call] = set()
        self._streams: set[_NetworkStream] = set()
        self._closed = False

    def set_tls(self, tls: ssl.SSLContext) -> None:
        """Use ``tls`` from the next call on (a rotated client certificate); calls in flight go on with the old one."""
        self._tls = tls

    async def request(self, request: Request, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> Response:
        with _Call(self, request, timeouts) as call:
            response = await self._send(call)
            body = await response.read()
        return Response(response.status, _decoded_headers(response), body)

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
            stream.leave()

    async def close(self) -> None:
        self._closed = True
        for call in list(self._calls):
            call.abort()
        for stream in list(self._streams):
            stream.abort()
        for session in self._sessions.values():
            await session.close()

    async def _send(self, call: _Call) -> aiohttp.ClientResponse:
        """Send, and return once the headers of the answer have come."""
        request = call.request
        target = Target.parse(request.url)
        server = None if self._proxies is None else self._proxies.proxy_for(target)
        call.proxy = server
        headers, proxy, proxy_headers = request.headers, None, None
        if server is not None and server.scheme != "socks5":
            proxy = URL(server.url, encoded=True)
            headers, proxy_headers = _with_credentials(headers, server, target)
        session = self._session(server if proxy is None else None)
        body = request.body
        response = await session.request(
            request.method,
            URL(target.url, encoded=True),
            headers=headers,
            data=io.BytesIO(body) if len(body) > _WRITE_IN_PIECES_ABOVE else body or None,
            allow_redirects=False,
            timeout=_client_timeout(call.timeouts),
            # Loading the system's roots takes a while, so it is left until they are needed.
            ssl=self._tls or (_default_tls() if target.scheme == "https" or proxy is not None else True),
            server_hostname=self._server_hostname,
            proxy=proxy,
            proxy_headers=proxy_headers,
        )
        if response.status == 407 and proxy is not None and target.scheme == "http":
            response.close()
            raise proxy_refused(request, server, response.status)
        return response

    def _session(self, socks: ProxyServer | None) -> aiohttp.ClientSession:
        session = self._sessions.get(socks)
        if session is None:
            session = self._sessions[socks] = aiohttp.ClientSession(
                connector=make_connector(self._keepalive, socks, self._server_hostname),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                read_bufsize=2**18,
                max_line_size=2**16,
                max_field_size=2**16,
                headers={"User-Agent": USER_AGENT},
            )
            # aiohttp would repeat an idempotent request by itself when a kept-alive connection turns out to be dead.
            session._retry_connection = False
        return session


class _Call:
    """One call from its start until its answer is here; turns what aiohttp raises into our errors."""

    __slots__ = ("_cancelling", "_task", "_token", "_transport", "aborted", "progress", "proxy", "request", "timeouts")

    def __init__(self, transport: NetworkTransport, request: Request, timeouts: Timeouts) -> None:
        self._transport = transport
        self.request = request
        self.timeouts = timeouts
        self.proxy: ProxyServer | None = None
        self.aborted = False

    def __enter__(self) -> _Call:
        if self._transport._closed:
            raise closed(self.request, request_sent=False)
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a transport can only be called from a task")
        self._task = task
        self._cancelling = task.cancelling()
        self.progress = Progress()
        self._token: Token[Progress] = progress.set(self.progress)
        self._transport._calls.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._transport._calls.discard(self)
        progress.reset(self._token)
        if error is None:
            return
        self.progress.drop_closing()
        request_sent = self.progress.transport is not None
        if self.aborted:
            if isinstance(error, asyncio.CancelledError) and self._task.uncancel() > self._cancelling:
                return  # someone else cancelled the task as well
            raise closed(self.request, request_sent=request_sent) from None
        if isinstance(error, Exception):
            # `from None`: what aiohttp says of an error may hold the query or the headers.
            raise translated(error, self.request, self.timeouts, self.proxy, request_sent=request_sent) from None

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
        self.status = response.status
        self.headers = _decoded_headers(response)

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

    def leave(self) -> None:
        """Close the connection, unless the body was read to its end."""
        self._response.close()
        self._call.progress.drop_closing()

    def abort(self) -> None:
        """End whoever reads because the transport is being closed."""
        self._aborted = True
        self.leave()

    def _translated(self, error: Exception) -> Exception:
        if self._aborted:
            return closed(self._call.request, request_sent=True)
        return translated(error, self._call.request, self._call.timeouts, self._call.proxy, request_sent=True)


def _with_credentials(
    headers: Mapping[str, str], proxy: ProxyServer, target: Target
) -> tuple[Mapping[str, str], Mapping[str, str] | None]:
    """The headers of the request and those for the proxy alone: our credentials are in the ones that the proxy sees."""
    if proxy.authorization is None:
        return headers, None
    credentials = {"Proxy-Authorization": proxy.authorization}
    if target.scheme == "https":
        return headers, credentials  # they go with CONNECT
    combined = CIMultiDict(headers)
    combined.update(credentials)
    return combined, None


def _decoded_headers(response: aiohttp.ClientResponse) -> CIMultiDictProxy[str]:
    """The headers of the body as we hand it on: aiohttp has undone the coding that these may speak of."""
    if "Content-Encoding" not in response.headers:
        return response.headers
    headers = CIMultiDict(response.headers)
    headers.popall("Content-Encoding")
    headers.popall("Content-Length", None)
    return CIMultiDictProxy(headers)


@lru_cache(maxsize=1)
def _default_tls() -> ssl.SSLContext:
    return client_context()


@lru_cache(maxsize=256)
def _client_timeout(timeouts: Timeouts) -> aiohttp.ClientTimeout:
    """The same deadlines in aiohttp's words, exactly (it rounds long ones up to whole seconds unless told not to)."""
    return aiohttp.ClientTimeout(
        connect=_positive(timeouts.connect),
        total=_positive(timeouts.total),
        sock_read=_positive(timeouts.idle),
        ceil_threshold=float("inf"),
    )


def _positive(seconds: float | None) -> float | None:
    # To aiohttp 0 means no deadline; to us it is one that has passed.
    return None if seconds is None else max(seconds, 1e-6)
