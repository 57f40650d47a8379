"""The objects that controllers read: held in memory, and kept up to date by watches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, TypeVar, cast

from runherd.api.resource import ApiObject, Resource
from runherd.kube.client import Client
from runherd.runtime.event_handler import EventHandler
from runherd.runtime.index import IndexFunction
from runherd.runtime.informer import Informer, InformerOptions
from runherd.runtime.request import Request
from runherd.runtime.store import Store

__all__ = ["Cache", "CacheSyncError"]

T = TypeVar("T", bound=ApiObject)

_Kind = tuple[str, str]


class CacheSyncError(Exception):
    """The cache could not be filled in time; the text says which kinds are missing, and why."""


class Cache:
    """Holds all objects of the kinds that are registered with it, in ``namespaces`` or (none given) in all.

    It is eventually consistent with the server, and never behind a write that was made through a
    :class:`~runherd.runtime.client.CachedClient` on it (see :mod:`runherd.runtime.store`). Reading takes no time and
    never waits. The objects are shared and immutable; lists are the caller's own.

    Kinds, indexes and transforms are registered before :meth:`run`.
    """

    def __init__(
        self,
        client: Client,
        *,
        random: Random,
        namespaces: Iterable[str] = (),
        options: InformerOptions | None = None,
    ) -> None:
        self._client = client
        self._random = random
        self._namespaces = tuple(dict.fromkeys(namespaces)) or ("",)
        self._options = options
        self._informers: dict[_Kind, dict[str, Informer[Any]]] = {}
        self._started = False

    # --- Setting up ------------------------------------------------------------------------------------------------

    def register(self, resource: Resource[T], *, transform: Callable[[T], T] | None = None) -> None:
        """Hold the objects of this kind.

        ``transform`` is applied to each before it is kept; it must leave name, namespace, UID and resource version
        alone. A kind can be registered again, but then without another transform. Raises ``RuntimeError`` once the
        cache runs.
        """
        kind = _kind(resource)
        if kind in self._informers:
            if transform is not None:
                raise ValueError(f"{resource.kind} is registered already; give its transform the first time")
            return
        if self._started:
            raise RuntimeError(f"the cache runs; register {resource.kind} before")
        namespaces = self._namespaces if resource.namespaced else ("",)
        self._informers[kind] = {
            namespace: Informer(
                self._client,
                resource,
                namespace,
                random=self._random,
                transform=transform,
                options=self._options,
            )
            for namespace in namespaces
        }

    def add_index(self, resource: Resource[T], name: str, function: IndexFunction[T]) -> None:
        """Let :meth:`list` find objects of this kind by the values that ``function`` finds in them."""
        self.register(resource)
        for store in self._stores(resource):
            store.add_index(name, function)

    def add_handler(self, resource: Resource[T], handler: EventHandler[T]) -> None:
        """Tell ``handler`` of every object of this kind that is there, as added, and of every change from now on."""
        for store in self._stores(resource):
            store.add_handler(handler)

    # --- Reading ---------------------------------------------------------------------------------------------------

    def get(self, resource: Resource[T], name: str, namespace: str = "") -> T | None:
        """The object, or ``None`` where there is none. Raises ``LookupError`` for what the cache does not hold."""
        return self._store(resource, namespace).get(Request(namespace, name))

    def list(
        self,
        resource: Resource[T],
        namespace: str = "",
        *,
        index: tuple[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> list[T]:
        """The objects in ``namespace``, or (``""``) in all that the cache holds.

        ``index`` is the name of an index and the value to find; it needs a namespace for kinds that have them. With
        ``labels`` only those that have all of these labels. Without an index every object is looked at. Raises
        ``LookupError`` for what the cache does not hold, and for an index that was not added.
        """
        if index is not None:
            found: Iterable[T] = self._find(resource, namespace, index)
        elif namespace and resource.namespaced:
            store = self._store(resource, namespace)
            found = (object_ for object_ in store.objects() if object_.metadata.namespace == namespace)
        else:
            found = (object_ for store in self._stores(resource) for object_ in store.objects())
        if labels:
            wanted = labels.items()
            return [object_ for object_ in found if wanted <= object_.metadata.labels.items()]
        return list(found)

    def count(self, resource: Resource[T], namespace: str = "", *, index: tuple[str, str] | None = None) -> int:
        """How many objects :meth:`list` would return; takes constant time with an index, and for all of a kind."""
        if index is not None:
            return len(self._find(resource, namespace, index))
        if namespace and resource.namespaced and "" in self._informers_of(resource):
            return len(self.list(resource, namespace))
        stores = [self._store(resource, namespace)] if namespace else self._stores(resource)
        return sum(map(len, stores))

    def store(self, resource: Resource[T], namespace: str) -> Store[T] | None:
        """Where objects of this kind in this namespace are kept; ``None`` for what the cache does not hold."""
        informers = self._informers.get(_kind(resource))
        if informers is None:
            return None
        informer = informers.get("") or informers.get(namespace)
        return None if informer is None else cast(Store[T], informer.store)

    # --- Running ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep everything up to date until cancelled."""
        self._started = True
        async with asyncio.TaskGroup() as group:
            for informer in self._all_informers():
                group.create_task(informer.run(), name=f"informer-{informer.resource.plural}-{informer.namespace}")

    def has_synced(self) -> bool:
        """Whether everything has been listed once."""
        return all(informer.synced.is_set() for informer in self._all_informers())

    async def wait_for_sync(self, timeout: float | None = None) -> None:
        """Wait until everything has been listed once, at most ``timeout`` seconds.

        Raises :class:`CacheSyncError` when it takes longer.
        """
        try:
            async with asyncio.timeout(timeout):
                for informer in self._all_informers():
                    await informer.synced.wait()
        except TimeoutError:
            missing = [informer for informer in self._all_informers() if not informer.synced.is_set()]
            raise CacheSyncError(
                f"the cache could not be filled within {timeout} s: " + "; ".join(map(_described, missing))
            ) from None

    # --- Inside ----------------------------------------------------------------------------------------------------

    def _all_informers(self) -> Sequence[Informer[Any]]:
        return [informer for informers in self._informers.values() for informer in informers.values()]

    def _informers_of(self, resource: Resource[T]) -> dict[str, Informer[T]]:
        try:
            return self._informers[_kind(resource)]
        except KeyError:
            raise LookupError(
                f"the cache does not hold {resource.plural}: register the kind, or read it with the API reader"
            ) from None

    def _stores(self, resource: Resource[T]) -> Sequence[Store[T]]:
        return [informer.store for informer in self._informers_of(resource).values()]

    def _store(self, resource: Resource[T], namespace: str) -> Store[T]:
        informers = self._informers_of(resource)
        if resource.namespaced and not namespace:
            raise LookupError(f"{resource.plural} are namespaced: name the namespace")
        informer = informers.get("") or informers.get(namespace)
        if informer is None:
            raise LookupError(
                f"the cache holds {resource.plural} of {', '.join(self._namespaces)} only, not of {namespace}"
            )
        return informer.store

    def _find(self, resource: Resource[T], namespace: str, index: tuple[str, str]) -> Any:
        name, value = index
        try:
            return self._store(resource, namespace).find(name, namespace, value)
        except KeyError:
            raise LookupError(f"there is no index {name!r} on {resource.plural}") from None


def _kind(resource: Resource[Any]) -> _Kind:
    return (resource.group, resource.plural)


def _described(informer: Informer[Any]) -> str:
    where = f" in {informer.namespace}" if informer.namespace else ""
    why = "no answer yet" if informer.last_error is None else str(informer.last_error)
    return f"{informer.resource.plural}{where} ({why})"
