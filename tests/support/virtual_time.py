"""An event loop whose clock jumps to the next timer when nothing else is left to do.

An hour of back-off passes in milliseconds, and a seed decides which of the tasks that are ready runs first, so that a
schedule can be replayed exactly. It has no sockets: whatever runs in it speaks through in-process transports.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import random
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, ParamSpec, TypeVar, TypeVarTuple, Unpack

__all__ = ["StalledError", "VirtualTimeLoop", "in_virtual_time", "run_in_virtual_time"]

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class StalledError(Exception):
    """Every task waits, and no timer will wake any of them."""


class _JumpingSelector:
    """Stands where a loop waits for sockets; waits for nothing and moves the clock by the time that it should wait."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise StalledError("all tasks wait, and no timer is set")
        self._loop.advance(timeout)
        return []


class VirtualTimeLoop(asyncio.BaseEventLoop):
    """A loop in virtual time, starting at 0. ``seed=None`` keeps asyncio's first-in-first-out order."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__()
        self._now = 0.0
        self._selector = _JumpingSelector(self)
        self._order = None if seed is None else random.Random(seed)
        # Timers this close together fire together. Must stay above the precision of a float that counts years in
        # seconds, else the loop would never take such a late timer for due.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Move the clock on by ``seconds``."""
        self._now += seconds

    def _run_once(self) -> None:
        if self._order is not None:
            ready = self._ready  # type: ignore[attr-defined]  # asyncio's own queue of ready callbacks
            if len(ready) > 1:
                shuffled = list(ready)
                self._order.shuffle(shuffled)
                ready.clear()
                ready.extend(shuffled)
        super()._run_once()  # type: ignore[misc]  # the hook that every asyncio loop shares; not in the stubs

    def _process_events(self, event_list: list[Any]) -> None:
        """There are no sockets, so there are no events."""

    def _write_to_self(self) -> None:
        """There are no other threads to be woken by."""

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        raise RuntimeError(f"{func!r} wants a thread, and virtual time has none")


def run_in_virtual_time(main: Coroutine[Any, Any, T], seed: int | None = None) -> T:
    """Run ``main`` to its end in a fresh :class:`VirtualTimeLoop`, then cancel what it left running.

    Raises :class:`StalledError` when nothing can move any more.
    """
    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(seed)) as runner:
        return runner.run(main)


def in_virtual_time(main: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Makes an ordinary test of a coroutine function: it runs in a fresh loop, in virtual time."""

    @functools.wraps(main)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return run_in_virtual_time(main(*args, **kwargs))

    # pytest would otherwise look behind the wrapper, and run the coroutine function itself.
    del run.__wrapped__
    run.__signature__ = inspect.signature(main)  # type: ignore[attr-defined]  # pytest reads it
    return run
