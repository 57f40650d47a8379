"""What the client of the Actions service reaches against a service that takes 100 ms for every call."""

from __future__ import annotations

import asyncio
import time

from bench._loops import LOOPS
from bench._result import Result
from bench._slow_service import LATENCY, slow_service
from runherd.actions import ActionsClient, PersonalAccessToken, UserAgent, network_transport
from runherd.wire.clock import SystemClock

SECONDS = 10.0
#: The login and the first calls aren't measured.
WARM_UP = 2.0
IN_FLIGHT = 16
SCALE_SETS = 8
#: Runners at a time: more than there are places, as in a ramp.
RUNNERS = 64
POSSIBLE = IN_FLIGHT / LATENCY / 2


def run() -> Result:
    """Register and remove runners of several scale sets for a while."""
    rows: list[dict[str, str | float]] = []
    figures = {}
    with slow_service() as url:
        for loop, factory in LOOPS.items():
            with asyncio.Runner(loop_factory=factory) as runner:
                pairs, cpu = runner.run(_measure(f"{url}/octo-org"))
            rows.append(
                {
                    "loop": loop,
                    "pairs/s": pairs,
                    "% of the possible": pairs / POSSIBLE * 100,
                    "% of a core": cpu * 100,
                    "CPU µs/call": cpu / pairs / 2 * 1e6,
                }
            )
            figures[f"% of the possible pairs, {loop}"] = pairs / POSSIBLE * 100
            figures[f"% of a core, {loop}"] = cpu * 100
    return Result(
        title=f"generate-JIT plus remove pairs, {LATENCY * 1000:.0f} ms a call, {IN_FLIGHT} in flight",
        rows=rows,
        notes=f"possible: {POSSIBLE:.0f} pairs/s; CPU is this process's, the service has its own",
        figures=figures,
    )


async def _measure(url: str) -> tuple[float, float]:
    """Pairs a second, and seconds of CPU a second."""
    client = ActionsClient.connect(
        url,
        PersonalAccessToken("a-token"),
        transport=network_transport(),
        user_agent=UserAgent("bench"),
        clock=SystemClock(),
        max_calls=IN_FLIGHT,
    )
    calls = 0
    loop = asyncio.get_running_loop()
    end = loop.time() + WARM_UP + SECONDS

    async def work(number: int) -> None:
        nonlocal calls
        scale_set = 1 + number % SCALE_SETS
        view = client.for_scale_set(scale_set)
        while loop.time() < end:
            config = await view.generate_jit_runner_config(scale_set, f"runner-{number}-{calls}", "_work")
            calls += 1
            await view.remove_runner(config.runner.id)
            calls += 1

    workers = [asyncio.ensure_future(work(number)) for number in range(RUNNERS)]
    await asyncio.sleep(WARM_UP)
    wall, cpu, before = loop.time(), time.process_time(), calls
    await asyncio.sleep(SECONDS)
    wall, cpu, made = loop.time() - wall, time.process_time() - cpu, calls - before
    await asyncio.gather(*workers)
    await client.close()
    return made / 2 / wall, cpu / wall
