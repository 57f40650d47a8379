"""Our own limits: how many calls are under way at once, and how many runners are registered in five minutes.

Both let flows (scale sets) take turns, so that a thousand waiting calls of one delay another's first by one turn only.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from runherd.actions.config_url import ConfigURL

__all__ = ["CallLimiter", "FairQueue", "RegistrationLimit", "RegistrationLimits", "TurnTooLateError"]

log = logging.getLogger(__name__)

#: GitHub's limit on registrations of one repository, organization or enterprise: so many in so many seconds.
REGISTRATIONS = 1500
REGISTRATION_SECONDS = 300.0


class FairQueue:
    """Callers who wait for a turn: first in, first out within a flow, and the flows take turns."""

    def __init__(self, give_back: Callable[[], None]) -> None:
        """``give_back`` is called for a turn whose taker was cancelled in the moment that it came."""
        self._give_back = give_back
        self._flows: dict[object, deque[asyncio.Future[None]]] = {}
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    async def wait(self, flow: object) -> None:
        """Wait for a turn."""
        turn = asyncio.get_running_loop().create_future()
        self._flows.setdefault(flow, deque()).append(turn)
        self._waiting += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_back()
            else:
                self._forget(flow, turn)
            raise

    def next(self) -> bool:
        """Give the next in line a turn; ``False`` when nobody waits."""
        if not self._flows:
            return False
        # A dict keeps its order: the first flow has its turn, and goes to the end if it wants more.
        flow = next(iter(self._flows))
        turns = self._flows.pop(flow)
        turns.popleft().set_result(None)
        self._waiting -= 1
        if turns:
            self._flows[flow] = turns
        return True

    def _forget(self, flow: object, turn: asyncio.Future[None]) -> None:
        turns = self._flows[flow]
        turns.remove(turn)
        self._waiting -= 1
        if not turns:
            del self._flows[flow]


class CallLimiter:
    """At most ``limit`` calls at once."""

    def __init__(self, limit: int = 16) -> None:
        if limit < 1:
            raise ValueError(f"at least one call must be allowed, not {limit}")
        self._free = limit
        self._queue = FairQueue(self._release)

    @property
    def waiting(self) -> int:
        """How many calls wait for their turn."""
        return len(self._queue)

    @asynccontextmanager
    async def slot(self, flow: object) -> AsyncIterator[None]:
        """Inside, the call may be made."""
        if self._free > 0:
            self._free -= 1
        else:
            await self._queue.wait(flow)
        try:
            yield
        finally:
            self._release()

    def _release(self) -> None:
        if not self._queue.next():
            self._free += 1


class TurnTooLateError(Exception):
    """The turn would come later than the caller can wait: about ``seconds`` from now."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the next turn comes in {seconds:.0f} s")
        self.seconds = seconds


class RegistrationLimit:
    """At most ``limit`` registrations in any window of ``seconds``.

    A registration counts from the moment that it is allowed until ``seconds`` after its answer, which covers the
    moment at which the service counted it, wherever in between that was.
    """

    def __init__(self, owner: str, limit: int = REGISTRATIONS, seconds: float = REGISTRATION_SECONDS) -> None:
        self.owner = owner
        self._limit = limit
        self._seconds = seconds
        self._in_flight = 0
        self._expiries: deque[float] = deque()
        self._queue = FairQueue(self._give_back)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """How many registrations wait."""
        return len(self._queue)

    @property
    def used(self) -> int:
        """How many registrations count now."""
        self._expire()
        return self._in_flight + len(self._expiries)

    @property
    def resumes_in(self) -> float:
        """Seconds until another registration is allowed; 0 when one is."""
        if self.used < self._limit or not self._expiries:
            return 0.0
        return self._expiries[0] - asyncio.get_running_loop().time()

    async def acquire(self, flow: object, patience: float | None = None) -> None:
        """Wait until one runner may be registered; call :meth:`release` when that is done.

        Waits for as long as the limit wants, but not for more than ``patience`` seconds: then, or as soon as that is
        foreseeable, raises :class:`TurnTooLateError`.
        """
        if self.used < self._limit and not self._queue:
            self._in_flight += 1
        else:
            await self._wait(flow, patience)

    def release(self, *, counts: bool) -> None:
        """The registration is over. It counts unless the service has certainly not seen it."""
        if counts:
            self._expiries.append(asyncio.get_running_loop().time() + self._seconds)
        self._give_back()

    async def _wait(self, flow: object, patience: float | None) -> None:
        expected = self._expected_wait()
        if patience is not None and expected > patience:
            raise TurnTooLateError(expected)
        if not self._queue:
            log.warning(
                "%d runners of %s were registered within %.0f s, as many as GitHub allows: "
                "further ones wait, the first for about %.0f s",
                self._limit,
                self.owner,
                self._seconds,
                expected,
            )
        try:
            async with asyncio.timeout(patience):
                self._arm()
                await self._queue.wait(flow)
        except TimeoutError:
            raise TurnTooLateError(self._expected_wait()) from None

    def _expected_wait(self) -> float:
        """Seconds until whoever comes now has a turn, if nobody gives one up. Not more than the window."""
        position = len(self._queue)
        if position >= len(self._expiries):
            return self._seconds if self._expiries else 0.0
        return max(0.0, self._expiries[position] - asyncio.get_running_loop().time())

    def _give_back(self) -> None:
        self._in_flight -= 1
        self._dispatch()

    def _dispatch(self) -> None:
        while self.used < self._limit and self._queue.next():
            self._in_flight += 1
        if self._queue:
            self._arm()

    def _arm(self) -> None:
        """See to it that the next expiry lets somebody through."""
        if self._timer is None and self._expiries:
            self._timer = asyncio.get_running_loop().call_at(self._expiries[0], self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._queue:
            self._dispatch()

    def _expire(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._expiries and self._expiries[0] <= now:
            self._expiries.popleft()


class RegistrationLimits:
    """The registration limit of every owner that GitHub counts for, shared by all clients of one process."""

    def __init__(self, limit: int = REGISTRATIONS, seconds: float = REGISTRATION_SECONDS) -> None:
        self._limit = limit
        self._seconds = seconds
        self._limits: dict[tuple[str, ...], RegistrationLimit] = {}

    def of(self, config: ConfigURL) -> RegistrationLimit | None:
        """The limit that ``config`` falls under; ``None`` on a GitHub Enterprise Server, which has none."""
        if not config.hosted:
            return None
        owner = config.registration_owner
        if owner not in self._limits:
            self._limits[owner] = RegistrationLimit(str(config), self._limit, self._seconds)
        return self._limits[owner]
