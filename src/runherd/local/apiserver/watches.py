"""Watches: the stream of what happens to the objects that a client has selected."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from random import Random

import msgspec

from runherd.local.apiserver.errors import FieldError, expired, forbidden_field, invalid, not_supported
from runherd.local.apiserver.kinds import Kind, Object
from runherd.local.apiserver.lists import Selection
from runherd.local.apiserver.options import parse_resource_version
from runherd.local.apiserver.store import CompactedError, Cursor, Event, EventType, Record, Store
from runherd.local.apiserver.targets import Query

__all__ = ["Watch", "WatchOptions", "Watches", "event_line"]

#: Makes what a watch sends of a record, in the form that the client asked for.
Render = Callable[[Record], bytes]

_BOOKMARK_INTERVAL = 60.0
_MIN_TIMEOUT = 1800.0
_INITIAL_EVENTS_END = "k8s.io/initial-events-end"
#: How many events keep their line ready, for the other watchers that are about to send it too.
_LINES_KEPT = 512
#: How much is joined into one piece of the stream, in events.
_BATCH = 500


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """``resource_version`` 0 stands for any. ``initial``: the present objects are sent first, as ADDED."""

    resource_version: int
    initial: bool
    marks_initial_end: bool
    bookmarks: bool
    timeout: float | None

    @classmethod
    def read(cls, query: Query) -> WatchOptions:
        """Raises a 400 or 422 for what can't be or contradicts itself."""
        errors = list(_errors(query))
        if errors:
            raise invalid("meta.k8s.io", "ListOptions", "", errors)
        version = parse_resource_version(query.text("resourceVersion"))
        timeout = query.integer("timeoutSeconds")
        streams_list = query.flag("sendInitialEvents")
        return cls(
            resource_version=version,
            initial=streams_list or (version == 0 and not query.has("sendInitialEvents")),
            marks_initial_end=streams_list and query.flag("allowWatchBookmarks"),
            bookmarks=query.flag("allowWatchBookmarks"),
            timeout=float(timeout) if timeout else None,
        )


def _errors(query: Query) -> Iterator[FieldError]:
    match, field = query.text("resourceVersionMatch"), "resourceVersionMatch"
    if query.has("sendInitialEvents"):
        if match != "NotOlderThan":
            yield forbidden_field(field, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
    elif match:
        yield forbidden_field(field, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
    if match and match != "NotOlderThan":
        yield not_supported(field, match, ["NotOlderThan"])
    if match and query.text("continue"):
        yield forbidden_field(field, "resourceVersionMatch is forbidden when continue is provided")


def event_line(type_: str, value: bytes) -> bytes:
    """One event of a watch, ``value`` being the object as JSON."""
    return b'{"type":"%b","object":%b}\n' % (type_.encode(), value)


class Watches:
    """Opens watches on a store."""

    def __init__(self, store: Store, random: Random) -> None:
        self._store = store
        self._random = random
        self._ready: deque[Event] = deque()
        self._waiting: dict[Cursor, None] = {}
        self.is_closed = False

    def open(self, selection: Selection, options: WatchOptions, render: Render | None) -> AsyncIterator[bytes]:
        """The stream. Begins, where history doesn't reach back far enough, with an ERROR event that says so (410)."""
        return Watch(self, selection, options, render).stream()

    def close(self) -> None:
        """End all streams."""
        self.is_closed = True
        for cursor in self._waiting:
            cursor.wake()

    async def wait(self, cursor: Cursor) -> None:
        """Return when there may be something to take, or all is closed."""
        self._waiting[cursor] = None
        try:
            await cursor.wait()
        finally:
            del self._waiting[cursor]

    def line(self, event: Event) -> bytes:
        """An event as its line, which is made once for all watchers."""
        line = event.line
        if line is None:
            line = event.line = event_line(event.type, event.record.value)
            self._ready.append(event)
            if len(self._ready) > _LINES_KEPT:
                self._ready.popleft().line = None
        return line


class Watch:
    """One client's watch."""

    def __init__(self, watches: Watches, selection: Selection, options: WatchOptions, render: Render | None) -> None:
        self._watches = watches
        self._store = watches._store
        self._selection = selection
        self._options = options
        self._render = render
        loop = asyncio.get_running_loop()
        timeout = options.timeout or _MIN_TIMEOUT * (1 + watches._random.random())
        self._deadline = loop.time() + timeout
        self._next_bookmark = loop.time() + _BOOKMARK_INTERVAL

    async def stream(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._pieces():
                yield piece
        except CompactedError:
            version = self._options.resource_version
            status = expired(f"too old resource version: {version} ({self._store.revision})")
            yield event_line("ERROR", msgspec.json.encode(status.to_object()))

    async def _pieces(self) -> AsyncIterator[bytes]:
        revision = self._store.revision
        if self._options.initial:
            # Taken at once, so that the objects and the history that follows fit together.
            cursor = self._store.watch(self._selection.kind.resource, revision)
            for piece in self._initial():
                yield piece
            if self._options.marks_initial_end:
                yield self._bookmark(revision, {_INITIAL_EVENTS_END: "true"})
        else:
            # A revision from the future waits for nothing: what comes will be newer.
            start = min(self._options.resource_version, revision) or revision
            cursor = self._store.watch(self._selection.kind.resource, start)
        async for piece in self._following(cursor):
            yield piece

    def _initial(self) -> list[bytes]:
        selection = self._selection
        records = self._store.list(selection.kind.resource, selection.namespace)
        lines = [event_line("ADDED", self._value(record)) for record in records if selection.matches(record)]
        return [b"".join(lines[start : start + _BATCH]) for start in range(0, len(lines), _BATCH)]

    async def _following(self, cursor: Cursor) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        while not self._watches.is_closed:
            # What has been handed out and what a bookmark may name must be of one moment.
            revision = self._store.revision
            events = cursor.take(_BATCH)
            piece = b"".join([line for event in events if (line := self._line(event)) is not None])
            if piece:
                yield piece
            if len(events) == _BATCH:
                continue
            if loop.time() >= self._deadline:
                if self._options.bookmarks:
                    yield self._bookmark(revision)
                return
            if loop.time() >= self._next_bookmark:
                self._next_bookmark = loop.time() + _BOOKMARK_INTERVAL
                if self._options.bookmarks:
                    yield self._bookmark(revision)
            await self._wait(cursor)

    async def _wait(self, cursor: Cursor) -> None:
        """Return when there may be something to send, the watch ends, or a bookmark is due."""
        until = min(self._deadline, self._next_bookmark) if self._options.bookmarks else self._deadline
        try:
            async with asyncio.timeout_at(until):
                await self._watches.wait(cursor)
        except TimeoutError:
            return

    def _line(self, event: Event) -> bytes | None:
        """What this watcher is sent of an event. An object that comes to match is added, one that ceases is deleted."""
        selection = self._selection
        if not selection.covers(event.record.key):
            return None
        if selection.labels is None and selection.fields is None:
            return self._watches.line(event) if self._render is None else self._rendered(event.type, event.record)
        matched = event.previous is not None and selection.matches(event.previous)
        matches = event.type != "DELETED" and selection.matches(event.record)
        if matches:
            return self._rendered("MODIFIED" if matched else "ADDED", event.record)
        if not matched or event.previous is None:
            return None
        if event.type == "DELETED":
            return self._rendered("DELETED", event.record)
        return self._rendered("DELETED", _at_revision(event.previous, event.revision))

    def _rendered(self, type_: EventType, record: Record) -> bytes:
        return event_line(type_, self._value(record))

    def _value(self, record: Record) -> bytes:
        return record.value if self._render is None else self._render(record)

    def _bookmark(self, revision: int, annotations: dict[str, str] | None = None) -> bytes:
        return event_line(
            "BOOKMARK", msgspec.json.encode(_bookmark_object(self._selection.kind, revision, annotations))
        )


def _bookmark_object(kind: Kind, revision: int, annotations: dict[str, str] | None) -> Object:
    metadata: Object = {"resourceVersion": str(revision)}
    if annotations:
        metadata["annotations"] = annotations
    return {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}


def _at_revision(record: Record, revision: int) -> Record:
    """A record as it was, told at a later revision: what a watcher is sent when an object ceases to match."""
    value = msgspec.json.decode(record.value)
    value["metadata"]["resourceVersion"] = str(revision)
    return Record(record.key, msgspec.json.encode(value), revision)
