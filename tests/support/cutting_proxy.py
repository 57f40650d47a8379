"""A TCP proxy that fails on demand: between a client under test and a server, real or scripted.

Towards the server it can speak TLS, with a client certificate if need be. The client then speaks plain HTTP to the
proxy, so that a cut can be placed exactly: before the headers, inside a line, or between two events.

    async with CuttingProxy("127.0.0.1", control_plane.port, tls=tls) as proxy:
        proxy.fail_next(Fault.INSIDE_LINE, matching=b"watch=true")
        ... a client of proxy.url ...
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Self

__all__ = ["CuttingProxy", "Fault"]

_HEAD_END = b"\r\n\r\n"


class Fault(Enum):
    """Where a connection is cut."""

    #: The connection is closed as soon as it was accepted; the server sees nothing.
    ON_CONNECT = "on connect"
    #: The server has seen the request, and answered; nothing of the answer arrives.
    BEFORE_HEADERS = "before headers"
    #: The headers arrive, and the first half of what comes of the body next.
    INSIDE_LINE = "inside a line"
    #: The headers arrive, and all of what comes of the body next.
    BETWEEN_EVENTS = "between events"


@dataclass(slots=True)
class _Planned:
    fault: Fault
    matching: bytes


class _Link:
    """One client's connection and the one to the server that belongs to it."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server
        self.request = b""
        self.in_body = False
        self._seen = b""

    def requested(self, data: bytes) -> None:
        """The client sends something; what follows an answer's body is a new request."""
        if self.in_body or not self.request:
            self.request, self.in_body, self._seen = data, False, b""
        else:
            self.request += data

    def body_starts_at(self, data: bytes) -> int | None:
        """Where in ``data``, the next piece of the answer, its body goes on; ``None``: still in the headers."""
        if self.in_body:
            return 0
        before = len(self._seen)
        self._seen += data
        end = self._seen.find(_HEAD_END)
        if end < 0:
            return None
        self.in_body = True
        return end + len(_HEAD_END) - before

    def close(self) -> None:
        """Close both sides; what was forwarded to the client before still arrives."""
        self.client.close()
        # TLS would take its leave from the server first, and outlive the test.
        self.server.transport.abort()

    def abort(self) -> None:
        """Reset both sides."""
        self.client.transport.abort()
        self.server.transport.abort()


class CuttingProxy:
    """Forwards between its clients and ``host``:``port``; see the module."""

    def __init__(self, host: str, port: int, *, tls: ssl.SSLContext | None = None) -> None:
        self._host = host
        self._port = port
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._planned: list[_Planned] = []
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._chaos: tuple[Random, float] | None = None
        #: How many connections were accepted, and how many of them cut.
        self.accepted = 0
        self.cuts = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def open_connections(self) -> int:
        return len(self._links)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=2**20)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self._flowing.set()
        # Aborting is enough, and a cancelled handler would make asyncio complain.
        while self._tasks:
            for link in list(self._links):
                link.abort()
            await asyncio.wait(self._tasks, timeout=0.1)
        await self._server.wait_closed()

    def fail_next(self, fault: Fault, *, matching: bytes = b"", times: int = 1) -> None:
        """Let the next ``times`` connections whose request contains ``matching`` (in line or headers) fail."""
        self._planned.extend(_Planned(fault, matching) for _ in range(times))

    def cut_now(self) -> int:
        """Reset all connections; how many there were."""
        links = list(self._links)
        for link in links:
            link.abort()
        self.cuts += len(links)
        return len(links)

    def freeze(self) -> None:
        """Forward nothing more, and keep all connections open: what a vanished peer looks like."""
        self._flowing.clear()

    def thaw(self) -> None:
        """Forward again, beginning with what was held back."""
        self._flowing.set()

    def unleash(self, random: Random, probability: float) -> None:
        """From now on cut at each piece of an answer with this probability, at any byte of it; 0 ends that."""
        self._chaos = (random, probability) if probability > 0 else None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.accepted += 1
        try:
            if self._take(Fault.ON_CONNECT, b""):
                writer.transport.abort()
                return
            try:
                server_reader, server_writer = await asyncio.open_connection(
                    self._host, self._port, ssl=self._tls, server_hostname=self._host if self._tls else None
                )
            except OSError:
                writer.transport.abort()
                return
            await self._run(_Link(writer, server_writer), reader, server_reader)
        finally:
            self._tasks.discard(task)

    async def _run(self, link: _Link, client: asyncio.StreamReader, server: asyncio.StreamReader) -> None:
        self._links.add(link)
        pumps = [asyncio.create_task(self._upstream(link, client)), asyncio.create_task(self._downstream(link, server))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._links.discard(link)
            link.close()
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _upstream(self, link: _Link, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(2**16):
                await self._flowing.wait()
                link.requested(data)
                link.server.write(data)
                await link.server.drain()

    async def _downstream(self, link: _Link, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(2**16):
                await self._flowing.wait()
                passed, cut = self._cut(link, data)
                if passed:
                    link.client.write(passed)
                    await link.client.drain()
                if cut:
                    self.cuts += 1
                    return

    def _cut(self, link: _Link, data: bytes) -> tuple[bytes, bool]:
        """What of ``data`` is forwarded, and whether the connection is then cut."""
        in_headers = not link.in_body
        body = link.body_starts_at(data)
        if in_headers and self._take(Fault.BEFORE_HEADERS, link.request):
            return b"", True
        if body is not None and body < len(data):
            if self._take(Fault.INSIDE_LINE, link.request):
                return data[: body + max(1, (len(data) - body) // 2)], True
            if self._take(Fault.BETWEEN_EVENTS, link.request):
                return data, True
        if self._chaos is not None:
            random, probability = self._chaos
            if random.random() < probability:
                return data[: random.randrange(len(data) + 1)], True
        return data, False

    def _take(self, fault: Fault, request: bytes) -> bool:
        for planned in self._planned:
            if planned.fault is fault and planned.matching in request:
                self._planned.remove(planned)
                return True
        return False
