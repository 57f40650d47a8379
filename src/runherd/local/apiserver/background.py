"""What the server does on its own: one task that works off a queue of keys, for each of its chores."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from runherd.local.apiserver.errors import ApiError
from runherd.local.apiserver.store import Event, Key, StoreError

__all__ = ["Chore"]

log = logging.getLogger(__name__)

_RETRY_AFTER = 1.0


class Chore:
    """Deals with objects, by key, one after the other. A key that is queued twice is dealt with once.

    Subclasses say in :meth:`observe` which events queue which keys, and in :meth:`work` what is to be done. A refusal
    (:class:`ApiError`) ends the work on a key: the object has changed, which queues it again where that matters. When
    the store fails, the key is tried again a second later.
    """

    def __init__(self) -> None:
        self._queued: dict[Key, None] = {}
        self._wakeup: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None

    def observe(self, event: Event) -> None:
        """Look at an applied write."""
        raise TypeError(f"{type(self).__name__} must say what it observes")

    async def work(self, key: Key) -> None:
        """Deal with an object."""
        raise TypeError(f"{type(self).__name__} must say what it does")

    def enqueue(self, keys: Iterable[Key]) -> None:
        """Have ``keys`` dealt with."""
        self._queued.update(dict.fromkeys(keys))
        if self._queued and self._wakeup is not None:
            self._wakeup.set()

    def start(self) -> None:
        self._wakeup = asyncio.Event()
        if self._queued:
            self._wakeup.set()
        self._task = asyncio.get_running_loop().create_task(self._run(self._wakeup))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self, wakeup: asyncio.Event) -> None:
        while True:
            await wakeup.wait()
            wakeup.clear()
            while self._queued:
                key = next(iter(self._queued))
                del self._queued[key]
                await self._try(key)

    async def _try(self, key: Key) -> None:
        try:
            await self.work(key)
        except ApiError as error:
            log.debug("%s on %s was refused: %s", type(self).__name__, key, error)
        except StoreError as error:
            log.warning("%s on %s failed, it is tried again: %s", type(self).__name__, key, error)
            await asyncio.sleep(_RETRY_AFTER)
            self.enqueue([key])
