from __future__ import annotations

import asyncio

import pytest

from runherd.wire.clock import EventLoopClock
from tests.support.virtual_time import StalledError, VirtualTimeLoop, run_in_virtual_time


async def now() -> float:
    return asyncio.get_running_loop().time()


def test_time_starts_at_zero_and_jumps() -> None:
    async def main() -> list[float]:
        times = [await now()]
        for seconds in (0.0, 0.001, 3600.0, 86400.0 * 365):
            await asyncio.sleep(seconds)
            times.append(await now())
        return times

    assert run_in_virtual_time(main()) == pytest.approx([0, 0, 0.001, 3600.001, 31539600.001])


def test_timers_fire_in_their_order_whenever_they_were_set() -> None:
    async def main() -> list[tuple[str, float]]:
        fired: list[tuple[str, float]] = []

        async def after(seconds: float, name: str) -> None:
            await asyncio.sleep(seconds)
            fired.append((name, await now()))

        await asyncio.gather(after(3, "c"), after(1, "a"), after(2, "b"))
        return fired

    assert run_in_virtual_time(main()) == [("a", 1), ("b", 2), ("c", 3)]


def test_timeouts_are_exact() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(12.5):
                await asyncio.sleep(13)
        return await now()

    assert run_in_virtual_time(main()) == 12.5


def schedule(seed: int | None) -> list[int]:
    async def main() -> list[int]:
        order: list[int] = []

        async def worker(number: int) -> None:
            for _ in range(3):
                await asyncio.sleep(0)
                order.append(number)

        await asyncio.gather(*map(worker, range(5)))
        return order

    return run_in_virtual_time(main(), seed)


def test_a_seed_is_a_schedule() -> None:
    schedules = {seed: schedule(seed) for seed in range(20)}
    assert {seed: schedule(seed) for seed in range(20)} == schedules
    assert len({tuple(order) for order in schedules.values()}) > 10
    assert schedule(None) == [0, 1, 2, 3, 4] * 3


def test_a_stall_is_an_error() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(StalledError, match="all tasks wait"):
        run_in_virtual_time(main())


def test_there_are_no_threads() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="virtual time has none"):
            await asyncio.to_thread(print)

    run_in_virtual_time(main())


def test_what_is_left_running_is_cancelled() -> None:
    cancelled = []

    async def left() -> None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            cancelled.append(await now())
            raise

    async def main() -> None:
        main.task = asyncio.create_task(left())  # type: ignore[attr-defined]  # keeps it from being collected
        await asyncio.sleep(1)

    run_in_virtual_time(main())
    assert cancelled == [1]


def test_the_wall_clock_moves_along() -> None:
    async def main() -> float:
        clock = EventLoopClock()
        before = clock.now()
        await asyncio.sleep(3600)
        return (clock.now() - before).total_seconds()

    assert run_in_virtual_time(main()) == 3600


def test_the_loop_may_be_used_bare() -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        assert runner.run(now()) == 0
