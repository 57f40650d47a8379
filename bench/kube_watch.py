"""How fast watch events are read and decoded."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from random import Random
from statistics import median

from bench._loops import LOOPS
from bench._result import Result
from bench._watch_server import pod_events, watch_server
from runherd.api.core import PODS, Pod
from runherd.kube.config import ClientConfig
from runherd.kube.connection import connect
from runherd.kube.watch import read_events
from runherd.wire.clock import SystemClock

ROUNDS = 7
EVENTS = 10_000
_PIECE = 2**16


def run() -> Result:
    """Read 10,000 events of a pod and keep each object, from memory and from a server in another process."""
    rows: list[dict[str, str | float]] = []
    body = pod_events(EVENTS)
    figures = {}
    with watch_server(EVENTS) as port:
        for loop, factory in LOOPS.items():
            for source in ("memory", "network"):
                samples = []
                for _ in range(ROUNDS):
                    with asyncio.Runner(loop_factory=factory) as runner:
                        samples.append(runner.run(_from_memory(body) if source == "memory" else _from_network(port)))
                wall, cpu = median(wall for wall, _ in samples), median(cpu for _, cpu in samples)
                rows.append(
                    {
                        "read by": "runherd.kube",
                        "loop": loop,
                        "from": source,
                        "events/s": EVENTS / wall,
                        "CPU µs/event": cpu / EVENTS * 1e6,
                    }
                )
                figures[f"watch events a second, {loop}, from {source}"] = EVENTS / wall
    plain = median(_plain(body) for _ in range(3))
    rows.append(
        {"read by": "json.loads", "from": "memory", "events/s": EVENTS / plain, "CPU µs/event": plain / EVENTS * 1e6}
    )
    return Result(
        title=f"{EVENTS:,} watch events of {len(body) / EVENTS:,.0f} bytes, decoded into the fields we read and kept",
        rows=rows,
        notes=f"medians of {ROUNDS} runs",
        figures=figures,
    )


async def _from_memory(body: bytes) -> tuple[float, float]:
    """Seconds on the clock, and of CPU in this process."""
    pieces = [body[start : start + _PIECE] for start in range(0, len(body), _PIECE)]

    async def chunks() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    wall, cpu = time.perf_counter(), time.process_time()
    await _keep(read_events(chunks(), Pod, "watch pods", 150.0))
    return time.perf_counter() - wall, time.process_time() - cpu


async def _from_network(port: int) -> tuple[float, float]:
    config = ClientConfig(server=f"http://127.0.0.1:{port}")
    client = connect(config, limiter=None, clock=SystemClock(), random=Random(0))
    wall, cpu = time.perf_counter(), time.process_time()
    async with client.watch(PODS) as events:
        await _keep(events)
    taken = time.perf_counter() - wall, time.process_time() - cpu
    await client.close()
    return taken


async def _keep(events: AsyncIterator[object]) -> None:
    kept = [event async for event in events]
    if len(kept) != EVENTS:
        raise RuntimeError(f"{len(kept)} events came instead of {EVENTS}")


def _plain(body: bytes) -> float:
    """Seconds for the standard library's decoder, for comparison."""
    start = time.process_time()
    kept = [json.loads(line) for line in body.split(b"\n") if line]
    del kept
    return time.process_time() - start
