"""The cache on a real API server, under everything that can go wrong between the two."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random

import pytest

from runherd.api.core import CONFIG_MAPS
from runherd.kube.client import Client
from runherd.kube.retry import RetryPolicy
from runherd.runtime.cache import Cache
from runherd.runtime.client import CachedClient
from runherd.runtime.informer import InformerOptions
from runherd.wire.retry import Backoff
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.plugin import ControlPlaneFactory
from tests.kube.on_control_plane import client_of, client_through, config_of, proxy_to
from tests.runtime.api import eventually, running
from tests.support.cutting_proxy import CuttingProxy
from tests.support.random_writes import RandomWrites

ONCE = RetryPolicy(attempts=1)
QUICK = InformerOptions(backoff=Backoff(initial=0.01, limit=0.5, jitter=1.0))


@asynccontextmanager
async def a_cache(
    control_plane: ControlPlane, random: Random, *namespaces: str
) -> AsyncIterator[tuple[Cache, CachedClient, Client, CuttingProxy]]:
    """A cache behind a proxy, and a client that is not."""
    async with (
        proxy_to(control_plane.admin_kubeconfig, control_plane.port) as proxy,
        client_through(proxy, ONCE) as client,
        client_of(config_of(control_plane.admin_kubeconfig)) as stranger,
    ):
        cache = Cache(client, random=random, namespaces=namespaces, options=QUICK)
        yield cache, CachedClient(client, cache), stranger, proxy


@asynccontextmanager
async def trouble(make: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    async def forever() -> None:
        while True:
            await make()

    async with running(forever):
        yield


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_after_10_000_random_writes_and_cuts_the_cache_equals_a_fresh_list(
    control_plane: ControlPlane, namespace: str
) -> None:
    random = Random(20)
    other = await asyncio.to_thread(control_plane.create_namespace)
    async with a_cache(control_plane, random, namespace, other) as (cache, client, stranger, proxy):
        writes = RandomWrites(cache, client, stranger, [namespace, other], random)

        async def one_trouble() -> None:
            await asyncio.sleep(random.expovariate(2))
            if random.random() < 0.7:
                proxy.cut_now()
            else:
                # A slow consumer: the stream stands still until the server's and the network's buffers are full.
                proxy.freeze()
                await asyncio.sleep(random.expovariate(4))
                proxy.thaw()

        async with running(cache.run):
            await cache.wait_for_sync(60)
            proxy.unleash(random, 0.01)
            async with trouble(one_trouble):
                await writes.run(10_000)
            proxy.unleash(random, 0)
            proxy.thaw()
            await writes.settle()
    assert writes.written > 5_000
    assert proxy.cuts > 50


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("watch_cache", [True, False])
async def test_nothing_is_missed_when_the_server_restarts_and_forgets(
    control_plane_factory: ControlPlaneFactory, watch_cache: bool
) -> None:
    """Killed and restarted, with its history compacted meanwhile: watches end in 410, or begin at a server that holds
    nothing of what was."""
    flags = [] if watch_cache else ["--watch-cache=false"]
    control_plane = await asyncio.to_thread(control_plane_factory, apiserver_flags=flags, controllers=())
    random = Random(21)
    async with a_cache(control_plane, random, "default") as (cache, client, stranger, _):
        writes = RandomWrites(cache, client, stranger, ["default"], random)
        restarts = 0

        async def restart() -> None:
            nonlocal restarts
            await asyncio.sleep(random.uniform(1, 2))
            if random.random() < 0.5:
                await asyncio.to_thread(control_plane.apiserver.kill)
            else:
                await asyncio.to_thread(control_plane.apiserver.stop)
            await asyncio.to_thread(control_plane.compact)
            await asyncio.to_thread(control_plane.start_apiserver)
            restarts += 1

        async with running(cache.run):
            await cache.wait_for_sync(60)
            async with trouble(restart):
                while restarts < 2:
                    await writes.run(300)
            await asyncio.to_thread(control_plane.wait_ready)
            await writes.settle()


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_server_whose_store_was_restored_from_a_backup_is_followed(
    control_plane_factory: ControlPlaneFactory,
) -> None:
    control_plane = await asyncio.to_thread(control_plane_factory, controllers=())
    store = control_plane._directory / "etcd"
    backup_of_store = control_plane._directory / "backup"
    random = Random(22)
    async with a_cache(control_plane, random, "default") as (cache, client, stranger, _):
        writes = RandomWrites(cache, client, stranger, ["default"], random)

        def restart_with(backup: bool) -> None:
            control_plane.apiserver.stop()
            control_plane.etcd.stop()
            if backup:
                shutil.rmtree(store)
                shutil.copytree(backup_of_store, store)
            else:
                shutil.copytree(store, backup_of_store)
            control_plane.start_etcd()
            control_plane.start_apiserver()

        async with running(cache.run):
            await cache.wait_for_sync(60)
            await writes.run(300)
            await asyncio.to_thread(restart_with, backup=False)
            await writes.run(1000)
            held = cache.store(CONFIG_MAPS, "default")
            assert held is not None
            before = held.latest
            await asyncio.to_thread(restart_with, backup=True)
            # Fewer writes than were lost: the versions that the cache knows are not reached again.
            await eventually(lambda: held.position < before, within=60)
            await writes.run(300)
            await writes.settle()
            assert held.latest < before
