"""The cache on the embedded API server: over HTTP with cuts, and in the same process in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from runherd.kube.client import Client
from runherd.kube.retry import RetryPolicy
from runherd.local.apiserver.server import ApiServer
from runherd.local.apiserver.store import Store
from runherd.runtime.cache import Cache
from runherd.runtime.client import CachedClient
from runherd.runtime.informer import InformerOptions
from runherd.wire.clock import EventLoopClock
from runherd.wire.in_process import InProcessTransport
from runherd.wire.network import NetworkTransport
from runherd.wire.retry import Backoff
from runherd.wire.server import Server
from runherd.wire.transport import Transport
from tests.runtime.api import running
from tests.support.cutting_proxy import CuttingProxy
from tests.support.random_writes import RandomWrites
from tests.support.virtual_time import run_in_virtual_time


@asynccontextmanager
async def an_api_server(random: Random) -> AsyncIterator[ApiServer]:
    server = ApiServer(Store(), random=random, clock=EventLoopClock())
    await server.start()
    yield server
    await server.close()


def a_client(transport: Transport, url: str, random: Random) -> Client:
    return Client(transport, url, limiter=None, clock=EventLoopClock(), random=random, retry=RetryPolicy(attempts=1))


@pytest.mark.slow
async def test_after_10_000_random_writes_and_cuts_the_cache_equals_a_fresh_list() -> None:
    random = Random(30)
    async with an_api_server(random) as api:
        server = Server(api.handle)
        port = await server.start()
        async with CuttingProxy("127.0.0.1", port) as proxy:
            client = a_client(NetworkTransport(), proxy.url, random)
            stranger = a_client(NetworkTransport(), server.url, random)
            options = InformerOptions(backoff=Backoff(initial=0.01, limit=0.5, jitter=1.0))
            cache = Cache(client, random=random, options=options)
            writes = RandomWrites(cache, CachedClient(client, cache), stranger, ["default", "kube-public"], random)
            async with running(cache.run):
                await cache.wait_for_sync(60)
                proxy.unleash(random, 0.01)
                await writes.run(10_000)
                proxy.unleash(random, 0)
                await writes.settle()
            await client.close()
            await stranger.close()
        await server.close()
    assert writes.written > 5_000
    assert proxy.cuts > 50


@pytest.mark.parametrize("seed", range(5))
def test_any_order_of_tasks_leads_to_a_cache_that_equals_a_fresh_list(seed: int) -> None:
    async def main() -> None:
        random = Random(seed)
        async with an_api_server(random) as api:
            client = a_client(InProcessTransport(api.handle), "http://kubernetes.test", random)
            cache = Cache(client, random=random)
            writes = RandomWrites(cache, CachedClient(client, cache), client, ["default"], random, names=20)
            async with running(cache.run):
                await cache.wait_for_sync(60)
                await writes.run(1000)
                await writes.settle()
        assert writes.written > 500

    run_in_virtual_time(main(), seed)
