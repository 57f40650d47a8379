"""How aiohttp gets its connections: directly and through http proxies by itself, through socks5 by aiohttp-socks."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp_socks import ProxyConnector, ProxyType

from runherd.wire.proxy import ProxyServer

if TYPE_CHECKING:
    from aiohttp.connector import AddrInfoType, Connection
    from aiohttp.tracing import Trace

__all__ = ["Progress", "make_connector", "progress"]

# Go's defaults. Without them a peer that vanished without a word is never noticed by a call that has no idle deadline.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 9}

# python-socks puts a limit of its own on calls that have none.
_NO_DEADLINE = 86_400.0


class Progress:
    """How far a call has come."""

    __slots__ = ("transport",)

    def __init__(self) -> None:
        #: The connection, once there is one: from then on the server may see the request.
        self.transport: asyncio.Transport | None = None

    def drop_closing(self) -> None:
        """Let go of a connection that is being closed, without waiting for the server to read what is still unsent."""
        # A connection that isn't being closed has gone back to the pool, and may be another call's by now.
        if self.transport is not None and self.transport.is_closing():
            self.transport.abort()


#: The progress of the call that this task is making.
progress: ContextVar[Progress] = ContextVar("progress")


def make_connector(keepalive: float, socks: ProxyServer | None, server_hostname: str | None) -> aiohttp.TCPConnector:
    """A pool of connections, all of them through the socks5 proxy ``socks`` if one is given."""
    if socks is None:
        return _DirectConnector(limit=0, keepalive_timeout=keepalive, socket_factory=_socket)
    return _SocksConnector(socks, server_hostname, limit=0, keepalive_timeout=keepalive)


class _DirectConnector(aiohttp.TCPConnector):
    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        connection = await super().connect(req, traces, timeout)
        progress.get().transport = connection.transport
        return connection


class _SocksConnector(ProxyConnector):
    def __init__(self, proxy: ProxyServer, server_hostname: str | None, **options: Any) -> None:
        # Names are resolved by the proxy, as Go has it: it may be the only one that knows them.
        super().__init__(
            proxy_type=ProxyType.SOCKS5,
            host=proxy.host,
            port=proxy.port,
            username=proxy.username,
            password=proxy.password,
            rdns=True,
            **options,
        )
        self._server_hostname = server_hostname

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        connection = await super().connect(req, traces, timeout)
        progress.get().transport = connection.transport
        return connection

    async def _connect_via_proxy(
        self, host: str, port: int, ssl: ssl.SSLContext | None = None, timeout: float | None = None
    ) -> tuple[asyncio.Transport, ResponseHandler]:
        """The TLS part is done here because aiohttp-socks knows no other name for the server than its host."""
        plain, protocol = await super()._connect_via_proxy(host, port, None, timeout or _NO_DEADLINE)
        if ssl is None:
            return plain, protocol
        handler = _Tunnelled(self._loop, protocol)
        try:
            transport = await self._loop.start_tls(
                plain, handler, ssl, server_hostname=self._server_hostname or host, ssl_handshake_timeout=timeout
            )
        except BaseException:
            plain.abort()
            raise
        if transport is None:
            raise ConnectionResetError("the connection was closed during the TLS handshake")
        handler.connection_made(transport)
        return transport, handler


class _Tunnelled(ResponseHandler):
    """A protocol inside TLS that keeps the one outside alive: what that one holds closes the socket when collected."""

    def __init__(self, loop: asyncio.AbstractEventLoop, outer: ResponseHandler) -> None:
        super().__init__(loop)
        self._outer = outer


def _socket(address: AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        option = getattr(socket, name, None)
        if option is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made
