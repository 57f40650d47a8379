from __future__ import annotations

import asyncio
from random import Random

import msgspec
import pytest

from runherd.api.core import NODES, PODS, SECRETS, Pod, PodStatus
from runherd.runtime.cache import Cache, CacheSyncError
from runherd.runtime.index import controller_owner_index, label_index
from tests.runtime.api import PODS_PATH, client_of, eventually, running
from tests.runtime.objects import Recorder
from tests.support.model_api import ModelApi, Object
from tests.support.virtual_time import in_virtual_time


def put(api: ModelApi, name: str, namespace: str = "default", *, owner: str = "", **labels: str) -> Object:
    metadata: Object = {"name": name, "namespace": namespace, "labels": labels}
    if owner:
        reference = {"apiVersion": "actions.github.com/v1alpha1", "kind": "EphemeralRunner", "name": owner, "uid": "u"}
        metadata["ownerReferences"] = [{**reference, "controller": True}]
    return api.put(PODS_PATH, {"metadata": metadata, "status": {"phase": "Pending"}})


def a_cache(api: ModelApi, *namespaces: str) -> Cache:
    return Cache(client_of(api), random=Random(5), namespaces=namespaces)


def names(pods: list[Pod]) -> list[str]:
    return sorted(f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in pods)


@in_virtual_time
async def test_reads_by_name_namespace_label_and_index() -> None:
    api = ModelApi()
    put(api, "a", owner="one", app="x")
    put(api, "b", owner="one", app="y", tier="front")
    put(api, "c", owner="two", app="y")
    put(api, "a", "other", owner="one", app="x")
    api.put("api/v1/nodes", {"metadata": {"name": "n"}})
    cache = a_cache(api)
    cache.register(NODES)
    cache.add_index(
        PODS, ".metadata.controller", controller_owner_index("actions.github.com/v1alpha1", "EphemeralRunner")
    )
    cache.add_index(PODS, "app", label_index("app"))
    async with running(cache.run):
        await cache.wait_for_sync(10)
        assert cache.has_synced()
        found = cache.get(PODS, "a", "other")
        assert found is not None
        assert found.metadata.namespace == "other"
        assert cache.get(PODS, "z", "default") is None
        assert cache.get(NODES, "n") is not None
        assert names(cache.list(PODS)) == ["default/a", "default/b", "default/c", "other/a"]
        assert names(cache.list(PODS, "other")) == ["other/a"]
        assert names(cache.list(PODS, labels={"app": "y", "tier": "front"})) == ["default/b"]
        assert names(cache.list(PODS, "default", index=(".metadata.controller", "one"))) == ["default/a", "default/b"]
        assert names(cache.list(PODS, "default", index=("app", "y"), labels={"tier": "front"})) == ["default/b"]
        assert cache.list(PODS, "default", index=("app", "nothing")) == []
        assert cache.count(PODS) == 4
        assert cache.count(PODS, "default") == 3
        assert cache.count(NODES) == 1
        assert cache.count(PODS, "default", index=(".metadata.controller", "one")) == 2
        put(api, "d", owner="one")
        await eventually(lambda: cache.count(PODS, "default", index=(".metadata.controller", "one")) == 3)


@in_virtual_time
async def test_a_list_belongs_to_the_caller() -> None:
    api = ModelApi()
    put(api, "a", app="x")
    cache = a_cache(api)
    cache.add_index(PODS, "app", label_index("app"))
    async with running(cache.run):
        await cache.wait_for_sync(10)
        for listed in (cache.list(PODS), cache.list(PODS, "default", index=("app", "x"))):
            listed.clear()
        assert len(cache.list(PODS)) == cache.count(PODS, "default", index=("app", "x")) == 1


@in_virtual_time
async def test_only_the_given_namespaces_are_watched_each_once_and_cluster_kinds_as_a_whole() -> None:
    api = ModelApi()
    for namespace in ("runners", "manager", "elsewhere"):
        put(api, "a", namespace)
    api.put("api/v1/nodes", {"metadata": {"name": "n"}})
    cache = a_cache(api, "runners", "manager", "runners")
    cache.register(PODS)
    cache.register(NODES)
    recorder = Recorder()
    cache.add_handler(PODS, recorder)
    async with running(cache.run):
        await cache.wait_for_sync(10)
        assert names(cache.list(PODS)) == ["manager/a", "runners/a"]
        assert cache.count(PODS) == 2
        assert cache.count(PODS, "runners") == 1
        assert cache.get(NODES, "n") is not None
        put(api, "b", "elsewhere")
        put(api, "c", "runners")
        await eventually(lambda: cache.get(PODS, "c", "runners") is not None)
        assert len(recorder.events) == 3
        with pytest.raises(LookupError, match="runners, manager only, not of elsewhere"):
            cache.get(PODS, "a", "elsewhere")
        assert cache.store(PODS, "elsewhere") is None
    watched = {request for request in api.requests if request.startswith("WATCH")}
    assert watched == {
        "WATCH /api/v1/namespaces/runners/pods",
        "WATCH /api/v1/namespaces/manager/pods",
        "WATCH /api/v1/nodes",
    }


@in_virtual_time
async def test_what_the_cache_does_not_hold_is_an_error_that_says_so() -> None:
    cache = a_cache(ModelApi())
    cache.register(PODS)
    with pytest.raises(LookupError, match="does not hold secrets"):
        cache.get(SECRETS, "a", "default")
    with pytest.raises(LookupError, match="are namespaced"):
        cache.get(PODS, "a")
    with pytest.raises(LookupError, match="no index 'app' on pods"):
        cache.list(PODS, "default", index=("app", "x"))
    assert cache.store(SECRETS, "default") is None


@in_virtual_time
async def test_everything_is_registered_before_the_cache_runs() -> None:
    cache = a_cache(ModelApi())
    cache.register(PODS)
    async with running(cache.run):
        await cache.wait_for_sync(10)
        cache.register(PODS)
        with pytest.raises(RuntimeError, match="register Node before"):
            cache.register(NODES)
    with pytest.raises(ValueError, match="transform the first time"):
        cache.register(PODS, transform=lambda pod: pod)


@in_virtual_time
async def test_the_transform_of_a_kind() -> None:
    api = ModelApi()
    put(api, "a")
    cache = a_cache(api)
    cache.register(PODS, transform=lambda pod: msgspec.structs.replace(pod, status=PodStatus()))
    async with running(cache.run):
        await cache.wait_for_sync(10)
        (found,) = cache.list(PODS)
        assert found.status == PodStatus()


@in_virtual_time
async def test_a_cache_that_can_not_be_filled_says_what_is_missing_and_why() -> None:
    api = ModelApi()
    api.refuse_next = [("WATCH", 403, "Forbidden")] * 1000
    cache = a_cache(api, "runners")
    cache.register(PODS)
    async with running(cache.run):
        with pytest.raises(CacheSyncError, match=r"within 120.* pods in runners \(watch pods in runners: Forbidden"):
            await cache.wait_for_sync(120)
        assert not cache.has_synced()
    assert asyncio.get_running_loop().time() == pytest.approx(120)
