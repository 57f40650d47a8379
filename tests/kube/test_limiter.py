from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runherd.kube.limiter import Priority, WriteLimiter
from tests.support.virtual_time import run_in_virtual_time


async def writes(
    limiter: WriteLimiter,
    order: list[str],
    label: str,
    *,
    owner: str = "",
    priority: Priority = Priority.UPDATE,
    seconds: float = 1.0,
) -> None:
    await limiter.acquire(owner, priority)
    try:
        order.append(label)
        await asyncio.sleep(seconds)
    finally:
        limiter.release()


async def settle() -> None:
    """Let every task run until it waits."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_no_more_are_under_way_than_allowed() -> None:
    async def main() -> None:
        limiter = WriteLimiter(max_in_flight=3)
        order: list[str] = []
        tasks = [asyncio.create_task(writes(limiter, order, str(n))) for n in range(10)]
        await settle()
        assert (limiter.in_flight, limiter.waiting, len(order)) == (3, 7, 3)
        await asyncio.gather(*tasks)
        assert (limiter.in_flight, limiter.waiting) == (0, 0)
        assert asyncio.get_running_loop().time() == pytest.approx(4.0)

    run_in_virtual_time(main())


def test_owners_take_turns() -> None:
    async def main() -> list[str]:
        limiter = WriteLimiter(max_in_flight=1)
        order: list[str] = []
        async with asyncio.TaskGroup() as group:
            for owner, count in (("big", 6), ("small", 2), ("other", 3)):
                for _ in range(count):
                    group.create_task(writes(limiter, order, owner, owner=owner))
        return order

    assert run_in_virtual_time(main()) == [
        *("big", "big", "small", "other", "big", "small", "other", "big", "other", "big", "big")
    ]


def test_higher_priorities_go_first() -> None:
    async def main() -> list[str]:
        limiter = WriteLimiter(max_in_flight=1)
        order: list[str] = []
        async with asyncio.TaskGroup() as group:
            group.create_task(writes(limiter, order, "first"))
            await settle()
            for priority in (Priority.STATUS, Priority.UPDATE, Priority.DELETE, Priority.CREATE):
                group.create_task(writes(limiter, order, priority.name, priority=priority))
        return order

    assert run_in_virtual_time(main()) == ["first", "CREATE", "DELETE", "UPDATE", "STATUS"]


def test_a_status_write_is_not_starved_by_an_endless_ramp() -> None:
    async def main() -> list[str]:
        limiter = WriteLimiter(max_in_flight=1)
        order: list[str] = []
        async with asyncio.TaskGroup() as group:
            for n in range(100):
                group.create_task(writes(limiter, order, "create", owner=f"o{n % 7}", priority=Priority.CREATE))
            group.create_task(writes(limiter, order, "status", owner="o1", priority=Priority.STATUS))
        return order

    order = run_in_virtual_time(main())
    assert order.index("status") == 17  # one was under way, and 16 passed it


def test_a_ceiling_spreads_writes_and_allows_a_burst() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        limiter = WriteLimiter(max_in_flight=100, ceiling=10.0, burst=3)
        times: list[float] = []

        async def write() -> None:
            await limiter.acquire()
            times.append(loop.time())
            limiter.release()

        await asyncio.gather(*(write() for _ in range(6)))
        await asyncio.sleep(60)
        await asyncio.gather(*(write() for _ in range(4)))
        return times

    first, second = (times := run_in_virtual_time(main()))[:6], times[6:]
    assert first == pytest.approx([0, 0, 0, 0.1, 0.2, 0.3])
    assert [time - second[0] for time in second] == pytest.approx([0, 0, 0, 0.1])


def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    async def main() -> None:
        limiter = WriteLimiter(max_in_flight=1)
        order: list[str] = []
        running = asyncio.create_task(writes(limiter, order, "running"))
        await settle()
        waiting = [asyncio.create_task(writes(limiter, order, f"w{n}", owner="a")) for n in range(3)]
        await settle()
        waiting[0].cancel()
        waiting[1].cancel()
        await asyncio.gather(*waiting[:2], return_exceptions=True)
        assert limiter.waiting == 1
        await asyncio.gather(running, waiting[2])
        assert order == ["running", "w2"]
        assert (limiter.in_flight, limiter.waiting) == (0, 0)

    run_in_virtual_time(main())


def test_a_permission_given_in_the_moment_of_cancellation_goes_to_the_next() -> None:
    async def main() -> None:
        limiter = WriteLimiter(max_in_flight=1)
        await limiter.acquire()
        order: list[str] = []
        first = asyncio.create_task(writes(limiter, order, "first"))
        second = asyncio.create_task(writes(limiter, order, "second"))
        await settle()
        limiter.release()  # the permission is on its way to the first ...
        first.cancel()  # ... which is cancelled before it runs again
        await asyncio.gather(first, return_exceptions=True)
        await second
        assert order == ["second"]
        assert (limiter.in_flight, limiter.waiting) == (0, 0)

    run_in_virtual_time(main())


def test_misuse_is_refused() -> None:
    with pytest.raises(RuntimeError, match="more permissions released"):
        WriteLimiter().release()
    makers: list[Callable[[], WriteLimiter]] = [
        lambda: WriteLimiter(max_in_flight=0),
        lambda: WriteLimiter(ceiling=0.0),
        lambda: WriteLimiter(burst=0),
    ]
    for make in makers:
        with pytest.raises(ValueError, match="must be"):
            make()


write_plans = st.lists(
    st.tuples(
        st.floats(0, 5),  # when it comes
        st.sampled_from("abc"),
        st.sampled_from(list(Priority)),
        st.floats(0, 1),  # how long it takes
        st.one_of(st.none(), st.floats(0, 5)),  # after how long it is cancelled
    ),
    max_size=60,
)


@settings(max_examples=100, deadline=None)
@given(
    plans=write_plans,
    max_in_flight=st.integers(1, 4),
    ceiling=st.one_of(st.none(), st.floats(1, 100)),
    burst=st.integers(1, 5),
    seed=st.integers(0, 1000),
)
def test_whatever_comes_the_limits_hold_and_everybody_gets_through(
    plans: list[tuple[float, str, Priority, float, float | None]],
    max_in_flight: int,
    ceiling: float | None,
    burst: int,
    seed: int,
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        limiter = WriteLimiter(max_in_flight, ceiling, burst)
        under_way = 0
        granted: list[float] = []
        outcomes: Counter[str] = Counter()

        async def one(comes: float, owner: str, priority: Priority, takes: float) -> None:
            nonlocal under_way
            await asyncio.sleep(comes)
            await limiter.acquire(owner, priority)
            try:
                under_way += 1
                assert under_way <= max_in_flight
                granted.append(loop.time())
                await asyncio.sleep(takes)
            finally:
                under_way -= 1
                limiter.release()

        tasks = []
        for comes, owner, priority, takes, cancelled_after in plans:
            task = asyncio.create_task(one(comes, owner, priority, takes))
            tasks.append(task)
            if cancelled_after is not None:
                loop.call_later(comes + cancelled_after, task.cancel)
        for task in tasks:
            try:
                await task
                outcomes["done"] += 1
            except asyncio.CancelledError:
                outcomes["cancelled"] += 1
        assert outcomes.total() == len(plans)
        assert (limiter.in_flight, limiter.waiting) == (0, 0)
        if ceiling is not None:
            for first in range(len(granted)):
                for last in range(first, len(granted)):
                    allowed = burst + (granted[last] - granted[first]) * ceiling
                    assert last - first + 1 <= allowed + 1e-3

    run_in_virtual_time(main(), seed)


@settings(max_examples=50, deadline=None)
@given(
    backlog=st.integers(1, 200),
    owners=st.integers(1, 10),
    max_in_flight=st.integers(1, 8),
    seed=st.integers(0, 1000),
)
def test_a_newcomer_waits_for_at_most_one_turn_of_each_other_owner(
    backlog: int, owners: int, max_in_flight: int, seed: int
) -> None:
    async def main() -> None:
        limiter = WriteLimiter(max_in_flight)
        order: list[str] = []
        async with asyncio.TaskGroup() as group:
            for n in range(backlog):
                group.create_task(writes(limiter, order, "old", owner=f"o{n % owners}"))
            await settle()
            before = len(order)
            group.create_task(writes(limiter, order, "new", owner="newcomer"))
        # Those that are let through together run in any order.
        assert order.index("new") < before + owners + max_in_flight

    run_in_virtual_time(main(), seed)
