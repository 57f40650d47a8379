"""The end of namespaces and of definitions: what is in them goes first."""

from __future__ import annotations

from runherd.local.apiserver.background import Chore
from runherd.local.apiserver.crds import CLEANUP_FINALIZER
from runherd.local.apiserver.errors import ApiError
from runherd.local.apiserver.kinds import Kind, Object
from runherd.local.apiserver.options import DeleteOptions
from runherd.local.apiserver.registry import CRD_RESOURCE, Registry
from runherd.local.apiserver.store import Event, Key, Store
from runherd.local.apiserver.writes import Writes, object_of

__all__ = ["DefinitionCleaner", "NamespaceCleaner"]


class _Cleaner(Chore):
    """Empties what is being deleted, and lets it go when it is empty."""

    #: The resource of the objects that are emptied.
    resource: str

    def __init__(self, store: Store, registry: Registry, writes: Writes) -> None:
        super().__init__()
        self._store = store
        self._registry = registry
        self._writes = writes
        self._ending: set[str] = set()

    def load(self) -> None:
        """Go on with what was under way when the store was closed."""
        for record in self._store.list(self.resource):
            self._note(record.key, object_of(record))

    def observe(self, event: Event) -> None:
        key = event.record.key
        if key.resource == self.resource:
            self._ending.discard(key.name)
            if event.type != "DELETED" and b'"deletionTimestamp"' in event.record.value:
                self._note(key, object_of(event.record))
        elif event.type == "DELETED" and self._container(key) in self._ending:
            self.enqueue([Key(self.resource, "", self._container(key))])

    def _note(self, key: Key, target: Object) -> None:
        if "deletionTimestamp" in target["metadata"]:
            self._ending.add(key.name)
            self.enqueue([key])

    def _container(self, key: Key) -> str:
        """The name of what an object is in."""
        raise TypeError(f"{type(self).__name__} must say what objects are in")

    async def _delete_all(self, kind: Kind, namespace: str = "") -> bool:
        """Delete the objects of a kind; whether none is left."""
        for record in list(self._store.list(kind.resource, namespace)):
            if b'"deletionTimestamp"' in record.value and "deletionTimestamp" in object_of(record)["metadata"]:
                continue
            try:
                await self._writes.delete(kind, record.key, DeleteOptions())
            except ApiError as error:
                if error.status != 404:
                    raise
        return not self._store.count(kind.resource, namespace)


class NamespaceCleaner(_Cleaner):
    """Deletes what is in a namespace that is being deleted, then the namespace."""

    resource = "namespaces"

    def _container(self, key: Key) -> str:
        return key.namespace

    async def work(self, key: Key) -> None:
        if key.name not in self._ending:
            return
        kinds = {kind.resource: kind for kind in self._registry.all() if kind.namespaced}
        empty = [await self._delete_all(kind, key.name) for kind in kinds.values()]
        if not all(empty):
            return
        if self._store.is_unsettled(key.name):
            # Begun before the namespace was closed; its end queues nothing, so it is waited for.
            await self._store.settled(key.name)
            self.enqueue([key])
            return
        namespaces = self._registry.stored(self.resource)
        if namespaces is not None and self._store.get(key) is not None:
            await self._writes.modify(namespaces, key, _release_namespace)


def _release_namespace(namespace: Object) -> None:
    finalizers = namespace.get("spec", {}).get("finalizers", [])
    namespace["spec"] = {"finalizers": [name for name in finalizers if name != "kubernetes"]}


class DefinitionCleaner(_Cleaner):
    """Deletes the objects of a definition that is being deleted, then the definition."""

    resource = CRD_RESOURCE

    def _container(self, key: Key) -> str:
        return key.resource

    async def work(self, key: Key) -> None:
        if key.name not in self._ending:
            return
        kind = self._registry.stored(key.name)
        if kind is not None and not await self._delete_all(kind):
            return
        definitions = self._registry.stored(self.resource)
        if definitions is not None and self._store.get(key) is not None:
            await self._writes.modify(definitions, key, _release_definition)


def _release_definition(definition: Object) -> None:
    finalizers = definition["metadata"].get("finalizers", [])
    definition["metadata"]["finalizers"] = [name for name in finalizers if name != CLEANUP_FINALIZER]
