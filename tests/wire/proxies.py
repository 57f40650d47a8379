"""Real proxies on loopback, for tests: http and https (forwarding and CONNECT), and socks5.

Targets on loopback are never proxied, so tests call made-up names (``service.test``), which the proxies know.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import Self
from urllib.parse import quote

__all__ = ["HttpProxy", "Proxy", "Socks5Proxy"]

Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter


class Proxy(ABC):
    """A proxy that listens while its context is open."""

    scheme: str

    def __init__(
        self,
        *,
        hosts: Mapping[str, str] | None = None,
        credentials: tuple[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """``hosts`` maps names to addresses; ``credentials`` (user, password) are asked for where given."""
        self._hosts = hosts or {}
        self._credentials = credentials
        self._tls = tls
        self._connections: set[asyncio.Task[None]] = set()
        self.port = 0
        #: What was asked for, in order: ``CONNECT service.test:443``, ``GET http://service.test/``.
        self.seen: list[str] = []
        #: Set when a client connects.
        self.connected = asyncio.Event()

    @property
    def address(self) -> str:
        """host:port."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The proxy's URL, with its credentials."""
        userinfo = (
            "" if self._credentials is None else ":".join(quote(part, safe="") for part in self._credentials) + "@"
        )
        return f"{self.scheme}://{userinfo}{self.address}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: Reader, writer: Writer) -> None:
        self.connected.set()
        task = asyncio.create_task(self._run(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _run(self, reader: Reader, writer: Writer) -> None:
        try:
            await self._serve(reader, writer)
        except (OSError, EOFError):
            pass  # one of the two ends went away, and there is nobody to tell
        finally:
            writer.transport.abort()

    @abstractmethod
    async def _serve(self, reader: Reader, writer: Writer) -> None: ...

    async def _open(self, host: str, port: int) -> tuple[Reader, Writer]:
        return await asyncio.open_connection(self._hosts.get(host, host), port)


class HttpProxy(Proxy):
    """An http proxy, or an https one with ``tls``. Whatever the request, ``refusal`` is the answer where it is set."""

    def __init__(
        self,
        *,
        hosts: Mapping[str, str] | None = None,
        credentials: tuple[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        refusal: int | None = None,
        silent: bool = False,
    ) -> None:
        super().__init__(hosts=hosts, credentials=credentials, tls=tls)
        self.scheme = "http" if tls is None else "https"
        self._refusal = refusal
        self._silent = silent

    async def _serve(self, reader: Reader, writer: Writer) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        method, target, _ = lines[0].split(" ")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:] if line)}
        self.seen.append(f"{method} {target}")
        if self._silent:
            await reader.read()
            return
        refusal = self._refusal or (None if self._is_allowed(headers) else 407)
        if refusal is not None:
            writer.write(f"HTTP/1.1 {refusal} Refused\r\nContent-Length: 0\r\n\r\n".encode())
            await writer.drain()
            await reader.read()
            return
        if method == "CONNECT":
            host, _, port = target.rpartition(":")
            upstream = await self._open(host, int(port))
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            authority, _, path = target.removeprefix("http://").partition("/")
            host, _, port = authority.partition(":")
            upstream = await self._open(host, int(port or 80))
            kept = [line for line in lines[1:] if line and not line.lower().startswith(("proxy-", "connection:"))]
            upstream[1].write("\r\n".join([f"{method} /{path} HTTP/1.1", *kept, "Connection: close", "", ""]).encode())
        await _splice((reader, writer), upstream)

    def _is_allowed(self, headers: Mapping[str, str]) -> bool:
        if self._credentials is None:
            return True
        expected = base64.b64encode(":".join(self._credentials).encode()).decode()
        return headers.get("proxy-authorization") == f"Basic {expected}"


class Socks5Proxy(Proxy):
    """A socks5 proxy (RFC 1928, RFC 1929)."""

    scheme = "socks5"

    async def _serve(self, reader: Reader, writer: Writer) -> None:
        _, count = await reader.readexactly(2)
        methods = await reader.readexactly(count)
        wanted = 0 if self._credentials is None else 2
        if wanted not in methods:
            writer.write(b"\x05\xff")
            await writer.drain()
            return
        writer.write(bytes((5, wanted)))
        if self._credentials is not None:
            await reader.readexactly(1)
            username, password = await _string(reader), await _string(reader)
            if (username, password) != self._credentials:
                writer.write(b"\x01\x01")
                await writer.drain()
                return
            writer.write(b"\x01\x00")
        _, _, _, kind = await reader.readexactly(4)
        if kind == 3:
            host = await _string(reader)
        else:
            host = ".".join(str(part) for part in await reader.readexactly(4))
        port = int.from_bytes(await reader.readexactly(2), "big")
        self.seen.append(f"{host}:{port}")
        try:
            upstream = await self._open(host, port)
        except OSError:
            writer.write(b"\x05\x05\x00\x01" + bytes(6))
            await writer.drain()
            return
        writer.write(b"\x05\x00\x00\x01" + bytes(6))
        await _splice((reader, writer), upstream)


async def _string(reader: Reader) -> str:
    (length,) = await reader.readexactly(1)
    return (await reader.readexactly(length)).decode()


async def _splice(one: tuple[Reader, Writer], other: tuple[Reader, Writer]) -> None:
    """Copy both ways until both ends have ended."""
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_copy(one[0], other[1]))
            group.create_task(_copy(other[0], one[1]))
    except* OSError:
        pass  # one of the two ends went away, and there is nobody to tell
    finally:
        other[1].transport.abort()


async def _copy(reader: Reader, writer: Writer) -> None:
    while data := await reader.read(2**16):
        writer.write(data)
        await writer.drain()
    # Over TLS there is no half-close; the end of the one side is then the end of the other.
    if writer.can_write_eof():
        writer.write_eof()
    else:
        writer.close()
