"""Garbage collection: an object goes when none of its owners is left."""

from __future__ import annotations

from typing import Any

import msgspec

from runherd.local.apiserver.background import Chore
from runherd.local.apiserver.kinds import Object
from runherd.local.apiserver.options import DeleteOptions
from runherd.local.apiserver.registry import Registry
from runherd.local.apiserver.store import Event, Key, Record, Store
from runherd.local.apiserver.writes import Writes

__all__ = ["GarbageCollector"]


class _Owner(msgspec.Struct, rename="camel", gc=False):
    api_version: str
    kind: str
    name: str
    uid: str


class _Metadata(msgspec.Struct, rename="camel", gc=False):
    uid: str = ""
    owner_references: list[_Owner] = []
    deletion_timestamp: str | None = None


class _Owned(msgspec.Struct, gc=False):
    metadata: _Metadata


_owned = msgspec.json.Decoder(_Owned)


class GarbageCollector(Chore):
    """Deletes, in the background, objects whose owners are all gone, and drops references to some that are gone."""

    def __init__(self, store: Store, registry: Registry, writes: Writes) -> None:
        super().__init__()
        self._store = store
        self._registry = registry
        self._writes = writes
        self._keys: dict[str, Key] = {}
        #: By the owner's UID. Dictionaries, not sets: what follows from them must come in the same order in every run.
        self._dependents: dict[str, dict[Key, None]] = {}
        self._owners: dict[Key, tuple[str, ...]] = {}

    def load(self, record: Record) -> None:
        """Take note of an object that the store was opened with."""
        self._note(record.key, _owned.decode(record.value).metadata)

    def observe(self, event: Event) -> None:
        key, metadata = event.record.key, _owned.decode(event.record.value).metadata
        if event.type == "DELETED":
            self._keys.pop(metadata.uid, None)
            self._disown(key)
            self.enqueue(self._dependents.get(metadata.uid, ()))
        else:
            self._note(key, metadata)

    def _note(self, key: Key, metadata: _Metadata) -> None:
        self._keys[metadata.uid] = key
        owners = tuple(owner.uid for owner in metadata.owner_references)
        if self._owners.get(key, ()) != owners:
            self._disown(key)
            if owners:
                self._owners[key] = owners
            for uid in owners:
                self._dependents.setdefault(uid, {})[key] = None
            # An owner may be gone already; what is seen of it before it has come (at load) is looked at again.
            if owners:
                self.enqueue([key])

    def _disown(self, key: Key) -> None:
        for uid in self._owners.pop(key, ()):
            dependents = self._dependents[uid]
            dependents.pop(key, None)
            if not dependents:
                del self._dependents[uid]

    async def work(self, key: Key) -> None:
        record = self._store.get(key)
        kind = self._registry.stored(key.resource)
        if record is None or kind is None:
            return
        metadata = _owned.decode(record.value).metadata
        gone = [owner.uid for owner in metadata.owner_references if not self._exists(owner, key)]
        if not gone or metadata.deletion_timestamp is not None:
            return
        if len(gone) == len(metadata.owner_references):
            # The version keeps an object that was given another owner meanwhile.
            version = str(record.revision)
            await self._writes.delete(kind, key, DeleteOptions(uid=metadata.uid, resource_version=version))
            return

        def drop(target: Object) -> None:
            references: list[dict[str, Any]] = target["metadata"].get("ownerReferences", [])
            target["metadata"]["ownerReferences"] = [each for each in references if each["uid"] not in gone]

        await self._writes.modify(kind, key, drop)

    def _exists(self, owner: _Owner, dependent: Key) -> bool:
        kind = self._registry.of_object(owner.api_version, owner.kind)
        if kind is None:
            # What isn't served can't be looked up, so that nothing can be said about it.
            return True
        namespace = dependent.namespace if kind.namespaced else ""
        return self._keys.get(owner.uid) == Key(kind.resource, namespace, owner.name)
