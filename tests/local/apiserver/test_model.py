"""Random calls against the server and against a small model of its rules."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from random import Random
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from runherd.local.apiserver.server import ApiServer
from runherd.local.apiserver.store import Store
from runherd.wire.clock import EventLoopClock
from runherd.wire.in_process import InProcessTransport
from runherd.wire.transport import Request, Response, Timeouts
from tests.support.virtual_time import VirtualTimeLoop

T = TypeVar("T")

_BASE = "http://embedded/api/v1/namespaces/default/configmaps"
_MERGE = "application/merge-patch+json"
names = st.sampled_from("abc")
values = st.sampled_from(["1", "2"])
labels = st.sampled_from([None, "x", "y"])
finalizers = st.lists(st.sampled_from(["runherd.dev/p", "runherd.dev/q"]), unique=True)


class Known:
    """What the model knows of one object."""

    def __init__(self, uid: str, version: str, value: str, label: str | None, holders: list[str]) -> None:
        self.uid = uid
        self.version = version
        self.value = value
        self.label = label
        self.finalizers = holders
        self.is_deleted = False


class Machine(RuleBasedStateMachine):
    """ConfigMaps ``a``, ``b`` and ``c`` with one value, one label and finalizers; and a watch from the beginning."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualTimeLoop(0)
        self.known: dict[str, Known] = {}
        self.last_version = 0
        #: What the watch must have sent.
        self.expected: list[tuple[str, str]] = []
        self.seen: list[dict[str, Any]] = []

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(coroutine)

    def teardown(self) -> None:
        async def close() -> None:
            self.watching.cancel()
            await asyncio.gather(self.watching, return_exceptions=True)
            await self.transport.close()
            await self.server.close()

        self.run(close())
        self.loop.close()

    @initialize()
    def start(self) -> None:
        async def prepare() -> None:
            self.server = ApiServer(Store(), random=Random(0), clock=EventLoopClock())
            await self.server.start()
            self.transport = InProcessTransport(self.server.handle)
            self.watching = asyncio.ensure_future(self.watch())

        self.run(prepare())

    async def watch(self) -> None:
        request = Request("GET", f"{_BASE}?watch=true")
        async with self.transport.stream(request, Timeouts(total=None)) as stream:
            rest = b""
            async for chunk in stream.chunks():
                *lines, rest = (rest + chunk).split(b"\n")
                self.seen += map(json.loads, lines)

    def call(
        self, method: str, name: str = "", body: object = None, content_type: str = "application/json"
    ) -> Response:
        url = f"{_BASE}/{name}" if name else _BASE
        data = json.dumps(body).encode() if body is not None else b""
        return self.run(self.transport.request(Request(method, url, {"Content-Type": content_type}, data)))

    def took(self, name: str, response: Response, event: str) -> None:
        """Take note of a write that succeeded."""
        metadata = json.loads(response.body)["metadata"]
        version = metadata["resourceVersion"]
        assert int(version) > self.last_version
        self.last_version = int(version)
        self.known[name].version = version
        self.expected.append((event, name))

    @rule(name=names, value=values, label=labels, holders=finalizers)
    def create(self, name: str, value: str, label: str | None, holders: list[str]) -> None:
        metadata: dict[str, Any] = {"name": name, "finalizers": holders, "labels": {"l": label} if label else {}}
        response = self.call("POST", "", {"metadata": metadata, "data": {"v": value}})
        if name in self.known:
            assert response.status == 409
            return
        assert response.status == 201
        made = json.loads(response.body)["metadata"]
        self.known[name] = Known(made["uid"], "", value, label, holders)
        self.took(name, response, "ADDED")

    @rule(name=names, value=values, stale=st.booleans())
    def update(self, name: str, value: str, stale: bool) -> None:
        known = self.known.get(name)
        version = known.version if known is not None and not stale else "1"
        metadata: dict[str, Any] = {"name": name, "resourceVersion": version}
        if known is not None:
            metadata |= {"finalizers": known.finalizers, "labels": {"l": known.label} if known.label else {}}
        response = self.call("PUT", name, {"metadata": metadata, "data": {"v": value}})
        if known is None:
            assert response.status == 404
        elif stale:
            assert response.status == 409
        else:
            assert response.status == 200
            self.changed(name, response, known.value != value)
            known.value = value

    def changed(self, name: str, response: Response, really: bool) -> None:
        if really:
            self.took(name, response, "MODIFIED")
        else:
            assert json.loads(response.body)["metadata"]["resourceVersion"] == self.known[name].version

    @rule(name=names, label=labels)
    def relabel(self, name: str, label: str | None) -> None:
        response = self.call("PATCH", name, {"metadata": {"labels": {"l": label}}}, _MERGE)
        known = self.known.get(name)
        if known is None:
            assert response.status == 404
            return
        assert response.status == 200
        self.changed(name, response, known.label != label)
        known.label = label

    @rule(name=names, holders=finalizers)
    def hold(self, name: str, holders: list[str]) -> None:
        response = self.call("PATCH", name, {"metadata": {"finalizers": holders}}, _MERGE)
        known = self.known.get(name)
        if known is None:
            assert response.status == 404
        elif known.is_deleted and set(holders) - set(known.finalizers):
            assert response.status == 422
        else:
            assert response.status == 200
            if known.is_deleted and not holders:
                self.removed(name)
            else:
                self.changed(name, response, known.finalizers != holders)
                known.finalizers = holders

    def removed(self, name: str) -> None:
        del self.known[name]
        self.expected.append(("DELETED", name))

    @rule(name=names, condition=st.sampled_from(["none", "right", "wrong"]))
    def delete(self, name: str, condition: str) -> None:
        known = self.known.get(name)
        body: dict[str, Any] = {}
        if condition != "none":
            uid = known.uid if known is not None and condition == "right" else "other"
            body = {"preconditions": {"uid": uid}}
        response = self.call("DELETE", name, body)
        if known is None:
            assert response.status == 404
        elif condition == "wrong":
            assert response.status == 409
        elif known.finalizers:
            assert response.status == 200
            if not known.is_deleted:
                known.is_deleted = True
                self.took(name, response, "MODIFIED")
        else:
            assert response.status == 200
            self.removed(name)

    @rule(label=st.sampled_from(["x", "y"]), limit=st.integers(min_value=1, max_value=3))
    def listed(self, label: str, limit: int) -> None:
        def page(query: str) -> Any:
            return json.loads(self.run(self.transport.request(Request("GET", f"{_BASE}?{query}"))).body)

        wanted = sorted(name for name, known in self.known.items() if known.label == label)
        assert [item["metadata"]["name"] for item in page(f"labelSelector=l%3D{label}")["items"]] == wanted
        found: list[str] = []
        query = f"limit={limit}"
        while query:
            answer = page(query)
            found += [item["metadata"]["name"] for item in answer["items"]]
            token = answer["metadata"].get("continue")
            query = f"limit={limit}&continue={token}" if token else ""
        assert found == sorted(self.known)

    @invariant()
    def the_server_agrees(self) -> None:
        items = json.loads(self.call("GET").body)["items"]
        shown = {
            item["metadata"]["name"]: (
                item["metadata"]["uid"],
                item["metadata"]["resourceVersion"],
                item["data"]["v"],
                item["metadata"].get("labels", {}).get("l"),
                item["metadata"].get("finalizers", []),
                "deletionTimestamp" in item["metadata"],
            )
            for item in items
        }
        assert shown == {
            name: (each.uid, each.version, each.value, each.label, each.finalizers, each.is_deleted)
            for name, each in self.known.items()
        }

    @invariant()
    def the_watch_has_told_all(self) -> None:
        self.run(asyncio.sleep(0.001))
        assert [(event["type"], event["object"]["metadata"]["name"]) for event in self.seen] == self.expected
        versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in self.seen]
        assert versions == sorted(set(versions))
        if versions:
            self.last_version = max(self.last_version, versions[-1])


TestModel = Machine.TestCase
TestModel.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
