"""The client that reconcilers write with."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from runherd.api.resource import ApiObject, Resource
from runherd.kube.client import Client
from runherd.kube.codec import identity_of
from runherd.kube.deletion import Deleted
from runherd.kube.limiter import Priority
from runherd.kube.patch import Patch
from runherd.runtime.cache import Cache
from runherd.runtime.request import Request

__all__ = ["CachedClient"]

T = TypeVar("T", bound=ApiObject)

_Body = ApiObject | Mapping[str, Any] | bytes


class CachedClient:
    """Writes to the API server, and tells the cache at once what came of it.

    So whoever reads the cache after a write sees that write, or something newer (see :mod:`runherd.runtime.store`).
    The methods are those of :class:`~runherd.kube.client.Client`, and raise what those raise. Kinds that the cache does
    not hold are written just the same.

    A write whose answer was lost is not seen before the watch brings it: whether it was made is unknown.
    """

    def __init__(self, client: Client, cache: Cache) -> None:
        #: Reads past the cache, always live (controller-runtime's ``APIReader``). Secrets and config maps are read
        #: with it (``docs/spec/controllers.md 1.5``).
        self.api_reader = client
        self.cache = cache
        self._client = client

    async def create(
        self,
        resource: Resource[T],
        object_: _Body,
        namespace: str = "",
        *,
        owner: str = "",
        priority: Priority = Priority.CREATE,
        field_validation: str = "",
        field_manager: str = "",
    ) -> T:
        """Create an object; see :meth:`runherd.kube.client.Client.create`."""
        created = await self._client.create(
            resource,
            object_,
            namespace,
            owner=owner,
            priority=priority,
            field_validation=field_validation,
            field_manager=field_manager,
        )
        store = self.cache.store(resource, created.metadata.namespace)
        if store is not None:
            store.wrote(created)
        return created

    async def update(
        self,
        resource: Resource[T],
        object_: _Body,
        namespace: str = "",
        *,
        subresource: str = "",
        owner: str = "",
        priority: Priority | None = None,
        field_validation: str = "",
        field_manager: str = "",
    ) -> T:
        """Replace an object; see :meth:`runherd.kube.client.Client.update`."""
        identity = identity_of(object_)
        namespace = namespace or identity.namespace
        return await self._change(
            resource,
            Request(namespace, identity.name),
            self._client.update(
                resource,
                object_,
                namespace,
                subresource=subresource,
                owner=owner,
                priority=priority,
                field_validation=field_validation,
                field_manager=field_manager,
            ),
        )

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        namespace: str = "",
        *,
        patch: Patch,
        subresource: str = "",
        owner: str = "",
        priority: Priority | None = None,
        field_validation: str = "",
        field_manager: str = "",
        force: bool = False,
    ) -> T:
        """Change what ``patch`` names; see :meth:`runherd.kube.client.Client.patch`."""
        return await self._change(
            resource,
            Request(namespace, name),
            self._client.patch(
                resource,
                name,
                namespace,
                patch=patch,
                subresource=subresource,
                owner=owner,
                priority=priority,
                field_validation=field_validation,
                field_manager=field_manager,
                force=force,
            ),
        )

    async def delete(
        self,
        resource: Resource[T],
        name: str,
        namespace: str = "",
        *,
        grace_period_seconds: int | None = None,
        uid: str = "",
        resource_version: str = "",
        propagation_policy: str = "",
        owner: str = "",
        priority: Priority = Priority.DELETE,
    ) -> Deleted[T]:
        """Delete an object; see :meth:`runherd.kube.client.Client.delete`.

        Afterwards the cache shows it with its deletion timestamp, or no more.
        """
        store = self.cache.store(resource, namespace)
        delete = self._client.delete(
            resource,
            name,
            namespace,
            grace_period_seconds=grace_period_seconds,
            uid=uid,
            resource_version=resource_version,
            propagation_policy=propagation_policy,
            owner=owner,
            priority=priority,
        )
        if store is None:
            return await delete
        with store.deleting(Request(namespace, name)) as acknowledged:
            deleted = await delete
            if deleted.remaining is None or _is_gone(deleted.remaining):
                acknowledged(deleted.uid)
            else:
                store.wrote(deleted.remaining)
        return deleted

    async def _change(self, resource: Resource[T], key: Request, change: Coroutine[Any, Any, T]) -> T:
        store = self.cache.store(resource, key.namespace)
        if store is None:
            return await change
        with store.deleting(key) as acknowledged:
            changed = await change
            if _is_gone(changed):
                acknowledged(changed.metadata.uid)
            else:
                store.wrote(changed)
        return changed


def _is_gone(object_: ApiObject) -> bool:
    """Whether the server, which answered a write with ``object_``, has deleted it for good with that write.

    That is what removing the last finalizer of a deleted object does, if no grace period is left for it. The answer
    looks like any other then, with the resource version from before.
    """
    metadata = object_.metadata
    return (
        metadata.deletion_timestamp is not None
        and not metadata.finalizers
        and not metadata.deletion_grace_period_seconds
    )
