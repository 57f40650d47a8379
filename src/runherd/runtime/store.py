"""What is known of the objects of one kind: one state for each, which never goes back in time.

**Read-your-writes.** After a write of our own, a reconcile never sees a state older than that write. The mechanism is
write-through: the object with which the API server answers a write is put into the store at once, as if the watch had
brought it. The alternative, to wait until the watch has caught up, costs a round trip for every write, and stops all
work while a watch is slow or being made anew, which is when there is most to do.

States of an object thus come in by three ways (watch, list, answers to our writes), and in any order. What makes it
safe to merge them is that each carries a resource version, and that those of one kind are ordered integers (promised by
Kubernetes since 1.35, and true of every version before):

* A state replaces only an older one.
* The watch has brought everything up to its position. So if an object isn't here, and the answer to a write tells of a
  state at or before that position, then the object was deleted meanwhile, and the answer is too late.
* An object that is missing from a list is gone if what we know of it is older than the list; else we wrote it since.
* After a delete of ours was acknowledged, the watch is still to bring the deletion. All that it brings of that name
  until then is older than what we know, and is passed over.

Each costs a constant amount of work for an event, and the memory only of what is still to be confirmed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Generic, NamedTuple, TypeVar

from runherd.api.resource import ApiObject
from runherd.runtime.event_handler import EventHandler
from runherd.runtime.index import Index, IndexFunction
from runherd.runtime.request import Request

__all__ = ["Store"]

T = TypeVar("T", bound=ApiObject)


class _Deleted(NamedTuple):
    """Objects of one name that we deleted one after the other; the watch has yet to bring the last one's deletion."""

    uids: tuple[str, ...]
    #: The last version that was known of its name; 0 when nothing was.
    version: int

    def outdates(self, object_: ApiObject) -> bool:
        """Whether ``object_`` is a state of a deleted object, or of an earlier one."""
        return object_.metadata.uid in self.uids or _version(object_) <= self.version


class _Deleting:
    """A delete of ours that is under way, and what came in meanwhile."""

    __slots__ = ("confirmed", "listed")

    def __init__(self) -> None:
        #: UIDs of the name whose deletion the watch brought.
        self.confirmed: set[str] = set()
        #: Whether a list came in: then the watch may not bring the deletion.
        self.listed = False


def _version(object_: ApiObject) -> int:
    return int(object_.metadata.resource_version)


class Store(Generic[T]):
    """The objects of one kind, in one namespace or all, and who wants to know of their changes.

    ``transform`` is applied to every object before it is kept, for example to drop what nobody reads. It must leave
    name, namespace, UID and resource version alone.
    """

    def __init__(self, transform: Callable[[T], T] | None = None) -> None:
        self._transform = transform
        self._objects: dict[Request, T] = {}
        self._indexes: dict[str, Index[T]] = {}
        self._handlers: list[EventHandler[T]] = []
        self._position = 0
        self._latest = 0
        self._unconfirmed: dict[Request, _Deleted] = {}
        self._deleting: dict[Request, list[_Deleting]] = {}

    # --- Reading ---------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._objects)

    @property
    def position(self) -> int:
        """The resource version up to which list and watch have brought everything."""
        return self._position

    @property
    def latest(self) -> int:
        """The highest resource version seen, answers to our writes included."""
        return self._latest

    @property
    def unconfirmed(self) -> int:
        """How many deletes of ours the watch has still to bring."""
        return len(self._unconfirmed)

    def get(self, key: Request) -> T | None:
        """The object at ``key``."""
        return self._objects.get(key)

    def objects(self) -> Collection[T]:
        """All objects; a view that the next change invalidates."""
        return self._objects.values()

    def find(self, index: str, namespace: str, value: str) -> Collection[T]:
        """The objects in ``namespace`` that have ``value`` in ``index``; a view that the next change invalidates.

        Raises ``KeyError`` when there is no such index.
        """
        return self._indexes[index].find(namespace, value)

    def add_index(self, name: str, function: IndexFunction[T]) -> None:
        """Keep an index. Raises ``ValueError`` when there is one of that name."""
        if name in self._indexes:
            raise ValueError(f"there is an index {name!r} already")
        index = self._indexes[name] = Index(function)
        for key, object_ in self._objects.items():
            index.replace(key, None, object_)

    def add_handler(self, handler: EventHandler[T]) -> None:
        """Tell ``handler`` of every object that is there (as added), and of every change from now on."""
        self._handlers.append(handler)
        for object_ in tuple(self._objects.values()):
            handler.on_add(object_)

    # --- What the watch brings -------------------------------------------------------------------------------------

    def observe(self, object_: T) -> None:
        """``object_`` was created or changed."""
        metadata = object_.metadata
        key = Request(metadata.namespace, metadata.name)
        version = int(metadata.resource_version)
        self._advance(version)
        if key not in self._unconfirmed:
            known = self._objects.get(key)
            if known is None or _version(known) < version:
                self._put(key, known, object_)

    def observe_deleted(self, object_: T) -> None:
        """``object_`` was deleted; it was so at last. Its resource version is that of the deletion."""
        metadata = object_.metadata
        key = Request(metadata.namespace, metadata.name)
        version = int(metadata.resource_version)
        self._advance(version)
        for deleting in self._deleting.get(key, ()):
            deleting.confirmed.add(metadata.uid)
        deleted = self._unconfirmed.get(key)
        if deleted is not None:
            if deleted.uids[-1] == metadata.uid:
                del self._unconfirmed[key]
            return
        known = self._objects.get(key)
        if known is not None:
            if known.metadata.uid == metadata.uid:
                self._remove(key, known, object_)
            elif _version(known) < version:
                self._remove(key, known, known)

    def observe_version(self, resource_version: str) -> None:
        """There was nothing else up to ``resource_version`` (a bookmark)."""
        self._advance(int(resource_version))

    # --- What a list brings ----------------------------------------------------------------------------------------

    def replace(self, objects: Collection[T], resource_version: str, at_least: int) -> None:
        """``objects`` were all objects at ``resource_version``: a consistent list.

        ``at_least`` is :attr:`latest` as it was when the list was asked for. No consistent list is older than that,
        unless the server went back in time: its store was restored from a backup. Then the order of versions says
        nothing any more about what we know. All of it is replaced, and handlers are told of every object as added, so
        that each is reconciled once.
        """
        version = int(resource_version)
        if version < at_least:
            self._start_over(objects, version)
            return
        listed = {Request.of(object_): object_ for object_ in objects}
        for key, deleted in tuple(self._unconfirmed.items()):
            item = listed.get(key)
            if version < deleted.version or (item is not None and deleted.outdates(item)):
                # The list is older than our delete, which the watch that follows it will bring.
                listed.pop(key, None)
            else:
                del self._unconfirmed[key]
        for key, known in tuple(self._objects.items()):
            if key not in listed and _version(known) <= version:
                self._remove(key, known, known)
        for under_way in self._deleting.values():
            for deleting in under_way:
                deleting.listed = True
        self._advance(version)
        for object_ in listed.values():
            key = Request.of(object_)
            current = self._objects.get(key)
            if current is None or _version(current) < _version(object_):
                self._put(key, current, object_)

    def _start_over(self, objects: Collection[T], version: int) -> None:
        self._position = self._latest = version
        self._unconfirmed.clear()
        for key, known in tuple(self._objects.items()):
            self._remove(key, known, known)
        for object_ in objects:
            self._put(Request.of(object_), None, object_)

    # --- What our own writes bring ---------------------------------------------------------------------------------

    def wrote(self, object_: T) -> None:
        """The server answered a write of ours with ``object_``."""
        metadata = object_.metadata
        key = Request(metadata.namespace, metadata.name)
        version = int(metadata.resource_version)
        known = self._objects.get(key)
        if known is not None:
            outdated = version <= _version(known)
        else:
            deleted = self._unconfirmed.get(key)
            outdated = version <= self._position or (deleted is not None and deleted.outdates(object_))
        if not outdated:
            self._latest = max(self._latest, version)
            self._put(key, known, object_)

    @contextmanager
    def deleting(self, key: Request) -> Iterator[Callable[[str], None]]:
        """Surrounds a delete of ours.

        Call what it yields when the server has acknowledged the delete and the object is gone, with the object's UID
        (``""`` where the server doesn't tell). An object that is to have the name again must not be created before.
        """
        this = _Deleting()
        under_way = self._deleting.setdefault(key, [])
        under_way.append(this)

        def acknowledged(uid: str) -> None:
            known = self._objects.get(key)
            if not uid and known is not None:
                uid = known.metadata.uid
            # Without a UID nothing is known of the object that was deleted; a confirmed one the watch brought already.
            if uid and uid not in this.confirmed:
                self._wrote_delete(key, uid, known, this)

        try:
            yield acknowledged
        finally:
            under_way.remove(this)
            if not under_way:
                self._deleting.pop(key, None)

    def _wrote_delete(self, key: Request, uid: str, known: T | None, deleting: _Deleting) -> None:
        if deleting.listed and (known is None or known.metadata.uid != uid):
            return
        uids, version = self._unconfirmed.get(key) or ((), 0)
        if known is not None:
            # Either the object itself, or an earlier one of its name, which must be gone, too.
            version = _version(known)
            if known.metadata.uid != uid:
                uids = (*uids, known.metadata.uid)
        self._unconfirmed[key] = _Deleted((*uids, uid), version)
        if known is not None:
            self._remove(key, known, known)

    # --- Changes ---------------------------------------------------------------------------------------------------

    def _advance(self, version: int) -> None:
        if version > self._position:
            self._position = version
            if version > self._latest:
                self._latest = version

    def _put(self, key: Request, known: T | None, object_: T) -> None:
        if known is not None and known.metadata.uid != object_.metadata.uid:
            self._remove(key, known, known)
            known = None
        if self._transform is not None:
            object_ = self._transform(object_)
        self._objects[key] = object_
        for index in self._indexes.values():
            index.replace(key, known, object_)
        if known is None:
            for handler in self._handlers:
                handler.on_add(object_)
        else:
            for handler in self._handlers:
                handler.on_update(known, object_)

    def _remove(self, key: Request, known: T, last_state: T) -> None:
        del self._objects[key]
        for index in self._indexes.values():
            index.replace(key, known, None)
        for handler in self._handlers:
            handler.on_delete(last_state)
