"""One queue that all writes to an API server pass.

It bounds how many are under way, lets owners (for example scale sets) take turns, lets what matters most go first, and
keeps an optional ceiling in requests a second. A thousand creates of one scale set therefore delay another's first one
by at most the writes that are already under way, and a ramp is not slowed by its own bookkeeping.
"""

from __future__ import annotations

import asyncio
from collections import deque
from enum import IntEnum

__all__ = ["Priority", "WriteLimiter"]


class Priority(IntEnum):
    """The order in which waiting writes go; lower goes first."""

    CREATE = 0
    DELETE = 1
    UPDATE = 2
    STATUS = 3


#: How often in a row a waiting priority may be passed over by higher ones before it gets one turn.
_PATIENCE = 16

#: Seconds; a wait shorter than this is none. Rounding could otherwise ask for waits that no clock can measure.
_CLOCK_RESOLUTION = 1e-9

_Waiter = asyncio.Future[None]


class _Level:
    """The waiting writes of one priority: a line per owner, and the ring in which owners take turns."""

    __slots__ = ("_lines", "_ring", "passed_over")

    def __init__(self) -> None:
        self._lines: dict[str, deque[_Waiter]] = {}
        self._ring: deque[str] = deque()
        self.passed_over = 0

    def add(self, owner: str, waiter: _Waiter) -> None:
        line = self._lines.get(owner)
        if line is None:
            line = self._lines[owner] = deque()
            self._ring.append(owner)
        line.append(waiter)

    def has_waiters(self) -> bool:
        """Whether somebody waits; forgets waiters that were cancelled, as far as they stand in the way."""
        while self._ring:
            line = self._lines[self._ring[0]]
            while line and line[0].done():
                line.popleft()
            if line:
                return True
            del self._lines[self._ring.popleft()]
        return False

    def take(self) -> _Waiter:
        """The next waiter; its owner goes to the end of the ring. Only after :meth:`has_waiters` said yes."""
        owner = self._ring.popleft()
        line = self._lines[owner]
        waiter = line.popleft()
        if line:
            self._ring.append(owner)
        else:
            del self._lines[owner]
        return waiter


class WriteLimiter:
    """Hands out the permission to write.

    At most ``max_in_flight`` permissions are out at once. ``ceiling`` is the highest lasting rate in writes a second
    (``None``: no ceiling), ``burst`` how many may go at once after a pause. Priorities are strict but for one thing:
    whoever was passed over 16 times in a row gets one turn, so that nobody waits for ever.

    All steps take constant time (amortised). Not to be shared between event loops.
    """

    def __init__(self, max_in_flight: int = 32, ceiling: float | None = None, burst: int = 1) -> None:
        if max_in_flight < 1:
            raise ValueError(f"max_in_flight must be at least 1, not {max_in_flight}")
        if ceiling is not None and ceiling <= 0:
            raise ValueError(f"the ceiling must be more than 0 writes a second, not {ceiling}")
        if burst < 1:
            raise ValueError(f"burst must be at least 1, not {burst}")
        self._max_in_flight = max_in_flight
        self._interval = 0.0 if ceiling is None else 1.0 / ceiling
        self._tolerance = self._interval * (burst - 1)
        self._next_due = 0.0
        self._in_flight = 0
        self._waiting = 0
        self._levels = tuple(_Level() for _ in Priority)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def in_flight(self) -> int:
        """How many permissions are out."""
        return self._in_flight

    @property
    def waiting(self) -> int:
        """How many writes wait for their turn."""
        return self._waiting

    async def acquire(self, owner: str = "", priority: Priority = Priority.UPDATE) -> None:
        """Wait for the permission to make one write; give it back with :meth:`release`.

        A cancelled wait takes no permission with it.
        """
        if self._waiting == 0 and self._in_flight < self._max_in_flight:
            loop = asyncio.get_running_loop()
            if self._interval == 0.0 or self._delay(loop.time()) <= 0.0:
                self._count(loop)
                return
        waiter: _Waiter = asyncio.get_running_loop().create_future()
        self._levels[priority].add(owner, waiter)
        self._waiting += 1
        self._dispatch()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                # The permission was given in the very moment of the cancellation: somebody else can use it.
                self.release()
            else:
                self._waiting -= 1
                waiter.cancel()
            raise

    def release(self) -> None:
        """Give a permission back."""
        if self._in_flight == 0:
            raise RuntimeError("more permissions released than acquired")
        self._in_flight -= 1
        self._dispatch()

    def _dispatch(self) -> None:
        """Give permissions to those whose turn it is, as many as there are."""
        if self._waiting == 0 or self._in_flight >= self._max_in_flight:
            return
        loop = asyncio.get_running_loop()
        while self._waiting > 0 and self._in_flight < self._max_in_flight:
            if self._interval > 0.0 and (delay := self._delay(loop.time())) > 0.0:
                if self._timer is None:
                    self._timer = loop.call_later(delay, self._on_timer)
                return
            level = self._next_level()
            if level is None:
                return
            self._waiting -= 1
            self._count(loop)
            level.take().set_result(None)

    def _on_timer(self) -> None:
        self._timer = None
        self._dispatch()

    def _next_level(self) -> _Level | None:
        """The level whose turn it is: the highest with waiters, unless a lower one was passed over too often."""
        chosen: _Level | None = None
        for level in self._levels:
            if not level.has_waiters():
                level.passed_over = 0
            elif chosen is None:
                chosen = level
            elif level.passed_over >= _PATIENCE:
                chosen = level
                break
            else:
                level.passed_over += 1
        if chosen is not None:
            chosen.passed_over = 0
        return chosen

    # The ceiling is the generic cell rate algorithm: one number says when the next write would be due if all came
    # evenly spaced, and a burst may run ahead of it by a fixed tolerance.

    def _delay(self, now: float) -> float:
        """Seconds until the ceiling allows one more write."""
        delay = self._next_due - self._tolerance - now
        return delay if delay > _CLOCK_RESOLUTION else 0.0

    def _count(self, loop: asyncio.AbstractEventLoop) -> None:
        self._in_flight += 1
        if self._interval > 0.0:
            self._next_due = max(self._next_due, loop.time()) + self._interval
