"""Work that many want done at the same time, and that is done once for all of them."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from runherd.actions.errors import ActionsError

__all__ = ["SingleFlight"]

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Runs ``work``; whoever asks while it runs waits for that run. A failure is everybody's who waited."""

    def __init__(self, name: str, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._name = name
        self._work = work
        self._task: asyncio.Task[T] | None = None

    async def result(self) -> T:
        """What the work returns or raises."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work(), name=self._name)
            self._task.add_done_callback(self._ended)
        try:
            # Shielded: when this caller gives up, the others still want the result.
            return await asyncio.shield(self._task)
        except ActionsError as error:
            # A copy each, so that no caller finds another's traceback in its error.
            raise copy.copy(error) from error.__cause__

    async def wait(self) -> None:
        """Wait until nothing runs."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def _ended(self, task: asyncio.Task[T]) -> None:
        self._task = None
        if not task.cancelled():
            task.exception()  # seen, even when everybody who waited has gone
