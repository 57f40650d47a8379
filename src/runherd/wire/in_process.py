"""HTTP without a network: the client's calls go straight into a handler in the same process."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from multidict import CIMultiDict, CIMultiDictProxy

from runherd.wire.answering import DEFAULT_BODY_LIMIT, Answering, close_chunks, too_large
from runherd.wire.target import USER_AGENT, Target, describe
from runherd.wire.transport import (
    DEFAULT_TIMEOUTS,
    ConnectionLostError,
    DeadlineExceededError,
    Handler,
    Request,
    Response,
    StreamingResponse,
    Timeouts,
)

__all__ = ["InProcessTransport"]

log = logging.getLogger(__name__)

# As much as a socket and its two ends would hold before the server has to wait for a client that doesn't read.
_BUFFER_BYTES = 2**16


class InProcessTransport:
    """A :class:`~runherd.wire.transport.Transport` into ``handler``.

    The handler runs in a task and a context of its own, as it does in a server: the two sides share no context
    variables and no cancel scopes, and there is a point between a request and its answer where others may run. It is
    cancelled when the caller is, when a deadline passes and when the stream is left; it waits for a client that
    doesn't read. ``Timeouts.connect`` has no meaning here, and ``idle`` is counted while the client waits.

    Handlers have no reason to compress: unlike one over the network, a client in the process doesn't offer to decode.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        body_limit: int = DEFAULT_BODY_LIMIT,
        too_large: Callable[[Request], Response] = too_large,
    ) -> None:
        """``body_limit`` and ``too_large`` are those of :class:`runherd.wire.server.Server`."""
        self._answering = Answering(handler, body_limit, too_large)
        self._context = contextvars.copy_context()
        self._exchanges: set[_Exchange] = set()
        # The loop itself holds tasks weakly.
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def request(self, request: Request, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> Response:
        exchange = self._start(request, timeouts)
        try:
            status, headers = await exchange.head()
            return Response(status, headers, await exchange.read())
        finally:
            self._leave(exchange)

    @asynccontextmanager
    async def stream(self, request: Request, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> AsyncIterator[_InProcessStream]:
        exchange = self._start(request, timeouts)
        try:
            status, headers = await exchange.head()
            yield _InProcessStream(exchange, status, headers)
        finally:
            self._leave(exchange)

    async def close(self) -> None:
        """Ends all calls, and returns when the handler has stopped working on them."""
        self._closed = True
        for exchange in self._exchanges:
            exchange.lose("the transport is closed")
        for task in self._tasks:
            task.cancel()
        # A handler may be the one that closes us.
        stopping = self._tasks - {asyncio.current_task()}
        if stopping:
            await asyncio.wait(stopping)

    def _start(self, request: Request, timeouts: Timeouts) -> _Exchange:
        if self._closed:
            raise ConnectionLostError(f"{describe(request)}: the transport is closed", request_sent=False)
        exchange = _Exchange(_as_received(request), timeouts)
        task = asyncio.get_running_loop().create_task(exchange.serve(self._answering), context=self._context.copy())
        exchange.task = task
        self._exchanges.add(exchange)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return exchange

    def _leave(self, exchange: _Exchange) -> None:
        self._exchanges.discard(exchange)
        exchange.task.cancel()


class _InProcessStream:
    """A :class:`~runherd.wire.transport.ResponseStream`."""

    def __init__(self, exchange: _Exchange, status: int, headers: CIMultiDictProxy[str]) -> None:
        self._exchange = exchange
        self.status = status
        self.headers = headers

    async def chunks(self) -> AsyncIterator[bytes]:
        while chunk := await self._exchange.next_chunk():
            yield chunk

    async def read(self) -> bytes:
        return await self._exchange.read()


class _Exchange:
    """One request and its answer: the handler's task fills it, the client's empties it."""

    task: asyncio.Task[None]

    def __init__(self, request: Request, timeouts: Timeouts) -> None:
        self._request = request
        self._timeouts = timeouts
        self._loop = asyncio.get_running_loop()
        self._deadline = None if timeouts.total is None else self._loop.time() + timeouts.total
        self._answered: tuple[int, CIMultiDictProxy[str]] | None = None
        self._chunks: deque[bytes] = deque()
        self._buffered = 0
        self._ended = False
        self._lost: str | None = None
        self._client: asyncio.Future[None] | None = None
        self._server: asyncio.Future[None] | None = None

    # The handler's side.

    async def serve(self, answering: Answering) -> None:
        """Have the request answered; ends when all of the answer has been handed over."""
        try:
            response = await answering.answer(self._request)
            self._answered = (response.status, CIMultiDictProxy(CIMultiDict(response.headers)))
            if isinstance(response, StreamingResponse):
                _wake(self._client)
                await self._send(response.chunks)
            elif response.body:
                self._chunks.append(response.body)
                self._buffered = len(response.body)
            self._ended = True
        finally:
            if not self._ended and self._lost is None:
                self._lost = "the connection ended before the response did"
            _wake(self._client)

    async def _send(self, chunks: AsyncIterator[bytes]) -> None:
        try:
            async for chunk in chunks:
                while self._buffered >= _BUFFER_BYTES:
                    self._server = self._loop.create_future()
                    await self._server
                if chunk:
                    self._chunks.append(chunk)
                    self._buffered += len(chunk)
                    _wake(self._client)
        except Exception:
            log.exception("the handler failed within its answer to %s", describe(self._request))
            self._lost = "the connection ended before the response did"
        finally:
            await close_chunks(chunks)

    # The client's side.

    async def head(self) -> tuple[int, CIMultiDictProxy[str]]:
        """Status and headers, once they have come."""
        while self._answered is None:
            await self._progress()
        return self._answered

    async def next_chunk(self) -> bytes:
        """The next piece of the body; nothing at its end."""
        while not self._chunks:
            if self._ended and self._lost is None:
                return b""
            await self._progress()
        chunk = self._chunks.popleft()
        self._buffered -= len(chunk)
        _wake(self._server)
        return chunk

    async def read(self) -> bytes:
        """The rest of the body."""
        chunks = []
        while chunk := await self.next_chunk():
            chunks.append(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def _progress(self) -> None:
        """Wait until the handler's side has done something, at most until a deadline of the call."""
        if self._lost is not None:
            raise ConnectionLostError(f"{describe(self._request)}: {self._lost}", request_sent=True)
        self._client = self._loop.create_future()
        idle = None if self._timeouts.idle is None else self._loop.time() + self._timeouts.idle
        deadline = min((when for when in (idle, self._deadline) if when is not None), default=None)
        try:
            async with asyncio.timeout_at(deadline):
                await self._client
        except TimeoutError:
            if deadline == self._deadline:
                text = f"not answered within {self._timeouts.total} s"
            else:
                text = f"nothing came for {self._timeouts.idle} s"
            raise DeadlineExceededError(f"{describe(self._request)}: {text}", request_sent=True) from None

    def lose(self, reason: str) -> None:
        """End the exchange for the client, whatever has come of the answer."""
        self._lost = reason
        self._chunks.clear()
        _wake(self._client)


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


def _as_received(request: Request) -> Request:
    """``request`` as a server sees it: the headers that every HTTP client adds, found in whatever case."""
    target = Target.parse(request.url)
    headers = CIMultiDict(request.headers)
    headers.setdefault("Host", target.authority)
    headers.setdefault("Accept", "*/*")
    headers.setdefault("User-Agent", USER_AGENT)
    method = request.method.upper()
    if request.body or method not in ("GET", "HEAD", "OPTIONS", "TRACE"):
        headers["Content-Length"] = str(len(request.body))
    if request.body or method in ("PATCH", "POST", "PUT"):
        headers.setdefault("Content-Type", "application/octet-stream")
    return Request(method, target.url, CIMultiDictProxy(headers), request.body)
