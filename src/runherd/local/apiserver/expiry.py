"""Events are kept for an hour after they were last written."""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush

from runherd.local.apiserver.background import Chore
from runherd.local.apiserver.errors import ApiError
from runherd.local.apiserver.options import DeleteOptions
from runherd.local.apiserver.registry import Registry
from runherd.local.apiserver.store import Event, Key, Store
from runherd.local.apiserver.writes import Writes

__all__ = ["EventExpiry"]


class EventExpiry(Chore):
    """Deletes events ``lifetime`` seconds after their last write (those of a former run: after the start)."""

    def __init__(self, store: Store, registry: Registry, writes: Writes, lifetime: float) -> None:
        super().__init__()
        self._store = store
        self._registry = registry
        self._writes = writes
        self._lifetime = lifetime
        self._due: list[tuple[float, Key, int]] = []
        self._timer: asyncio.TimerHandle | None = None

    def load(self) -> None:
        """Start the lifetime of the events that the store was opened with."""
        for record in self._store.list("events"):
            self._expect(record.key, record.revision)

    def observe(self, event: Event) -> None:
        if event.record.key.resource == "events" and event.type != "DELETED":
            self._expect(event.record.key, event.record.revision)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await super().close()

    def _expect(self, key: Key, revision: int) -> None:
        heappush(self._due, (asyncio.get_running_loop().time() + self._lifetime, key, revision))
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is None and self._due:
            self._timer = asyncio.get_running_loop().call_at(self._due[0][0], self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        while self._due and self._due[0][0] <= now:
            _, key, revision = heappop(self._due)
            record = self._store.get(key)
            if record is not None and record.revision == revision:
                self.enqueue([key])
        self._set_timer()

    async def work(self, key: Key) -> None:
        kind = self._registry.stored("events")
        if kind is None:
            return
        try:
            await self._writes.delete(kind, key, DeleteOptions())
        except ApiError as error:
            if error.status != 404:
                raise
