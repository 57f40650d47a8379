"""A handler on a socket: the one place that listens."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web
from aiohttp.http import HttpProcessingError

from runherd.wire.answering import DEFAULT_BODY_LIMIT, Answering, close_chunks, too_large
from runherd.wire.target import Target, describe
from runherd.wire.transport import Handler, Request, Response, StreamingResponse

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.http import RawRequestMessage

__all__ = ["Server"]

log = logging.getLogger(__name__)

# What aiohttp says of requests that it can't parse. Its errors quote them, and with them whatever token they carry.
_protocol_log = logging.getLogger(f"{__name__}.protocol")


def _without_quotes(record: logging.LogRecord) -> bool:
    if record.exc_info and isinstance(record.exc_info[1], HttpProcessingError):
        record.exc_info = None
    return True


_protocol_log.addFilter(_without_quotes)

# Once no handler works any more there is nothing to wait for but a client that doesn't read.
_LINGER_SECONDS = 0.5


class Server:
    """Serves ``handler`` over HTTP/1.1 on one address.

    The handler is cancelled, and the chunks of its answer are closed, when the client goes away. What it raises is
    logged, and answered with 500 if nothing has been answered yet; else the connection is cut, so that the client
    can't take what it got for the whole.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        tls: ssl.SSLContext | None = None,
        body_limit: int = DEFAULT_BODY_LIMIT,
        too_large: Callable[[Request], Response] = too_large,
    ) -> None:
        """``tls`` serves https (:func:`runherd.wire.tls.server_context`).

        A body larger than ``body_limit`` bytes never reaches the handler: ``too_large`` makes the answer, from the
        request without its body.
        """
        self._answering = Answering(handler, body_limit, too_large)
        self._tls = tls
        self._protocols: web.Server | None = None
        self._listener: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._streams: set[asyncio.Task[Any]] = set()
        self._address = ""
        self._port = 0

    @property
    def port(self) -> int:
        """The port that is listened on; 0 before :meth:`start`."""
        return self._port

    @property
    def url(self) -> str:
        """Scheme, host and port of this server, without a trailing slash."""
        return f"{'http' if self._tls is None else 'https'}://{self._address}"

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen on ``host`` and ``port`` (0 takes a free one), and return the port.

        Raises ``OSError`` when that can't be done.
        """
        loop = asyncio.get_running_loop()
        self._protocols = web.Server(
            self._handle,
            request_factory=self._make_request,
            handler_cancellation=True,
            access_log=None,
            logger=_protocol_log,
            auto_decompress=False,
            max_line_size=2**16,
            max_field_size=2**16,
        )
        self._listener = await loop.create_server(self._protocols, host, port, ssl=self._tls, backlog=1024)
        self._port = self._listener.sockets[0].getsockname()[1]
        self._address = f"[{host}]:{self._port}" if ":" in host else f"{host}:{self._port}"
        return self._port

    async def close(self, deadline: float = 5.0) -> None:
        """Stop listening, cut the streams, give what is being answered ``deadline`` seconds, cut the rest."""
        if self._listener is None or self._protocols is None:
            return
        self._listener.close()
        self._protocols.pre_shutdown()
        for stream in self._streams:
            stream.cancel()
        # A handler may be the one that closes us.
        answering = self._tasks - {asyncio.current_task()}
        if answering:
            _, late = await asyncio.wait(answering, timeout=deadline)
            for task in late:
                task.cancel()
        await self._protocols.shutdown(_LINGER_SECONDS)
        self._listener = self._protocols = None

    def _make_request(
        self,
        message: RawRequestMessage,
        payload: aiohttp.StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        return web.BaseRequest(
            message,
            payload,
            protocol,
            writer,
            task,
            asyncio.get_running_loop(),
            client_max_size=self._answering.body_limit,
        )

    async def _handle(self, received: web.BaseRequest) -> web.StreamResponse:
        task = _running_task()
        self._tasks.add(task)
        try:
            url = received.raw_path
            if url.startswith("/"):
                url = f"{received.scheme}://{received.headers.get('Host') or self._address}{url}"
            try:
                url = Target.parse(url).url
            except ValueError as error:
                return web.Response(status=400, text=f"400 Bad Request: {error}\n")
            if received.headers.get("Expect", "").lower() == "100-continue" and received.transport is not None:
                received.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            try:
                body = await received.read()
            except web.HTTPRequestEntityTooLarge:
                return _whole(self._answering.refuse(Request(received.method, url, received.headers)))
            request = Request(received.method, url, received.headers, body)
            response = await self._answering.answer(request)
            if isinstance(response, StreamingResponse):
                return await self._stream(received, request, response)
            return _whole(response)
        finally:
            self._tasks.discard(task)

    async def _stream(
        self, received: web.BaseRequest, request: Request, response: StreamingResponse
    ) -> web.StreamResponse:
        task = _running_task()
        self._streams.add(task)
        sending = web.StreamResponse(status=response.status, headers=response.headers)
        try:
            if await _sent(sending.prepare(received)):
                async for chunk in response.chunks:
                    if not await _sent(sending.write(chunk)):
                        break
        except Exception:
            log.exception("the handler failed within its answer to %s", describe(request))
            if received.transport is not None:
                received.transport.close()
        finally:
            self._streams.discard(task)
            await close_chunks(response.chunks)
        return sending


async def _sent(sending: Awaitable[object]) -> bool:
    """Send something; whether the client is still there."""
    try:
        await sending
    except ConnectionError:
        return False
    return True


def _whole(response: Response) -> web.Response:
    return web.Response(status=response.status, headers=response.headers, body=response.body)


def _running_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("requests are only answered in tasks")
    return task
