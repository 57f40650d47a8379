"""What a write costs: ``NetworkTransport`` beside bare aiohttp, and the transport in process beside both."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from statistics import median

import aiohttp

from bench._dummy_server import dummy_server
from bench._loops import LOOPS
from bench._result import Result
from runherd.wire.in_process import InProcessTransport
from runherd.wire.network import NetworkTransport
from runherd.wire.transport import Request, Response

ROUNDS = 9
WRITES = 2000
CONCURRENCY = (1, 64)
HEADERS = {"Content-Type": "application/json", "Accept": "application/json", "Authorization": "Bearer " + "t" * 900}
BODY = json.dumps({"metadata": {"name": "runner", "annotations": {str(n): "x" * 40 for n in range(38)}}}).encode()

#: Makes one write, of the given method to the given URL.
Write = Callable[[str, str], Awaitable[object]]


def run() -> Result:
    """Write 1.9 KB of JSON by POST and PATCH in turn to a server in another process, which answers with the same."""
    samples: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
    with dummy_server() as port:
        for _ in range(ROUNDS):
            # In turn, so that whatever else the machine does hits all alike.
            for loop, factory in LOOPS.items():
                for concurrency in CONCURRENCY:
                    for client, connect in CLIENTS.items():
                        with asyncio.Runner(loop_factory=factory) as runner:
                            sample = runner.run(_measure(connect, f"http://127.0.0.1:{port}", concurrency))
                        samples.setdefault((client, loop, concurrency), []).append(sample)
    medians = {key: (median(wall for wall, _ in runs), median(cpu for _, cpu in runs)) for key, runs in samples.items()}
    return Result(
        title=f"Writes of {len(BODY):,} bytes: medians of {ROUNDS} runs of {WRITES:,}",
        rows=[
            {
                "loop": loop,
                "concurrency": str(concurrency),
                "client": client,
                "writes/s": WRITES / wall,
                "CPU µs/write": cpu / WRITES * 1e6,
                "x aiohttp": cpu / medians["aiohttp", loop, concurrency][1],
            }
            for (client, loop, concurrency), (wall, cpu) in sorted(medians.items(), key=lambda item: item[0][1:])
        ],
        figures={
            f"CPU per write, x bare aiohttp, {loop}, concurrency {concurrency}": (
                medians["NetworkTransport", loop, concurrency][1] / medians["aiohttp", loop, concurrency][1]
            )
            for loop in LOOPS
            for concurrency in CONCURRENCY
        },
    )


async def _measure(
    connect: Callable[[], AbstractAsyncContextManager[Write]], url: str, concurrency: int
) -> tuple[float, float]:
    """Seconds on the clock, and of CPU in this process."""
    async with connect() as write:

        async def writer(count: int) -> None:
            for number in range(count):
                await write("PATCH" if number % 2 else "POST", f"{url}/apis/x/v1/namespaces/runners/things/{number}")

        async def writers(count: int) -> None:
            await asyncio.gather(*(writer(count // concurrency) for _ in range(concurrency)))

        await writers(2 * concurrency)
        wall, cpu = time.perf_counter(), time.process_time()
        await writers(WRITES)
        return time.perf_counter() - wall, time.process_time() - cpu


@asynccontextmanager
async def _aiohttp() -> AsyncIterator[Write]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:

        async def write(method: str, url: str) -> bytes:
            async with session.request(method, url, data=BODY, headers=HEADERS) as response:
                return await response.read()

        yield write


@asynccontextmanager
async def _network() -> AsyncIterator[Write]:
    transport = NetworkTransport()
    yield lambda method, url: transport.request(Request(method, url, HEADERS, BODY))
    await transport.close()


@asynccontextmanager
async def _in_process() -> AsyncIterator[Write]:
    async def echo(request: Request) -> Response:
        return Response(200, request.headers, request.body)  # type: ignore[arg-type]  # a server's headers are multidicts

    transport = InProcessTransport(echo)
    yield lambda method, url: transport.request(Request(method, url, HEADERS, BODY))
    await transport.close()


CLIENTS: dict[str, Callable[[], AbstractAsyncContextManager[Write]]] = {
    "aiohttp": _aiohttp,
    "NetworkTransport": _network,
    "InProcessTransport": _in_process,
}
