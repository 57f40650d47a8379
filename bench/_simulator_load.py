"""Clients of the simulator that cost next to nothing, in a process of their own.

``python -m bench._simulator_load pairs URL CONNECTIONS PAIRS`` generates and removes so many JIT configurations, and
prints how many seconds that took. ``python -m bench._simulator_load sessions URL COUNT`` opens so many sessions, says
so, and polls until its input ends.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from dataclasses import dataclass
from functools import partial

from bench._loops import LOOPS
from runherd.wire.network import NetworkTransport
from runherd.wire.transport import Request, Response, Timeouts

__all__ = ["TOKEN"]

TOKEN = "bench"

_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *([0-9]+)\r\n")
_RUNNER = re.compile(rb'"runner":\{"id":([0-9]+)')


@dataclass
class _Admin:
    """An administrator who has logged in."""

    transport: NetworkTransport
    service_url: str = ""
    token: str = ""

    async def call(
        self, method: str, url: str, body: object = None, token: str = "", scheme: str = "Bearer"
    ) -> Response:
        headers = {"Authorization": f"{scheme} {token or self.token}", "Content-Type": "application/json"}
        content = b"" if body is None else json.dumps(body).encode()
        return await self.transport.request(Request(method, url, headers, content), Timeouts(total=None))

    async def log_in(self, url: str) -> None:
        answer = await self.call("POST", f"{url}/api/v3/orgs/acme/actions/runners/registration-token", token=TOKEN)
        body = {"url": f"{url}/acme", "runner_event": "register"}
        token = json.loads(answer.body)["token"]
        answer = await self.call("POST", f"{url}/api/v3/actions/runner-registration", body, token, "RemoteAuth")
        registered = json.loads(answer.body)
        self.service_url, self.token = registered["url"], registered["token"]

    async def create_set(self, name: str) -> int:
        answer = await self.call("POST", f"{self.service_url}_apis/runtime/runnerscalesets", {"name": name})
        return int(json.loads(answer.body)["id"])


class _Pairs(asyncio.Protocol):
    """One connection: generate, remove, generate, remove."""

    def __init__(self, number: int, path: str, scale_set: int, token: str, pairs: int) -> None:
        self._number, self._path, self._scale_set, self._pairs = number, path, scale_set, pairs
        self._headers = f"Host: 127.0.0.1\r\nContent-Type: application/json\r\nAuthorization: Bearer {token}\r\n"
        self._received = b""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.WriteTransport = transport  # type: ignore[assignment]  # it is one

    def generate(self) -> None:
        if not self._pairs:
            self.done.set_result(None)
            return
        self._pairs -= 1
        body = f'{{"name":"runner-{self._number}-{self._pairs}","workFolder":""}}'
        path = f"{self._path}_apis/runtime/runnerscalesets/{self._scale_set}/generatejitconfig"
        head = f"POST {path} HTTP/1.1\r\n{self._headers}Content-Length: {len(body)}\r\n\r\n"
        self._transport.write((head + body).encode())

    def data_received(self, data: bytes) -> None:
        received = self._received + data
        end = received.find(b"\r\n\r\n")
        length = _LENGTH.search(received, 0, end + 2) if end >= 0 else None
        if end < 0 or len(received) < end + 4 + (int(length[1]) if length else 0):
            self._received = received
            return
        self._received = b""
        if received.startswith(b"HTTP/1.1 204"):
            self.generate()
            return
        runner = _RUNNER.search(received)
        if runner is None:
            self.done.set_exception(RuntimeError(received.decode()))
            return
        path = f"{self._path}_apis/distributedtask/pools/0/agents/{int(runner[1])}"
        self._transport.write(f"DELETE {path} HTTP/1.1\r\n{self._headers}\r\n".encode())


async def _pairs(url: str, connections: int, pairs: int) -> float:
    admin = _Admin(NetworkTransport())
    await admin.log_in(url)
    scale_set = await admin.create_set("one")
    port = int(url.rpartition(":")[2])
    path = "/" + admin.service_url.split("/", 3)[3]
    loop = asyncio.get_running_loop()
    clients = []
    for number in range(connections):
        make = partial(_Pairs, number, path, scale_set, admin.token, pairs // connections)
        _, client = await loop.create_connection(make, "127.0.0.1", port)
        clients.append(client)
    start = time.perf_counter()
    for client in clients:
        client.generate()
    await asyncio.gather(*(client.done for client in clients))
    took = time.perf_counter() - start
    await admin.transport.close()
    return took


async def _sessions(url: str, count: int) -> None:
    admin = _Admin(NetworkTransport())
    await admin.log_in(url)

    async def listen(number: int) -> None:
        scale_set = await admin.create_set(f"set-{number}")
        sessions = f"{admin.service_url}_apis/runtime/runnerscalesets/{scale_set}/sessions"
        session = json.loads((await admin.call("POST", sessions, {"ownerName": "bench"})).body)
        opened.release()
        while True:
            await admin.call("GET", session["messageQueueUrl"], token=session["messageQueueAccessToken"])

    opened = asyncio.Semaphore(0)
    listeners = [asyncio.create_task(listen(number)) for number in range(count)]
    for _ in listeners:
        await opened.acquire()
    print("polling", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for listener in listeners:
        listener.cancel()
    await asyncio.gather(*listeners, return_exceptions=True)
    await admin.transport.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=next(iter(LOOPS.values()))) as runner:
        match sys.argv[1:]:
            case ["pairs", url, connections, pairs]:
                print(runner.run(_pairs(url, int(connections), int(pairs))))
            case ["sessions", url, count]:
                runner.run(_sessions(url, int(count)))
