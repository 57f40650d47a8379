from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from runherd.wire.clock import EventLoopClock, SystemClock
from tests.support.virtual_time import run_in_virtual_time


def test_the_system_clock_is_aware_and_in_utc() -> None:
    before = datetime.now(UTC)
    now = SystemClock().now()
    assert before <= now <= datetime.now(UTC)
    assert now.utcoffset() == timedelta(0)


def test_the_clock_of_the_loop_moves_with_it() -> None:
    async def main() -> None:
        clock = EventLoopClock()
        start = clock.now()
        assert start == datetime(2026, 1, 1, tzinfo=UTC)
        await asyncio.sleep(90)
        assert clock.now() - start == timedelta(seconds=90)

    run_in_virtual_time(main())


def test_the_wall_clock_may_jump_while_the_loop_goes_on() -> None:
    async def main() -> None:
        start = datetime(2030, 5, 6, tzinfo=UTC)
        clock = EventLoopClock(start)
        clock.offset = -timedelta(hours=1)
        assert clock.now() == start - timedelta(hours=1)
        assert asyncio.get_running_loop().time() == 0

    run_in_virtual_time(main())
