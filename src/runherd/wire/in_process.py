"""HTTP without a network: the client's calls go straight into a handler in the same process."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from multidict import CIMultiDict, CIMultiDictProxy

from runherd.wire.answering import answer, close_chunks
from runherd.wire.target import Target, describe
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

    The handler runs in a task of its own, as it does in a server: it can't see the caller's context variables, the
    caller can't be surprised by its task groups, and there is a point where others run between a request and its
    answer. It is cancelled when the caller is, when a deadline passes and when the stream is left; it is slowed down
    by a client that doesn't read.
    """

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._exchanges: set[_Exchange] = set()
        self._closed = False

    async def request(self, request: Request, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> Response:
        exchange = self._open(request, timeouts)
        try:
            status, headers = await exchange.head()
            return Response(status, headers, await exchange.read())
        finally:
            self._exchanges.discard(exchange)
            await exchange.leave()

    @asynccontextmanager
    async def stream(self, request: Request, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> AsyncIterator[_InProcessStream]:
        exchange = self._open(request, timeouts)
        try:
            status, headers = await exchange.head()
            yield _InProcessStream(exchange, status, headers)
        finally:
            self._exchanges.discard(exchange)
            await exchange.leave()

    async def close(self) -> None:
        self._closed = True
        exchanges, self._exchanges = self._exchanges, set()
        for exchange in exchanges:
            exchange.lose("the transport is closed")
        for exchange in exchanges:
            await exchange.leave()

    def _open(self, request: Request, timeouts: Timeouts) -> _Exchange:
        if self._closed:
            raise ConnectionLostError(f"{describe(request)}: the transport is closed", request_sent=False)
        exchange = _Exchange(self._handler, request, timeouts)
        self._exchanges.add(exchange)
        return exchange


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

    def __init__(self, handler: Handler, request: Request, timeouts: Timeouts) -> None:
        self._request = _as_received(request)
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
        self._task = self._loop.create_task(self._serve(handler))

    # The handler's side.

    async def _serve(self, handler: Handler) -> None:
        try:
            response = await answer(handler, self._request)
            self._answered = (response.status, CIMultiDictProxy(CIMultiDict(response.headers)))
            if isinstance(response, StreamingResponse):
                self._wake_client()
                await self._send(response.chunks)
            elif response.body:
                self._chunks.append(response.body)
            self._ended = True
        except asyncio.CancelledError:
            self._lost = self._lost or "the handler was cancelled"
            raise
        finally:
            self._wake_client()

    async def _send(self, chunks: AsyncIterator[bytes]) -> None:
        try:
            async for chunk in chunks:
                while self._buffered >= _BUFFER_BYTES:
                    self._server = self._loop.create_future()
                    await self._server
                if chunk:
                    self._chunks.append(chunk)
                    self._buffered += len(chunk)
                    self._wake_client()
        except Exception:
            log.exception("the handler failed within its answer to %s", describe(self._request))
            self._lost = "the connection ended before the response did"
        finally:
            await close_chunks(chunks)

    def _wake_client(self) -> None:
        if self._client is not None and not self._client.done():
            self._client.set_result(None)

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
        if self._server is not None and not self._server.done():
            self._server.set_result(None)
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

    def lose(self, text: str) -> None:
        """End the exchange for the client; ``text`` is why."""
        self._lost = text
        self._chunks.clear()
        self._wake_client()

    async def leave(self) -> None:
        """The client is done: whatever the handler still does is cancelled, and has ended when this returns."""
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])


def _as_received(request: Request) -> Request:
    """``request`` as a server sees it: the headers that every HTTP client adds, found in whatever case."""
    target = Target.parse(request.url)
    headers = CIMultiDict(request.headers)
    headers.setdefault("Host", target.authority)
    if request.body or request.method in ("POST", "PUT", "PATCH"):
        headers["Content-Length"] = str(len(request.body))
    return Request(request.method.upper(), target.url, CIMultiDictProxy(headers), request.body)
