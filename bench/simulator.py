"""What the pretend GitHub Actions service costs: calls over HTTP, idle sessions, and the start of a runner program."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import SystemRandom
from statistics import median

from bench._loops import LOOPS
from bench._result import Result
from bench._simulator_load import TOKEN
from runherd.simulator.simulator import Simulator
from runherd.wire.clock import SystemClock
from runherd.wire.server import Server

ROUNDS = 5
PAIRS = 4000
CONNECTIONS = 16
SESSIONS = 200
# Long enough for each session's poll to be answered and sent again once, as it is every 50 s.
IDLE_SECONDS = 55.0
STARTS_MEASURED = 20
_PROGRAM = "from runherd.simulator.runner import main; main(['--version'])"
STARTS = {
    "until it connects": _PROGRAM,
    "with all that it loads while it waits for its job": f"import runherd.simulator.runner_steps; {_PROGRAM}",
}


def run() -> Result:
    """Generate and remove JIT configurations from another process; then leave 200 sessions alone."""
    rows: list[dict[str, str | float]] = []
    figures: dict[str, float] = {}
    for loop, factory in LOOPS.items():
        samples = []
        for _ in range(ROUNDS):
            with asyncio.Runner(loop_factory=factory) as runner:
                samples.append(runner.run(_calls()))
        wall, cpu = (median(values) for values in zip(*samples, strict=True))
        figures[f"calls/s over HTTP, {loop}"] = 2 * PAIRS / wall
        rows.append({"what": f"a call, {loop}", "per second": 2 * PAIRS / wall, "CPU µs": cpu / (2 * PAIRS) * 1e6})
    with asyncio.Runner(loop_factory=next(iter(LOOPS.values()))) as runner:
        share = runner.run(_idle())
    figures[f"{SESSIONS} idle sessions, % of a core"] = share * 100
    rows.append({"what": f"{SESSIONS} idle sessions, a second of them", "CPU µs": share * 1e6})
    for what, code in STARTS.items():
        seconds = _start(code)
        figures[f"start of a runner program {what}, CPU ms"] = seconds * 1e3
        rows.append({"what": f"start of a runner program {what}", "CPU µs": seconds * 1e6})
    return Result(
        title="The simulator",
        rows=rows,
        figures=figures,
        notes=f"Calls: medians of {ROUNDS} runs of {PAIRS:,} pairs over {CONNECTIONS} connections.",
    )


@asynccontextmanager
async def _served() -> AsyncIterator[Server]:
    service = Simulator(clock=SystemClock(), random=SystemRandom(), personal_tokens=[TOKEN])
    server = Server(service)
    await server.start()
    try:
        yield server
    finally:
        await server.close()


async def _calls() -> tuple[float, float]:
    """Seconds on the clock, and of CPU in this process."""
    async with _served() as server:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench._simulator_load", "pairs", server.url, str(CONNECTIONS), str(PAIRS)),
            stdout=subprocess.PIPE,
        )
        cpu = time.process_time()
        output, _ = await process.communicate()
        return float(output), time.process_time() - cpu


async def _idle() -> float:
    """The share of a core."""
    async with _served() as server:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench._simulator_load", "sessions", server.url, str(SESSIONS)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        await process.stdout.readline()
        wall, cpu = time.perf_counter(), time.process_time()
        await asyncio.sleep(IDLE_SECONDS)
        share = (time.process_time() - cpu) / (time.perf_counter() - wall)
        await process.communicate(b"")
        return share


def _start(code: str) -> float:
    """Seconds of CPU that an interpreter takes to start and to run ``code``: the median."""
    samples = []
    for _ in range(STARTS_MEASURED):
        before = _cpu_of_children()
        subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=True)
        samples.append(_cpu_of_children() - before)
    return median(samples)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
