"""Clients that watch and count, in a process of their own: ``python -m bench._watchers URL WATCHERS``.

Prints a line when all of them watch; then, once nothing has come for a while, how many events a second came in all.
"""

from __future__ import annotations

import asyncio
import sys
import time

from bench._loops import LOOPS

_QUIET_SECONDS = 2.0


class _Watcher(asyncio.Protocol):
    def __init__(self, path: str) -> None:
        self._path = path
        self.started = asyncio.get_running_loop().create_future()
        self.events = 0
        self.first = 0.0
        self.last = time.perf_counter()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        request = f"GET {self._path}?watch=true HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json\r\n\r\n"
        transport.write(request.encode())  # type: ignore[attr-defined]  # it is a write transport

    def data_received(self, data: bytes) -> None:
        if not self.started.done():
            self.started.set_result(None)
            return
        self.last = time.perf_counter()
        self.first = self.first or self.last
        self.events += data.count(b'{"type":"ADDED"')


async def _main(url: str, count: int) -> None:
    address, _, path = url.removeprefix("http://").partition("/")
    host, _, port = address.partition(":")
    loop = asyncio.get_running_loop()
    watchers = [(await loop.create_connection(lambda: _Watcher(f"/{path}"), host, int(port)))[1] for _ in range(count)]
    await asyncio.gather(*(watcher.started for watcher in watchers))
    print("watching", flush=True)
    quiet = 0.0
    while not watchers[0].events or quiet < _QUIET_SECONDS:
        await asyncio.sleep(0.1)  # what is waited for is that nothing happens
        quiet = time.perf_counter() - max(each.last for each in watchers)
    seconds = max(each.last for each in watchers) - min(each.first for each in watchers)
    print(sum(each.events for each in watchers) / seconds)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=next(iter(LOOPS.values()))) as runner:
        runner.run(_main(sys.argv[1], int(sys.argv[2])))
