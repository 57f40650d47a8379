"""The wall clock, injected: what timestamps in objects are made from and compared with.

Durations and deadlines never use it: they come from the event loop (``loop.time()``), which no time server moves.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Protocol

__all__ = ["Clock", "EventLoopClock", "SystemClock"]


class Clock(Protocol):
    """Tells the date and time."""

    def now(self) -> datetime:
        """The present moment, in UTC, aware."""
        ...


class SystemClock:
    """The machine's own wall clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)


class EventLoopClock:
    """A wall clock that moves with the running event loop, for tests and simulations in virtual time."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC), offset: timedelta = timedelta(0)) -> None:
        self._start = start
        #: Added to what :meth:`now` tells; change it to let the wall clock jump while the loop's time goes on.
        self.offset = offset

    def now(self) -> datetime:
        return self._start + timedelta(seconds=asyncio.get_running_loop().time()) + self.offset
