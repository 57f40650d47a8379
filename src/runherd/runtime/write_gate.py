"""Keeps a process that is no longer the leader from writing, whatever its code still means to do."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta

from runherd.wire.clock import Clock
from runherd.wire.transport import DEFAULT_TIMEOUTS, Request, Response, ResponseStream, Timeouts, Transport

__all__ = ["GatedTransport", "LeadershipLostError", "WriteGate"]

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
