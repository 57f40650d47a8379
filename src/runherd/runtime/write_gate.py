"""Keeps a process that is no longer the leader from writing, whatever its code still means to do.

Two things are needed. The gate stops everything that is about to be sent. But a process can be stopped at any
instruction, also behind the gate and before the socket, and would go on just there when it is continued. A busy manager
spends a good part of its time there. Therefore a process that is continued after its lease ran out ends at once, before
it executes anything else (:func:`end_if_continued_too_late`).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from types import FrameType

from runherd.wire.clock import Clock
from runherd.wire.transport import DEFAULT_TIMEOUTS, Request, Response, ResponseStream, Timeouts, Transport

__all__ = ["GatedTransport", "LeadershipLostError", "WriteGate", "end_if_continued_too_late"]

_READS = frozenset({"GET", "HEAD", "OPTIONS"})


class LeadershipLostError(Exception):
    """This process does not hold the lease (any more), so it must not write."""


class WriteGate:
    """Open while our lease is certain to hold; closed before that, and for good once it ran out or was given up.

    Another process takes over when the lease has not been renewed for its duration, seen by *its* clock. We count from
    before we sent the renewal, so ours runs out first. Two clocks are asked, and the one that is further decides: the
    loop's goes on while the process is stopped (SIGSTOP, a frozen container), and can't be set; the wall clock goes on
    while the whole machine sleeps. So a process that wakes after its lease ran out finds the gate shut before it has
    heard of anything.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: tuple[float, datetime] | None = None
        self._closed = False

    def now(self) -> tuple[float, datetime]:
        """This moment on both clocks, for :meth:`hold`. To be taken before the renewal is sent."""
        return asyncio.get_running_loop().time(), self._clock.now()

    def hold(self, since: tuple[float, datetime], duration: float) -> None:
        """The lease holds for ``duration`` seconds from ``since``. Has no effect on a gate that is shut for good."""
        self._until = (since[0] + duration, since[1] + timedelta(seconds=duration))

    def close(self) -> None:
        """Shut the gate for good."""
        self._closed = True

    def is_overdue(self) -> bool:
        """Whether the lease ran out, and nobody has closed the gate for it yet."""
        return not self._closed and self._until is not None and self.remaining() <= 0.0

    def remaining(self) -> float:
        """How long the gate is certain to stay open, in seconds; 0 when it is shut."""
        if self._closed or self._until is None:
            return 0.0
        monotonic, wall = self.now()
        remaining = min(self._until[0] - monotonic, (self._until[1] - wall).total_seconds())
        if remaining <= 0.0:
            self._closed = True
            return 0.0
        return remaining


def end_if_continued_too_late(gate: WriteGate) -> None:
    """Have this process end at once, with status 1, if it is continued (SIGCONT) after its lease ran out.

    The interpreter runs the handler before the next few instructions. What it can't help against are pauses that the
    process is not told of, such as those of a virtual machine: then a request may still be sent that had passed the
    gate and had not reached the socket, some hundred microseconds of work. To be called in the main thread, while the
    event loop runs.
    """

    def on_continue(_: int, __: FrameType | None) -> None:
        if gate.is_overdue():
            # Not by way of logging: what was interrupted may be in the middle of just that.
            os.write(sys.stderr.fileno(), b"continued after the leader's lease ran out; exiting\n")
            os._exit(1)

    signal.signal(signal.SIGCONT, on_continue)


class GatedTransport:
    """A :class:`~runherd.wire.transport.Transport` that lets no request but reads pass unless ``gate`` is open.

    It stands behind every queue and every repeat, so that a request is judged when it is about to be sent. It gets no
    more time than the gate is sure to stay open: one that was stopped half-way, while it was still connecting, is
    dropped when the process wakes, instead of being sent then.
    """

    def __init__(self, transport: Transport, gate: WriteGate) -> None:
        self._transport = transport
        self._gate = gate

    async def request(self, request: Request, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> Response:
        """Send ``request``. Raises :class:`LeadershipLostError` for a write while the gate is shut, or shuts."""
        if request.method in _READS:
            return await self._transport.request(request, timeouts)
        try:
            async with asyncio.timeout(self._admit(request)):
                return await self._transport.request(request, timeouts)
        except TimeoutError:
            raise LeadershipLostError(f"the lease ran out during a {request.method}; its outcome is unknown") from None

    def stream(
        self, request: Request, timeouts: Timeouts = DEFAULT_TIMEOUTS
    ) -> AbstractAsyncContextManager[ResponseStream]:
        """Send ``request``. Raises :class:`LeadershipLostError` for a write while the gate is shut."""
        if request.method not in _READS:
            self._admit(request)
        return self._transport.stream(request, timeouts)

    async def close(self) -> None:
        """Close the transport behind the gate."""
        await self._transport.close()

    def _admit(self, request: Request) -> float:
        """How long ``request`` may take, in seconds."""
        remaining = self._gate.remaining()
        if remaining <= 0.0:
            raise LeadershipLostError(f"a {request.method} was not sent: this process does not hold the leader's lease")
        return remaining
