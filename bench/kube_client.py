"""What a write to Kubernetes costs beside bare aiohttp, encoding and decoding included."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import Random
from statistics import median
from typing import Any

import aiohttp
import msgspec

from bench._dummy_server import dummy_server
from bench._loops import LOOPS
from bench._result import Result
from runherd.api.core import CONFIG_MAPS, ConfigMap
from runherd.kube.config import ClientConfig
from runherd.kube.connection import connect
from runherd.kube.limiter import WriteLimiter
from runherd.kube.patch import MergePatch
from runherd.kube.rest import RequestObserver
from runherd.runtime.metrics import Metrics
from runherd.wire.clock import SystemClock

ROUNDS = 21
WRITES = 1024
CONCURRENCY = (1, 64)
TOKEN = "t" * 900
OBJECT: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "runner", "namespace": "runners", "annotations": {str(n): "x" * 40 for n in range(36)}},
}

#: Makes one write, the one of the given number.
Write = Callable[[int], Awaitable[object]]


def run() -> Result:
    """Write 1.9 KB by POST and PATCH in turn to a server in another process, which answers with the same."""
    samples: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
    with dummy_server() as port:
        for _ in range(ROUNDS):
            # In turn, and compared within each round, so that whatever else the machine does hits all alike.
            for loop, factory in LOOPS.items():
                for concurrency in CONCURRENCY:
                    for name, connected in CLIENTS.items():
                        with asyncio.Runner(loop_factory=factory) as runner:
                            sample = runner.run(_measure(connected, f"http://127.0.0.1:{port}", concurrency))
                        samples.setdefault((name, loop, concurrency), []).append(sample)
    size = len(msgspec.json.encode(OBJECT))
    ratios = {
        (name, loop, concurrency): median(
            cpu / bare for (_, cpu), (_, bare) in zip(runs, samples["aiohttp", loop, concurrency], strict=True)
        )
        for (name, loop, concurrency), runs in samples.items()
    }
    return Result(
        title=f"Typed writes of {size:,} bytes, encoded and decoded: medians of {ROUNDS} runs of {WRITES:,}",
        rows=[
            {
                "loop": loop,
                "concurrency": str(concurrency),
                "client": name,
                "writes/s": WRITES / median(wall for wall, _ in runs),
                "CPU µs/write": median(cpu for _, cpu in runs) / WRITES * 1e6,
                "x aiohttp": ratios[name, loop, concurrency],
            }
            for (name, loop, concurrency), runs in sorted(samples.items(), key=lambda item: item[0][1:])
        ],
        notes="all encode and decode with msgspec; runherd.kube also authenticates, limits, and names errors",
        figures={
            f"CPU per write, x bare aiohttp, {loop}, concurrency {concurrency}": ratio
            for (name, loop, concurrency), ratio in ratios.items()
            if name == "runherd.kube"
        },
    )


async def _measure(
    connected: Callable[[str], AbstractAsyncContextManager[Write]], url: str, concurrency: int
) -> tuple[float, float]:
    """Seconds on the clock, and of CPU in this process."""
    async with connected(url) as write:

        async def writer(count: int) -> None:
            for number in range(count):
                await write(number)

        async def writers(count: int) -> None:
            await asyncio.gather(*(writer(count // concurrency) for _ in range(concurrency)))

        await writers(2 * concurrency)
        wall, cpu = time.perf_counter(), time.process_time()
        await writers(WRITES)
        return time.perf_counter() - wall, time.process_time() - cpu


@asynccontextmanager
async def _aiohttp(url: str) -> AsyncIterator[Write]:
    encode = msgspec.json.Encoder().encode
    decode = msgspec.json.Decoder(ConfigMap).decode
    collection = f"{url}/api/v1/namespaces/runners/configmaps"
    base = {"Accept": "application/json", "User-Agent": "bench", "Authorization": f"Bearer {TOKEN}"}
    kinds = [
        ("POST", collection, {**base, "Content-Type": "application/json"}),
        ("PATCH", f"{collection}/runner", {**base, "Content-Type": "application/merge-patch+json"}),
    ]
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:

        async def write(number: int) -> ConfigMap:
            method, target, headers = kinds[number % 2]
            async with session.request(method, target, data=encode(OBJECT), headers=headers) as response:
                return decode(await response.read())

        yield write


@asynccontextmanager
async def _kube(url: str, observer: RequestObserver | None = None) -> AsyncIterator[Write]:
    client = connect(
        ClientConfig(server=url, token=TOKEN),
        limiter=WriteLimiter(max_in_flight=128),
        clock=SystemClock(),
        random=Random(0),
        user_agent="bench",
        observer=observer,
    )

    async def write(number: int) -> ConfigMap:
        if number % 2:
            return await client.patch(CONFIG_MAPS, "runner", "runners", patch=MergePatch(OBJECT), owner="a")
        return await client.create(CONFIG_MAPS, OBJECT, "runners", owner="a")

    yield write
    await client.close()


CLIENTS: dict[str, Callable[[str], AbstractAsyncContextManager[Write]]] = {
    "aiohttp": _aiohttp,
    "runherd.kube": _kube,
    "runherd.kube, with metrics": lambda url: _kube(url, Metrics().rest_client()),
}
