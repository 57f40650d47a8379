"""Watches in virtual time: bookmarks, ends, and what becomes of those that are too slow."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random
from typing import Any

from runherd.local.apiserver.server import ApiServer
from runherd.local.apiserver.store import Limits, Store
from runherd.wire.clock import EventLoopClock
from runherd.wire.in_process import InProcessTransport
from runherd.wire.transport import Request, Timeouts
from tests.support.virtual_time import run_in_virtual_time

_MAPS = "http://embedded/api/v1/namespaces/default/configmaps"
_FOREVER = Timeouts(total=None)


class Client:
    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.transport = InProcessTransport(server.handle)

    async def call(self, method: str, url: str, body: object = None) -> Any:
        request = Request(method, url, {"Content-Type": "application/json"}, json.dumps(body).encode() if body else b"")
        response = await self.transport.request(request)
        assert response.status < 300, response.body
        return json.loads(response.body)

    async def create(self, name: str) -> Any:
        return await self.call("POST", _MAPS, {"metadata": {"name": name}, "data": {"k": "x" * 1000}})

    async def watch(self, query: str) -> AsyncIterator[dict[str, Any]]:
        """The events of a watch, as long as it lasts."""
        async with self.transport.stream(Request("GET", f"{_MAPS}?watch=true&{query}"), _FOREVER) as stream:
            assert stream.status == 200
            rest = b""
            async for chunk in stream.chunks():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield json.loads(line)


def simulated(test: Callable[[Client], Awaitable[None]], limits: Limits | None = None, seed: int = 1) -> None:
    async def main() -> None:
        server = ApiServer(Store(limits=limits), random=Random(seed), clock=EventLoopClock())
        await server.start()
        client = Client(server)
        await test(client)
        await client.transport.close()
        await server.close()

    run_in_virtual_time(main(), seed)


def test_bookmarks_come_every_minute_to_those_who_ask() -> None:
    async def test(client: Client) -> None:
        loop = asyncio.get_running_loop()
        start = loop.time()
        times = []
        async for event in client.watch("allowWatchBookmarks=true&resourceVersion=5"):
            assert event["type"] == "BOOKMARK"
            assert (event["object"]["kind"], event["object"]["apiVersion"]) == ("ConfigMap", "v1")
            assert event["object"]["metadata"] == {"resourceVersion": "5"}
            times.append(loop.time() - start)
            if len(times) == 3:
                break
        assert times == [60, 120, 180]

    simulated(test)


def test_a_bookmark_tells_of_writes_to_other_kinds() -> None:
    async def test(client: Client) -> None:
        await client.call("POST", "http://embedded/api/v1/namespaces", {"metadata": {"name": "other"}})
        async for event in client.watch("allowWatchBookmarks=true&resourceVersion=5"):
            assert event["object"]["metadata"]["resourceVersion"] == "6"
            break

    simulated(test)


def test_a_watch_without_a_timeout_ends_after_half_an_hour_to_an_hour() -> None:
    async def test(client: Client) -> None:
        start = asyncio.get_running_loop().time()
        events = [event async for event in client.watch("resourceVersion=5")]
        assert events == []
        assert 1800 <= asyncio.get_running_loop().time() - start <= 3600

    simulated(test)


def test_a_watch_with_a_timeout_ends_with_a_bookmark() -> None:
    async def test(client: Client) -> None:
        await client.create("a")
        events = [event async for event in client.watch("resourceVersion=5&timeoutSeconds=10&allowWatchBookmarks=true")]
        assert [event["type"] for event in events] == ["ADDED", "BOOKMARK"]

    simulated(test)


def test_a_watch_from_a_version_that_is_gone_is_told_so() -> None:
    async def test(client: Client) -> None:
        for name in "abcde":
            await client.create(name)
        (event,) = [event async for event in client.watch("resourceVersion=5")]
        assert event["type"] == "ERROR"
        assert event["object"] == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": "too old resource version: 5 (10)",
            "reason": "Expired",
            "code": 410,
        }

    simulated(test, Limits(events=3))


def test_a_list_of_a_moment_that_is_gone_is_expired() -> None:
    async def test(client: Client) -> None:
        for name in "abcde":
            await client.create(name)
        first = await client.call("GET", f"{_MAPS}?limit=2")
        for name in "fghi":
            await client.create(name)
        request = Request("GET", f"{_MAPS}?limit=2&continue={first['metadata']['continue']}")
        answer = await client.transport.request(request)
        status = json.loads(answer.body)
        assert (answer.status, status["reason"]) == (410, "Expired")
        # The list can be gone on with, at the present state.
        rest = await client.call("GET", f"{_MAPS}?continue={status['metadata']['continue']}")
        assert [item["metadata"]["name"] for item in rest["items"]] == list("cdefghi")
        answer = await client.transport.request(Request("GET", f"{_MAPS}?resourceVersion=5&resourceVersionMatch=Exact"))
        assert (answer.status, json.loads(answer.body)["reason"]) == (410, "Expired")

    simulated(test, Limits(events=3))


def test_a_watch_that_is_too_slow_is_cut_and_the_others_are_not() -> None:
    async def test(client: Client) -> None:
        slow = client.watch("resourceVersion=5")
        await client.create("first")
        assert (await anext(slow))["object"]["metadata"]["name"] == "first"
        seen: list[str] = []

        async def follow() -> None:
            async for event in client.watch("resourceVersion=5"):
                seen.append(event["type"])  # noqa: PERF401  # it is looked at before the watch ends

        following = asyncio.ensure_future(follow())
        for number in range(400):
            await client.create(f"c{number}")
        await asyncio.sleep(1)
        types = [event["type"] async for event in slow]
        assert types[-1] == "ERROR"
        assert len(types) < 400
        assert seen == ["ADDED"] * 401
        following.cancel()

    simulated(test, Limits(events=10))


def test_events_are_kept_for_an_hour_after_their_last_write() -> None:
    async def test(client: Client) -> None:
        url = "http://embedded/api/v1/namespaces/default/events"
        for name in ("a", "b"):
            body = {"metadata": {"name": name}, "involvedObject": {"namespace": "default"}}
            await client.call("POST", url, body)
        await asyncio.sleep(3000)
        request = Request("PATCH", f"{url}/b", {"Content-Type": "application/merge-patch+json"}, b'{"count": 2}')
        assert (await client.transport.request(request)).status == 200
        await asyncio.sleep(601)
        assert [each["metadata"]["name"] for each in (await client.call("GET", url))["items"]] == ["b"]
        await asyncio.sleep(3000)
        assert (await client.call("GET", url))["items"] == []

    simulated(test)


def test_closing_ends_watches() -> None:
    async def test(client: Client) -> None:
        watching = client.watch("")
        await client.create("a")
        assert (await anext(watching))["type"] == "ADDED"
        await client.server.close()
        assert [event async for event in watching] == []

    simulated(test)
