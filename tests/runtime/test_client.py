from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random

import pytest

from runherd.api.core import PODS, SECRETS, Pod
from runherd.kube.errors import ConflictError, NotFoundError
from runherd.kube.patch import MergePatch
from runherd.runtime.cache import Cache
from runherd.runtime.client import CachedClient
from tests.runtime.api import PODS_PATH, client_of, eventually, running
from tests.runtime.objects import Recorder
from tests.support.model_api import ModelApi, Object
from tests.support.virtual_time import in_virtual_time, run_in_virtual_time


@dataclass
class Setting:
    api: ModelApi
    cache: Cache
    client: CachedClient
    recorder: Recorder

    def known(self, name: str) -> Pod | None:
        return self.cache.get(PODS, name, "default")

    @property
    def unconfirmed(self) -> int:
        store = self.cache.store(PODS, "default")
        assert store is not None
        return store.unconfirmed


@asynccontextmanager
async def a_setting(api: ModelApi | None = None) -> AsyncIterator[Setting]:
    """A client on a cache whose watch is held back."""
    api = api or ModelApi()
    client = client_of(api)
    cache = Cache(client, random=Random(5))
    cache.register(PODS)
    recorder = Recorder()
    cache.add_handler(PODS, recorder)
    async with running(cache.run):
        await cache.wait_for_sync(10)
        recorder.take()
        api.hold_watches = True
        yield Setting(api, cache, CachedClient(client, cache), recorder)


def body(name: str, **metadata: object) -> Object:
    return {"metadata": {"name": name, "namespace": "default", **metadata}}


def a_patch(**metadata: object) -> MergePatch:
    return MergePatch({"metadata": metadata})


@in_virtual_time
async def test_every_write_is_seen_at_once_and_every_change_is_told_once() -> None:
    async with a_setting() as setting:
        client = setting.client
        created = await client.create(PODS, body("a"))
        assert setting.known("a") == created
        patched = await client.patch(PODS, "a", "default", patch=a_patch(labels={"x": "1"}))
        assert setting.known("a") == patched
        assert patched.metadata.labels == {"x": "1"}
        updated = await client.update(PODS, body("a", labels={"x": "2"}))
        assert setting.known("a") == updated
        assert setting.recorder.events == ["add a@2", "update a@2->3", "update a@3->4"]
        deleted = await client.delete(PODS, "a", "default")
        assert deleted.remaining is None
        assert setting.known("a") is None
        assert setting.unconfirmed == 1
        setting.api.release_watches()
        await eventually(lambda: setting.unconfirmed == 0)
        assert setting.recorder.events == ["add a@2", "update a@2->3", "update a@3->4", "delete a@4"]


@in_virtual_time
async def test_a_deleted_object_that_a_finalizer_holds_is_seen_as_terminating() -> None:
    async with a_setting() as setting:
        await setting.client.create(PODS, body("a", finalizers=["x/y"]))
        deleted = await setting.client.delete(PODS, "a", "default")
        assert deleted.remaining is not None
        known = setting.known("a")
        assert known is not None
        assert known.metadata.deletion_timestamp is not None
        assert setting.unconfirmed == 0


@in_virtual_time
async def test_removing_the_last_finalizer_of_a_terminating_object_is_seen_as_its_deletion() -> None:
    async with a_setting() as setting:
        await setting.client.create(PODS, body("a", finalizers=["x/y", "x/z"]))
        await setting.client.delete(PODS, "a", "default")
        await setting.client.patch(PODS, "a", "default", patch=a_patch(finalizers=["x/z"]))
        known = setting.known("a")
        assert known is not None
        assert known.metadata.finalizers == ["x/z"]
        # The answer to this one carries the version from before.
        await setting.client.patch(PODS, "a", "default", patch=a_patch(finalizers=None))
        assert setting.known("a") is None
        # The name can be used again at once.
        again = await setting.client.create(PODS, body("a"))
        assert setting.known("a") == again
        setting.api.release_watches()
        await eventually(lambda: setting.unconfirmed == 0)
        assert setting.known("a") == again
        assert setting.recorder.events == ["add a@2", "update a@2->3", "update a@3->4", "delete a@4", "add a@6"]


@in_virtual_time
async def test_a_write_that_fails_changes_nothing() -> None:
    async with a_setting() as setting:
        created = await setting.client.create(PODS, body("a"))
        with pytest.raises(ConflictError):
            await setting.client.delete(PODS, "a", "default", uid="another")
        with pytest.raises(ConflictError):
            await setting.client.update(PODS, body("a", resourceVersion="1"))
        with pytest.raises(NotFoundError):
            await setting.client.patch(PODS, "b", "default", patch=a_patch(labels={}))
        assert setting.known("a") == created
        assert setting.unconfirmed == 0


@in_virtual_time
async def test_kinds_that_are_not_cached_are_written_too_and_read_live() -> None:
    async with a_setting() as setting:
        client = setting.client
        await client.create(SECRETS, body("s"))
        await client.patch(SECRETS, "s", "default", patch=a_patch(labels={"x": "1"}))
        await client.update(SECRETS, body("s", labels={"x": "2"}))
        secret = await client.api_reader.get(SECRETS, "s", "default")
        assert secret.metadata.labels == {"x": "2"}
        assert (await client.delete(SECRETS, "s", "default")).uid == secret.metadata.uid


@in_virtual_time
async def test_objects_with_generated_names_are_seen_too() -> None:
    async with a_setting() as setting:
        created = await setting.client.create(PODS, {"metadata": {"generateName": "a-", "namespace": "default"}})
        assert setting.known(created.metadata.name) == created


@pytest.mark.parametrize("seed", range(40))
def test_what_we_wrote_is_never_unseen_whatever_the_watch_does(seed: int) -> None:
    """Several writers, each of which knows what it wrote last, look after every await; the watch lags, ends, is cut,
    and must list anew. Others write as well."""

    async def main() -> None:
        random = Random(seed)
        api = ModelApi()
        async with a_setting(api) as setting:

            async def trouble() -> None:
                while True:
                    await asyncio.sleep(random.expovariate(2))
                    step = random.choice(["hold", "release", "release", "cut", "end", "compact"])
                    if step == "hold":
                        api.hold_watches = True
                    elif step == "release":
                        api.release_watches()
                    elif step == "compact":
                        api.compact()
                    else:
                        (api.cut_watches if step == "cut" else api.end_watches)()
                    api.delay = random.choice([0.0, 0.0, 0.01, 0.5])

            async def strangers() -> None:
                while True:
                    await asyncio.sleep(random.expovariate(5))
                    keys = [key for key in api.objects if key[2].startswith("shared")]
                    if keys:
                        collection, namespace, name = random.choice(keys)
                        label = {"seen": str(api.version)}
                        api.put(collection, {"metadata": {"name": name, "namespace": namespace, "annotations": label}})

            async def writer(name: str) -> None:
                for _ in range(40):
                    known = setting.known(name)
                    assert known is None
                    finalizers = ["x/y"] if random.random() < 0.5 else []
                    mine = await setting.client.create(PODS, body(name, finalizers=finalizers))
                    version = int(mine.metadata.resource_version)
                    for step in range(random.randrange(4)):
                        seen = setting.known(name)
                        assert seen is not None
                        assert seen.metadata.uid == mine.metadata.uid
                        assert int(seen.metadata.resource_version) >= version
                        patch = a_patch(labels={"step": str(step)})
                        patched = await setting.client.patch(PODS, name, "default", patch=patch)
                        version = int(patched.metadata.resource_version)
                        await asyncio.sleep(random.expovariate(10))
                        seen = setting.known(name)
                        assert seen is not None
                        assert int(seen.metadata.resource_version) >= version
                        assert seen.metadata.labels == {"step": str(step)}
                    await setting.client.delete(PODS, name, "default", uid=mine.metadata.uid)
                    if finalizers:
                        await asyncio.sleep(random.expovariate(10))
                        seen = setting.known(name)
                        assert seen is not None
                        assert seen.metadata.deletion_timestamp is not None
                        await setting.client.patch(PODS, name, "default", patch=a_patch(finalizers=None))
                    assert setting.known(name) is None
                    await asyncio.sleep(random.expovariate(10))

            nuisances = [asyncio.create_task(trouble()), asyncio.create_task(strangers())]
            async with asyncio.TaskGroup() as writers:
                for number in range(4):
                    writers.create_task(writer(f"shared{number}" if number % 2 else f"own{number}"))
            for nuisance in nuisances:
                nuisance.cancel()
            api.delay = 0.0
            api.put(PODS_PATH, body("last"))
            api.release_watches()
            await eventually(lambda: setting.known("last") is not None and setting.unconfirmed == 0)
            stored = {pod.metadata.name: pod.metadata.resource_version for pod in setting.cache.list(PODS)}
            assert stored == {key[2]: pod["metadata"]["resourceVersion"] for key, pod in api.objects.items()}

    run_in_virtual_time(main(), seed)
