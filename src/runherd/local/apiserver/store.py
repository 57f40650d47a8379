"""Where the server keeps its objects: current state and recent history in memory, durability behind a :class:`Journal`.

Every read, list and watch is answered from memory. A write is decided against the current state, made durable by the
journal (when there is one) and only then applied, shown to readers and acknowledged. So nobody ever sees a write that
a crash could still take back, and a slow disk holds up writers only.

Writes to different objects share one journal call (group commit): while one call is under way, the next batch gathers.
Two writes to one object never are under way at once; the second is decided when the first has been settled.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

__all__ = [
    "Change",
    "CompactedError",
    "Contents",
    "Cursor",
    "Event",
    "EventType",
    "Journal",
    "Key",
    "Limits",
    "Record",
    "Store",
    "StoreClosedError",
    "StoreError",
    "StoreFullError",
]

EventType = Literal["ADDED", "MODIFIED", "DELETED"]


class StoreError(Exception):
    """A write could not be made durable. Nothing of it is visible, now or after a restart."""


class StoreFullError(StoreError):
    """There is no space left for the write. Once there is, writes succeed again."""


class StoreClosedError(StoreError):
    """The store was closed before the write was decided."""


class CompactedError(Exception):
    """The history that is asked for is no longer kept."""


class Key(NamedTuple):
    """Names one object: ``resource`` is ``plural.group`` (``pods`` in the core group), ``namespace`` may be ``""``."""

    resource: str
    namespace: str
    name: str

    @property
    def path(self) -> str:
        """The key within its resource. Lists are sorted by it, as the real server's lists are by etcd's keys."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Record(msgspec.Struct, gc=False):
    """One version of one object. Never changed, except that readers may fill ``attributes``.

    Records and events can't be part of a reference cycle, so Python's garbage collector needn't walk all of them
    (``gc=False``): with many objects that would stop the server for a while.

    ``value`` is the object as JSON, with its ``metadata.resourceVersion`` equal to ``revision``. ``attributes`` belongs
    to the reader side, which keeps there what it decoded of the value (labels and fields for selectors).
    """

    key: Key
    value: bytes
    revision: int
    attributes: Any = None


class Event(msgspec.Struct, gc=False):
    """One applied write.

    For ``DELETED``, ``record`` is the last state of the object with the deletion's own revision. ``previous`` is the
    record that the write replaced or removed. ``line`` belongs to the reader side: the event as a watch sends it.
    """

    type: EventType
    record: Record
    previous: Record | None
    line: bytes | None = None

    @property
    def revision(self) -> int:
        return self.record.revision


@dataclass(frozen=True, slots=True)
class Change:
    """What a write makes of an object: its new ``value``, or (``deleted``) its last one. See :class:`Record`."""

    value: bytes
    deleted: bool = False
    attributes: Any = None


@dataclass(frozen=True, slots=True)
class Contents:
    """What a journal holds when it is opened.

    ``revision`` is no lower than any that was ever handed out (or may have been, by a store that this is an old copy
    of). ``events`` is the recent history, oldest first, all that there was from its first revision on; it may be
    empty, then watches from before the restart are told to start afresh. So are those from a revision in between that
    no event of it has: whoever got that got it from another copy.
    """

    revision: int
    records: Sequence[Record] = ()
    events: Sequence[Event] = ()


class Journal(Protocol):
    """Makes writes durable. One store owns it; all calls come from the store's event loop.

    What an implementation must guarantee:

    - :meth:`append` returns when all events of the batch will survive the process being killed and the machine losing
      power, in the order given; or raises, and then none of the batch will ever be seen again (all or nothing).
    - It raises :class:`StoreFullError` when space is the reason, :class:`StoreError` for anything else, and stays
      usable: the next append is tried for real.
    - It never blocks the event loop: the work is done elsewhere (SQLite: on one writer thread, a transaction a batch).
      Appends never overlap; the store sends the next batch when the last has returned.
    - Revisions of appended events only go up, with gaps (a refused batch used some up). :meth:`load` after any crash
      gives a revision that is no lower than that of any event whose append returned, and every such event's effect.
    - Cancellation of an append doesn't happen: the store always waits for it.
    """

    async def load(self) -> Contents:
        """Read everything, once, before the first append. Raises :class:`StoreError` when it can't be trusted."""
        ...

    async def append(self, events: Sequence[Event]) -> None:
        """Make ``events`` durable, all or none."""
        ...

    async def close(self) -> None:
        """Release the file. No append is under way and none follows."""
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """How much history is kept for each resource: the fewer of ``events`` and of the last ``size`` bytes of values."""

    events: int = 10_000
    size: int = 16 * 2**20


class _Bucket:
    """The objects of one resource, sorted, and what last happened to them."""

    def __init__(self, limits: Limits, compacted: int) -> None:
        self.records: dict[str, Record] = {}
        self.paths: list[str] = []
        self.history: deque[Event] = deque()
        #: How many events have ever left ``history``: the absolute index of its first.
        self.dropped = 0
        #: The revision up to which history is incomplete.
        self.compacted = compacted
        self.waiters: list[asyncio.Future[None]] = []
        self._limits = limits
        self._size = 0

    def apply(self, event: Event) -> None:
        path = event.record.key.path
        if event.type == "DELETED":
            del self.records[path]
            del self.paths[bisect_left(self.paths, path)]
        else:
            if event.type == "ADDED":
                insort(self.paths, path)
            self.records[path] = event.record
        self.remember(event)
        self.wake()

    def remember(self, event: Event) -> None:
        self.history.append(event)
        self._size += len(event.record.value)
        while len(self.history) > self._limits.events or self._size > self._limits.size:
            oldest = self.history.popleft()
            self._size -= len(oldest.record.value)
            self.dropped += 1
            self.compacted = oldest.revision

    def wake(self) -> None:
        if self.waiters:
            for waiter in self.waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self.waiters.clear()

    def replaced_since(self, revision: int) -> dict[str, Record | None]:
        """What the objects that were written after ``revision`` were at it, by path.

        Raises :class:`CompactedError` when history doesn't reach back that far.
        """
        if revision < self.compacted:
            raise CompactedError(
                f"revision {revision} is older than the history kept, which starts at {self.compacted}"
            )
        replaced: dict[str, Record | None] = {}
        for event in reversed(self.history):
            if event.revision <= revision:
                break
            replaced[event.record.key.path] = event.previous
        return replaced


class Cursor:
    """A watcher's place in the history of one resource.

    Watchers share the history instead of having buffers of their own; one that is so slow that history moves on past
    its place is told so by :class:`CompactedError`.
    """

    def __init__(self, bucket: _Bucket, after: int) -> None:
        self._bucket = bucket
        self._waiter: asyncio.Future[None] | None = None
        #: The absolute index of the next event.
        self._position = bucket.dropped + bisect_right(bucket.history, after, key=lambda event: event.revision)

    def take(self, limit: int = 1000) -> list[Event]:
        """The next events, oldest first, up to ``limit``; none when there is nothing new."""
        bucket = self._bucket
        start = self._position - bucket.dropped
        if start < 0:
            raise CompactedError("the watch is too slow: the history that it has not yet been sent is gone")
        if start == len(bucket.history):
            return []
        events = list(islice(bucket.history, start, start + limit))
        self._position += len(events)
        return events

    async def wait(self) -> None:
        """Return when there may be something to take, or at :meth:`wake`."""
        if self._position < self._bucket.dropped + len(self._bucket.history):
            return
        waiter = self._waiter = asyncio.get_running_loop().create_future()
        self._bucket.waiters.append(waiter)
        try:
            await waiter
        finally:
            # Those that the bucket woke are off its list already.
            with suppress(ValueError):
                self._bucket.waiters.remove(waiter)

    def wake(self) -> None:
        """Let :meth:`wait` return now."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Store:
    """Objects by key, with one sequence of revisions over all of them (the resourceVersion).

    Without a journal a write is applied at once and gone with the process. Use :meth:`open` before anything else.
    """

    #: An empty store's revision: the first write gets the next. (0 means "any" in the API, so it must not be used.)
    FIRST_REVISION = 1

    def __init__(self, journal: Journal | None = None, limits: Limits | None = None) -> None:
        self._journal = journal
        self._limits = limits or Limits()
        self._buckets: dict[str, _Bucket] = {}
        self._started_at = self.FIRST_REVISION
        #: Between these, no revision is known to have been handed out by this store before it was opened.
        self._gaps: list[tuple[int, int]] = []
        #: The revision of the last applied write: all up to it can be seen.
        self.revision = self.FIRST_REVISION
        self._assigned = self.FIRST_REVISION
        self._observers: list[Callable[[Event], None]] = []
        self._unsettled: dict[Key, asyncio.Future[None]] = {}
        self._queue: list[tuple[Event, asyncio.Future[None]]] = []
        self._committer: asyncio.Task[None] | None = None
        self._opened = False
        self._closed = False

    async def open(self) -> None:
        """Load what the journal holds; once, later calls do nothing.

        Raises :class:`StoreError` when it can't be trusted.
        """
        if self._journal is None or self._opened:
            return
        contents = await self._journal.load()
        self._opened = True
        self.revision = self._assigned = max(contents.revision, self.FIRST_REVISION)
        self._started_at = contents.events[0].revision - 1 if contents.events else self.revision
        known = [*(event.revision for event in contents.events), self.revision]
        self._gaps = [(before, after) for before, after in pairwise(known) if after - before > 1]
        for record in contents.records:
            bucket = self._bucket(record.key.resource)
            bucket.records[record.key.path] = record
            bucket.paths.append(record.key.path)
        for bucket in self._buckets.values():
            bucket.paths.sort()
        for event in contents.events:
            self._bucket(event.record.key.resource).remember(event)

    async def close(self) -> None:
        """Settle all writes that have been decided, then close the journal; once, later calls do nothing.

        Later writes raise :class:`StoreClosedError`.
        """
        if self._closed:
            return
        self._closed = True
        if self._committer is not None:
            await self._committer
        for bucket in self._buckets.values():
            bucket.wake()
        if self._journal is not None:
            await self._journal.close()

    def observe(self, observer: Callable[[Event], None]) -> None:
        """Call ``observer`` with every applied event, in order, before its writer is told. It must not raise."""
        self._observers.append(observer)

    # Reading

    def get(self, key: Key) -> Record | None:
        bucket = self._buckets.get(key.resource)
        return bucket.records.get(key.path) if bucket is not None else None

    def resources(self) -> list[str]:
        """The resources that have (or had) objects."""
        return sorted(self._buckets)

    def list(
        self, resource: str, namespace: str = "", after: str = "", revision: int | None = None
    ) -> Iterator[Record]:
        """The objects of a resource (in a namespace), sorted by path, starting behind the path ``after``.

        With ``revision``, as they were at it; raises :class:`CompactedError` when that is no longer known. The result
        is to be used up before the event loop runs on.
        """
        if revision is not None:
            self._check_known(revision)
        bucket = self._buckets.get(resource)
        if bucket is None:
            return iter(())
        replaced = bucket.replaced_since(revision) if revision is not None else {}
        first, last = _bounds(bucket.paths, namespace, after)
        if not replaced:
            return (bucket.records[path] for path in islice(bucket.paths, first, last))
        prefix = f"{namespace}/" if namespace else ""
        paths = set(bucket.paths[first:last])
        paths.update(path for path in replaced if path.startswith(prefix) and path > after)
        found = (replaced[path] if path in replaced else bucket.records[path] for path in sorted(paths))
        return (record for record in found if record is not None)

    def count(self, resource: str, namespace: str = "", after: str = "") -> int:
        """How many objects :meth:`list` would give at present."""
        bucket = self._buckets.get(resource)
        if bucket is None:
            return 0
        first, last = _bounds(bucket.paths, namespace, after)
        return last - first

    def watch(self, resource: str, after: int) -> Cursor:
        """A place in the resource's history right behind revision ``after``.

        Raises :class:`CompactedError` when history doesn't reach back that far.
        """
        self._check_known(after)
        bucket = self._bucket(resource)
        if after < bucket.compacted:
            raise CompactedError(f"revision {after} is older than the history kept, which starts at {bucket.compacted}")
        return Cursor(bucket, after)

    def _check_known(self, revision: int) -> None:
        index = bisect_left(self._gaps, (revision,)) - 1
        if index >= 0 and revision < self._gaps[index][1]:
            raise CompactedError(f"revision {revision} is not one of this store's: it was replaced by a copy of it")

    # Writing

    async def write(self, key: Key, decide: Callable[[Record | None, int], Change | None]) -> Record:
        """Write one object. Returns its new record (for a deletion: its last state) once that is durable.

        ``decide`` is called once, with the current record and the revision that the write will get, at a moment when
        no other write of this object is under way. It returns the change, or None to leave the object as it is (it
        must exist then), or raises to refuse the write. It must not wait for anything.

        Raises what ``decide`` raises, and :class:`StoreError` when the journal failed. When the caller is cancelled
        after the decision, the write goes on.
        """
        while (unsettled := self._unsettled.get(key)) is not None:
            await asyncio.wait([unsettled])
        if self._closed:
            raise StoreClosedError("the store is closed")
        current = self.get(key)
        revision = self._assigned + 1
        change = decide(current, revision)
        if change is None:
            if current is None:
                raise ValueError(f"{key} does not exist and the write leaves it so")
            return current
        self._assigned = revision
        record = Record(key, change.value, revision, change.attributes)
        event = Event("DELETED" if change.deleted else "MODIFIED" if current else "ADDED", record, current)
        if self._journal is None:
            self._apply(event)
        else:
            settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._unsettled[key] = settled
            self._queue.append((event, settled))
            if self._committer is None:
                self._committer = asyncio.get_running_loop().create_task(self._commit(self._journal))
            await asyncio.shield(settled)
        return record

    def is_unsettled(self, namespace: str) -> bool:
        """Whether a write within ``namespace`` has been decided but is not yet visible."""
        return any(key.namespace == namespace for key in self._unsettled)

    async def settled(self, namespace: str) -> None:
        """Return when the writes within ``namespace`` that are under way have been settled."""
        under_way = [future for key, future in self._unsettled.items() if key.namespace == namespace]
        if under_way:
            await asyncio.wait(under_way)

    async def _commit(self, journal: Journal) -> None:
        while self._queue:
            batch, self._queue = self._queue, []
            failure: StoreError | None = None
            try:
                await journal.append([event for event, _ in batch])
            except StoreError as error:
                failure = error
            except Exception as error:
                failure = StoreError(f"the journal failed: {error!r}")
                failure.__cause__ = error
            for event, settled in batch:
                del self._unsettled[event.record.key]
                if failure is None:
                    self._apply(event)
                    settled.set_result(None)
                else:
                    settled.set_exception(failure)
                    # Whoever waited may have been cancelled; then nobody is left to be told.
                    settled.exception()
        self._committer = None

    def _apply(self, event: Event) -> None:
        self.revision = event.revision
        self._bucket(event.record.key.resource).apply(event)
        for observer in self._observers:
            observer(event)

    def _bucket(self, resource: str) -> _Bucket:
        bucket = self._buckets.get(resource)
        if bucket is None:
            bucket = self._buckets[resource] = _Bucket(self._limits, self._started_at)
        return bucket


def _bounds(paths: list[str], namespace: str, after: str) -> tuple[int, int]:
    """The slice of ``paths`` that lies in ``namespace`` (any when empty) and behind ``after``."""
    first = bisect_right(paths, after) if after else 0
    if not namespace:
        return first, len(paths)
    # "0" is the character behind "/", so this is where the namespace's paths end.
    return max(first, bisect_left(paths, f"{namespace}/")), bisect_left(paths, f"{namespace}0")
