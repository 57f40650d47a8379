"""Deadlines of the state machine, kept apart from any event loop so that tests can step through them by hand."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Timer", "Timers"]


@dataclass(order=True, slots=True)
class Timer:
    """One pending call. Comparable by time, then by the order in which timers were set."""

    at: float
    sequence: int
    callback: Callable[[], None] | None = field(compare=False)
    owner: Timers = field(compare=False, repr=False)

    def cancel(self) -> None:
        """Forget the call. Harmless when it was made or cancelled already."""
        if self.callback is not None:
            self.callback = None
            self.owner.cancelled += 1


class Timers:
    """Calls back at given times, in seconds of the injected ``time`` function (an event loop's ``time``, usually)."""

    def __init__(self, time: Callable[[], float]) -> None:
        self.time = time
        #: Told when a timer is set; whoever drives the timers may want to be woken for it.
        self.on_set: Callable[[Timer], None] | None = None
        #: Cancelled timers that still take up room.
        self.cancelled = 0
        self._heap: list[Timer] = []
        self._sequence = itertools.count()

    def __len__(self) -> int:
        """How many calls are pending."""
        return len(self._heap) - self.cancelled

    def after(self, delay: float, callback: Callable[[], None]) -> Timer:
        """Call ``callback`` ``delay`` seconds from now, when :meth:`run_due` is next called then or later."""
        # Most timers are long and cancelled early, so dropping them only when their time comes would hold on to much.
        if self.cancelled > 1000 and self.cancelled > len(self._heap) // 2:
            self._heap = [timer for timer in self._heap if timer.callback is not None]
            heapq.heapify(self._heap)
            self.cancelled = 0
        timer = Timer(self.time() + delay, next(self._sequence), callback, self)
        heapq.heappush(self._heap, timer)
        if self.on_set is not None:
            self.on_set(timer)
        return timer

    def earliest(self) -> Timer | None:
        """The pending timer that is due first; ``None`` when there is none."""
        while self._heap and self._heap[0].callback is None:
            heapq.heappop(self._heap)
            self.cancelled -= 1
        return self._heap[0] if self._heap else None

    def run_due(self) -> None:
        """Make all calls whose time has come, in order."""
        now = self.time()
        while (timer := self.earliest()) is not None and timer.at <= now:
            heapq.heappop(self._heap)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()
