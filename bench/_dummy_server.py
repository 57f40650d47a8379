"""An HTTP server that costs next to nothing, in a process of its own: it answers every request with its body.

``python -m bench._dummy_server`` prints its port and serves until its standard input ends.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bench._loops import LOOPS

__all__ = ["dummy_server"]

_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *([0-9]+)\r\n")
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


@contextmanager
def dummy_server() -> Iterator[int]:
    """A server in a process of its own; its port on 127.0.0.1."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench._dummy_server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


class _Echo(asyncio.Protocol):
    def __init__(self) -> None:
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        received = self._received + data if self._received else data
        while (end := received.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(received, 0, end + 2)
            stop = end + 4 + (int(length[1]) if length else 0)
            if len(received) < stop:
                break
            body = received[end + 4 : stop]
            self._transport.write(_HEAD % len(body) + body)
            received = received[stop:]
        self._received = received


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Echo, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()
    server.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=next(iter(LOOPS.values()))) as runner:
        runner.run(_serve())
