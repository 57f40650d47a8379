"""A handler on a socket: the one place that listens."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web

from runherd.wire.answering import TEXT, answer, close_chunks
from runherd.wire.target import Target, describe
from runherd.wire.transport import Handler, Request, Response, StreamingResponse

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.http import RawRequestMessage

__all__ = ["Server"]

log = logging.getLogger(__name__)


def _text_413(request: Request) -> Response:
    return Response(413, TEXT, b"413 Request Entity Too Large\n")


class Server:
    """Serves ``handler`` over HTTP/1.1 on one address.

    The handler is cancelled, and the chunks of its answer are closed, when the client goes away. A body larger than
    ``body_limit`` bytes never reaches it: ``too_large`` makes the answer, from the request without its body.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        tls: ssl.SSLContext | None = None,
        body_limit: int = 2**22,
        too_large: Callable[[Request], Response] = _text_413,
    ) -> None:
        self._handler = handler
        self._tls = tls
        self._body_limit = body_limit
        self._too_large = too_large
        self._protocols: web.Server | None = None
        self._listener: asyncio.Server | None = None
        self._streams: set[asyncio.Task[None]] = set()
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
            max_line_size=2**16,
            max_field_size=2**16,
        )
        self._listener = await loop.create_server(self._protocols, host, port, ssl=self._tls, backlog=1024)
        self._port = self._listener.sockets[0].getsockname()[1]
        self._address = f"[{host}]:{self._port}" if ":" in host else f"{host}:{self._port}"
        return self._port

    async def close(self, deadline: float = 5.0) -> None:
        """Stop listening, cut the streams, and give the calls that are being answered ``deadline`` seconds."""
        if self._listener is None or self._protocols is None:
            return
        self._listener.close()
        for stream in self._streams:
            stream.cancel()
        self._protocols.pre_shutdown()
        await self._protocols.shutdown(deadline)
        await self._listener.wait_closed()
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
            message, payload, protocol, writer, task, asyncio.get_running_loop(), client_max_size=self._body_limit
        )

    async def _handle(self, received: web.BaseRequest) -> web.StreamResponse:
        url = received.raw_path
        if url.startswith("/"):
            url = f"{received.scheme}://{received.headers.get('Host') or self._address}{url}"
        try:
            Target.parse(url)
        except ValueError as error:
            return web.Response(status=400, text=f"400 Bad Request: {error}\n")
        try:
            body = await received.read()
        except web.HTTPRequestEntityTooLarge:
            refused = self._too_large(Request(received.method, url, received.headers))
            return web.Response(status=refused.status, headers=refused.headers, body=refused.body)
        request = Request(received.method, url, received.headers, body)
        response = await answer(self._handler, request)
        if isinstance(response, StreamingResponse):
            return await self._stream(received, request, response)
        return web.Response(status=response.status, headers=response.headers, body=response.body)

    async def _stream(
        self, received: web.BaseRequest, request: Request, response: StreamingResponse
    ) -> web.StreamResponse:
        task = received.task
        self._streams.add(task)
        sending = web.StreamResponse(status=response.status, headers=response.headers)
        try:
            await sending.prepare(received)
            async for chunk in response.chunks:
                await sending.write(chunk)
        except ConnectionError:
            raise
        except Exception:
            log.exception("the handler failed within its answer to %s", describe(request))
            if received.transport is not None:
                received.transport.abort()
        finally:
            self._streams.discard(task)
            await close_chunks(response.chunks)
        return sending
