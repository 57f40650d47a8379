"""A client that costs next to nothing, in a process of its own, to load a server with.

``python -m bench._load PORT CONNECTIONS REQUESTS`` sends so many requests over so many connections, and prints how
many seconds that took.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time

from bench._loops import LOOPS

__all__ = ["load"]

_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *([0-9]+)\r\n")
BODY = b"{" + b" " * 1900 + b"}"
REQUEST = (
    b"POST /apis/x/v1/namespaces/runners/things HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Accept: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
)


async def load(port: int, connections: int, requests: int) -> float:
    """Load the server on ``port`` from another process; the seconds that it took."""
    arguments = ("-m", "bench._load", str(port), str(connections), str(requests))
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    return float(output)


class _Client(asyncio.Protocol):
    def __init__(self, requests: int) -> None:
        self._left = requests
        self._received = b""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.WriteTransport = transport  # type: ignore[assignment]  # it is one

    def start(self) -> None:
        self._transport.write(REQUEST)

    def data_received(self, data: bytes) -> None:
        received = self._received + data if self._received else data
        end = received.find(b"\r\n\r\n")
        length = _LENGTH.search(received, 0, end + 2) if end >= 0 else None
        if end < 0 or len(received) < end + 4 + (int(length[1]) if length else 0):
            self._received = received
            return
        self._received = b""
        self._left -= 1
        if self._left:
            self._transport.write(REQUEST)
        else:
            self.done.set_result(None)


async def _load(port: int, connections: int, requests: int) -> float:
    loop = asyncio.get_running_loop()
    clients = [
        (await loop.create_connection(lambda: _Client(requests // connections), "127.0.0.1", port))[1]
        for _ in range(connections)
    ]
    start = time.perf_counter()
    for client in clients:
        client.start()
    await asyncio.gather(*(client.done for client in clients))
    return time.perf_counter() - start


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=next(iter(LOOPS.values()))) as runner:
        print(runner.run(_load(*map(int, sys.argv[1:]))))
