"""The queue between events and reconciles, with client-go's semantics (``docs/spec/controllers.md 1.1``).

A key stands in it once, however often it is added, and is never worked on by two workers at once: one that is added
while a worker has it is handed out again after that worker is done. So no change is missed and none is done twice.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque

from runherd.runtime.metrics import Metrics
from runherd.runtime.rate_limiter import RateLimiter
from runherd.runtime.request import Request

__all__ = ["ShutDownError", "WorkQueue"]


#: Seconds.
_CLOCK_RESOLUTION = 1e-6


class ShutDownError(Exception):
    """The queue is shut down, and hands out nothing more."""


class WorkQueue:
    """Keys to reconcile, in the order in which they were first added.

    Every key that :meth:`get` hands out must be given back by :meth:`done`. All methods but the two that wait take
    constant time, a delayed add logarithmic. One timer serves all delayed adds. Not to be shared between event loops.
    """

    def __init__(self, name: str, rate_limiter: RateLimiter, metrics: Metrics) -> None:
        self._rate_limiter = rate_limiter
        self._queue: deque[Request] = deque()
        # Keys that are to be worked on, and since when: those in the queue, and those to be queued by done().
        self._dirty: dict[Request, float] = {}
        # Keys that workers have, and since when.
        self._processing: dict[Request, float] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()
        # When a delayed key is due. Entries of the heap that don't agree with it were overtaken, and count for nothing.
        self._due: dict[Request, float] = {}
        self._heap: list[tuple[float, Request]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._shut_down = False
        self._drained: asyncio.Event = asyncio.Event()
        self._metrics = metrics.work_queue(name, self.__len__, self._unfinished_seconds, self._longest_seconds)

    def __len__(self) -> int:
        """How many keys wait to be worked on, delayed ones not counted."""
        return len(self._dirty)

    @property
    def processing(self) -> int:
        """How many keys workers have."""
        return len(self._processing)

    @property
    def delayed(self) -> int:
        """How many keys wait for their time."""
        return len(self._due)

    def add(self, request: Request) -> None:
        """Have ``request`` worked on. Ignored after the shut-down, and when it waits already."""
        if self._shut_down or request in self._dirty:
            return
        self._dirty[request] = asyncio.get_running_loop().time()
        self._metrics.add()
        if request not in self._processing:
            self._enqueue(request)

    def add_after(self, request: Request, delay: float) -> None:
        """Add ``request`` in ``delay`` seconds. Of several delays of a key the one that is over first counts."""
        if self._shut_down:
            return
        self._metrics.retry()
        if delay <= 0:
            self.add(request)
            return
        due = asyncio.get_running_loop().time() + delay
        earlier = self._due.get(request)
        if earlier is None or due < earlier:
            self._due[request] = due
            heapq.heappush(self._heap, (due, request))
            self._set_timer()

    def add_rate_limited(self, request: Request) -> None:
        """Add ``request`` when the rate limiter says so, counting one more failure of it."""
        self.add_after(request, self._rate_limiter.when(request))

    def forget(self, request: Request) -> None:
        """Reset the failures of ``request``."""
        self._rate_limiter.forget(request)

    def requeues(self, request: Request) -> int:
        """How often in a row ``request`` failed."""
        return self._rate_limiter.requeues(request)

    async def get(self) -> Request:
        """The next key to work on, as soon as there is one. Raises :class:`ShutDownError` when there will be none."""
        while not self._queue:
            if self._shut_down:
                raise ShutDownError
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if not waiter.cancelled() and self._queue:
                    # Woken and cancelled in the same moment: the key is for somebody else now.
                    self._wake_one()
                raise
        request = self._queue.popleft()
        now = asyncio.get_running_loop().time()
        self._metrics.queue_duration(now - self._dirty.pop(request))
        self._processing[request] = now
        return request

    def done(self, request: Request) -> None:
        """A worker is done with ``request``, successfully or not."""
        started = self._processing.pop(request)
        self._metrics.work_duration(asyncio.get_running_loop().time() - started)
        if request in self._dirty:
            self._enqueue(request)
        elif self._shut_down and not self._dirty and not self._processing:
            self._drained.set()

    def shut_down(self) -> None:
        """Take nothing more and hand out nothing more; waiting :meth:`get` calls end. Keys that wait are dropped."""
        self._queue.clear()
        self._dirty.clear()
        self._close()

    async def shut_down_with_drain(self) -> None:
        """Take nothing more, hand out what is queued (delayed keys are dropped), and wait until all of it is done."""
        self._close()
        await self._drained.wait()

    def _close(self) -> None:
        self._shut_down = True
        self._due.clear()
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._dirty and not self._processing:
            self._drained.set()
        while self._waiters:
            self._wake_one()

    def _enqueue(self, request: Request) -> None:
        self._queue.append(request)
        self._wake_one()

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _set_timer(self) -> None:
        due = self._heap[0][0]
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(due, self._add_due)

    def _add_due(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        # Loops call a timer early by up to their clock's resolution; what is all but due is not worth another one.
        now = loop.time() + _CLOCK_RESOLUTION
        while self._heap and self._heap[0][0] <= now:
            due, request = heapq.heappop(self._heap)
            if self._due.get(request) == due:
                del self._due[request]
                self.add(request)
        if self._heap:
            self._set_timer()

    def _unfinished_seconds(self) -> float:
        if not self._processing:
            return 0.0
        now = asyncio.get_running_loop().time()
        return sum(now - started for started in self._processing.values())

    def _longest_seconds(self) -> float:
        if not self._processing:
            return 0.0
        # Insertion order is the order of starting times.
        return asyncio.get_running_loop().time() - next(iter(self._processing.values()))
