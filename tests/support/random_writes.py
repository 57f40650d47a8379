"""Drives a cache with random writes, its own and those of strangers, and then compares it with the server.

What serves the API, and what goes wrong between it and the cache meanwhile, is the caller's affair:

    writes = RandomWrites(cache, CachedClient(client, cache), stranger, namespaces, random)
    async with running(cache.run):
        await cache.wait_for_sync(60)
        await writes.run(10_000)
        await writes.settle()
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random

from runherd.api.core import CONFIG_MAPS, ConfigMap
from runherd.api.resource import ApiObject
from runherd.kube.client import Client
from runherd.kube.errors import ApiError
from runherd.kube.patch import MergePatch
from runherd.runtime.cache import Cache
from runherd.runtime.client import CachedClient
from runherd.runtime.request import Request
from runherd.wire.transport import TransportError

__all__ = ["RandomWrites"]

_FINALIZER = "runherd.dev/test"


class _Followed:
    """Follows the cache by its events alone."""

    def __init__(self) -> None:
        self.objects: dict[Request, ApiObject] = {}
        self.events = 0

    def on_add(self, object_: ApiObject) -> None:
        key = Request.of(object_)
        assert key not in self.objects, f"{key} was added twice"
        self.objects[key] = object_
        self.events += 1

    def on_update(self, old: ApiObject, new: ApiObject) -> None:
        key = Request.of(new)
        assert self.objects[key] is old, f"{key} was something else before"
        self.objects[key] = new
        self.events += 1

    def on_delete(self, object_: ApiObject) -> None:
        known = self.objects.pop(Request.of(object_))
        assert known.metadata.uid == object_.metadata.uid
        self.events += 1


@dataclass
class RandomWrites:
    """Random writes of config maps in ``namespaces``, which must exist and hold no other writers' config maps.

    ``client`` writes through the cache, and may be interfered with. ``stranger`` writes past it, and should not be.
    Some names are only written by ``client``; there the test knows what the cache must show after each write.
    """

    cache: Cache
    client: CachedClient
    stranger: Client
    namespaces: list[str]
    random: Random
    names: int = 100
    writers: int = 8
    #: Writes that were acknowledged, refused (as conflicts are), and those whose outcome is unknown.
    written: int = 0
    refused: int = 0
    unknown: int = 0
    _left: int = 0
    followed: _Followed = field(default_factory=_Followed)

    def __post_init__(self) -> None:
        self.cache.register(CONFIG_MAPS)
        self.cache.add_handler(CONFIG_MAPS, self.followed)

    async def run(self, writes: int) -> None:
        """Make so many writes."""
        self._left = writes
        async with asyncio.TaskGroup() as group:
            for number in range(self.writers):
                group.create_task(self._write_own(f"own-{number}"))
                group.create_task(self._write_shared())

    async def settle(self, within: float = 120.0) -> None:
        """Wait until the cache has seen everything, and compare it with a fresh list."""
        for namespace in self.namespaces:
            await self.stranger.create(CONFIG_MAPS, {"metadata": {"name": "the-last"}}, namespace)
        async with asyncio.timeout(within):
            while not self._has_seen_everything():  # noqa: ASYNC110 (there is no event for just this)
                await asyncio.sleep(0.05)
        fresh: dict[Request, ConfigMap] = {}
        for namespace in self.namespaces:
            listed = await self.stranger.list(CONFIG_MAPS, namespace)
            fresh.update((Request.of(object_), object_) for object_ in listed.items)
        cached = {
            Request.of(object_): object_
            for namespace in self.namespaces
            for object_ in self.cache.list(CONFIG_MAPS, namespace)
        }
        assert cached.keys() == fresh.keys()
        assert {key: cached[key] for key in cached if cached[key] != fresh[key]} == {}
        followed = {key: known for key, known in self.followed.objects.items() if key.namespace in self.namespaces}
        assert followed == cached

    def _has_seen_everything(self) -> bool:
        return all(
            self.cache.get(CONFIG_MAPS, "the-last", namespace) is not None
            and (store := self.cache.store(CONFIG_MAPS, namespace)) is not None
            and store.unconfirmed == 0
            for namespace in self.namespaces
        )

    def _is_left(self) -> bool:
        self._left -= 1
        return self._left >= 0

    async def _write_own(self, prefix: str) -> None:
        """Writes that only this task makes: what the cache must show afterwards is known."""
        while self._is_left():
            namespace = self.random.choice(self.namespaces)
            name = f"{prefix}-{self.random.randrange(max(1, self.names // self.writers))}"
            try:
                await self._change(name, namespace, alone=True)
                self.written += 1
            except ApiError:
                # The write before this one was made though its answer was lost, and the watch has yet to bring it.
                self.refused += 1
            except TransportError:
                self.unknown += 1

    async def _write_shared(self) -> None:
        """Writes that others make as well, by either client."""
        while self._is_left():
            namespace = self.random.choice(self.namespaces)
            name = f"shared-{self.random.randrange(self.names)}"
            try:
                if self.random.random() < 0.5:
                    await self._change(name, namespace, alone=False)
                else:
                    await self._change_as_stranger(name, namespace)
                self.written += 1
            except ApiError:
                self.refused += 1
            except TransportError:
                self.unknown += 1

    async def _change(self, name: str, namespace: str, *, alone: bool) -> None:
        known = self.cache.get(CONFIG_MAPS, name, namespace)
        deleted = False
        if known is None:
            written = await self.client.create(CONFIG_MAPS, self._new(name), namespace)
            version = int(written.metadata.resource_version)
        elif known.metadata.deletion_timestamp is not None:
            patch = MergePatch({"metadata": {"finalizers": None}})
            await self.client.patch(CONFIG_MAPS, name, namespace, patch=patch)
            deleted = True
        elif self.random.random() < 0.4:
            uid = known.metadata.uid if self.random.random() < 0.7 else ""
            result = await self.client.delete(CONFIG_MAPS, name, namespace, uid=uid)
            deleted = result.remaining is None
            version = 0 if result.remaining is None else int(result.remaining.metadata.resource_version)
        else:
            patch = MergePatch({"data": {"random": str(self.random.random())}})
            written = await self.client.patch(CONFIG_MAPS, name, namespace, patch=patch)
            version = int(written.metadata.resource_version)
        if alone:
            seen = self.cache.get(CONFIG_MAPS, name, namespace)
            if deleted:
                assert seen is None, f"{name} was deleted, and is seen at {seen.metadata.resource_version}"
            else:
                assert seen is not None, f"{name} was written at {version}, and is not seen"
                assert int(seen.metadata.resource_version) >= version

    async def _change_as_stranger(self, name: str, namespace: str) -> None:
        step = self.random.randrange(4)
        if step == 0:
            await self.stranger.create(CONFIG_MAPS, self._new(name), namespace)
        elif step == 1:
            await self.stranger.delete(CONFIG_MAPS, name, namespace)
        else:
            changes = {"metadata": {"finalizers": None}} if step == 2 else {"data": {"stranger": str(self._left)}}
            await self.stranger.patch(CONFIG_MAPS, name, namespace, patch=MergePatch(changes))

    def _new(self, name: str) -> dict[str, object]:
        metadata: dict[str, object] = {"name": name}
        if self.random.random() < 0.4:
            metadata["finalizers"] = [_FINALIZER]
        return {"metadata": metadata, "data": {"random": "0"}}
