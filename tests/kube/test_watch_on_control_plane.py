"""Watches on a real API server, and what happens to them and to requests when connections don't last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from runherd.api.core import CONFIG_MAPS, ROLE_BINDINGS, ConfigMap
from runherd.kube.client import Client
from runherd.kube.config import ClientConfig
from runherd.kube.dynamic import dynamic_resource
from runherd.kube.errors import AlreadyExistsError, ApiError, GoneError
from runherd.kube.patch import MergePatch
from runherd.kube.retry import RetryPolicy
from runherd.kube.watch import WatchEvent
from runherd.wire.retry import Backoff
from runherd.wire.tls import client_context
from runherd.wire.transport import ConnectionLostError, TransportError
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.plugin import ControlPlaneFactory
from tests.kube.on_control_plane import client_of, client_through, config_map, config_of, proxy_to
from tests.support.cutting_proxy import CuttingProxy, Fault

#: What Kubernetes itself puts into a namespace doesn't have this label.
OURS = "test=yes"
QUICK = RetryPolicy(attempts=6, backoff=Backoff(initial=0.01, limit=0.1))


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[Client]:
    async with client_of(config_of(control_plane.admin_kubeconfig)) as client:
        yield client


@pytest.fixture
async def proxy(control_plane: ControlPlane) -> AsyncIterator[CuttingProxy]:
    async with proxy_to(control_plane.admin_kubeconfig, control_plane.port) as proxy:
        yield proxy


@pytest.fixture
async def cut_client(proxy: CuttingProxy) -> AsyncIterator[Client]:
    """A client whose connections go through the proxy."""
    async with client_through(proxy, QUICK) as client:
        yield client


async def version_of(client: Client, namespace: str) -> str:
    return (await client.list(CONFIG_MAPS, namespace)).resource_version


def told(event: WatchEvent[ConfigMap]) -> tuple[str, str, dict[str, str]]:
    return event.type, event.object.metadata.name, event.object.data


async def collect(events: AsyncIterator[WatchEvent[ConfigMap]], into: list[WatchEvent[ConfigMap]]) -> None:
    async for event in events:
        into.append(event)  # noqa: PERF401  # what came before an error is to be seen


# --- Watches -------------------------------------------------------------------------------------------------------


async def test_every_change_is_an_event(client: Client, namespace: str) -> None:
    version = await version_of(client, namespace)
    async with client.watch(CONFIG_MAPS, namespace, resource_version=version, label_selector=OURS) as events:
        await client.create(CONFIG_MAPS, config_map("one", a="1"), namespace)
        await client.patch(CONFIG_MAPS, "one", namespace, patch=MergePatch({"data": {"a": "2"}}))
        await client.delete(CONFIG_MAPS, "one", namespace)
        seen = [await anext(events) for _ in range(3)]
    assert [told(event) for event in seen] == [
        ("ADDED", "one", {"a": "1"}),
        ("MODIFIED", "one", {"a": "2"}),
        ("DELETED", "one", {"a": "2"}),
    ]
    versions = [int(event.resource_version) for event in seen]
    assert versions == sorted(set(versions))
    async with client.watch(
        CONFIG_MAPS, namespace, resource_version=seen[1].resource_version, label_selector=OURS
    ) as events:
        assert told(await anext(events)) == ("DELETED", "one", {"a": "2"})


async def test_a_watch_ends_cleanly_in_its_time_after_a_bookmark(client: Client, namespace: str) -> None:
    version = await version_of(client, namespace)
    async with client.watch(
        CONFIG_MAPS, namespace, resource_version=version, label_selector=OURS, timeout_seconds=4
    ) as events:
        created = await client.create(CONFIG_MAPS, config_map("one"), namespace)
        seen = [event async for event in events]
    types = [event.type for event in seen]
    assert types[0] == "ADDED"
    assert "BOOKMARK" in types
    bookmark = seen[types.index("BOOKMARK")]
    assert int(bookmark.resource_version) >= int(created.metadata.resource_version)


async def test_a_streaming_list(client: Client, namespace: str) -> None:
    for name in ("a", "b"):
        await client.create(CONFIG_MAPS, config_map(name), namespace)
    async with client.watch(CONFIG_MAPS, namespace, label_selector=OURS, send_initial_events=True) as events:
        initial = []
        async for event in events:
            if event.initial_events_end:
                break
            initial.append(event)
        assert [(event.type, event.object.metadata.name) for event in initial] == [("ADDED", "a"), ("ADDED", "b")]
        assert int(event.resource_version) >= max(int(each.resource_version) for each in initial)
        await client.create(CONFIG_MAPS, config_map("c"), namespace)
        assert (await anext(events)).object.metadata.name == "c"


async def test_an_object_of_nearly_the_largest_size(client: Client, namespace: str) -> None:
    version = await version_of(client, namespace)
    text = "x" * 1_000_000
    async with client.watch(CONFIG_MAPS, namespace, resource_version=version, label_selector=OURS) as events:
        await client.create(CONFIG_MAPS, config_map("big", text=text), namespace)
        assert (await anext(events)).object.data["text"] == text


# --- Connections that are cut --------------------------------------------------------------------------------------


async def test_a_read_survives_a_cut_before_the_headers(
    client: Client, cut_client: Client, proxy: CuttingProxy, namespace: str
) -> None:
    await client.create(CONFIG_MAPS, config_map("one"), namespace)
    for fault in (Fault.ON_CONNECT, Fault.BEFORE_HEADERS, Fault.INSIDE_LINE):
        proxy.cut_now()  # so that a new connection is made
        proxy.fail_next(fault)
        assert (await cut_client.get(CONFIG_MAPS, "one", namespace)).metadata.name == "one"
    assert proxy.cuts >= 2


async def test_a_create_whose_answer_is_lost_is_not_repeated(
    cut_client: Client, proxy: CuttingProxy, namespace: str
) -> None:
    proxy.fail_next(Fault.BEFORE_HEADERS, matching=b"POST")
    with pytest.raises(ConnectionLostError) as caught:
        await cut_client.create(CONFIG_MAPS, config_map("one"), namespace)
    assert caught.value.request_sent
    assert caught.value.__notes__ == [f"while trying to create configmaps {namespace}/one (attempt 1)"]
    with pytest.raises(AlreadyExistsError):
        await cut_client.create(CONFIG_MAPS, config_map("one"), namespace)


async def test_a_delete_of_a_uid_survives_a_lost_answer(
    client: Client, cut_client: Client, proxy: CuttingProxy, namespace: str
) -> None:
    created = await client.create(CONFIG_MAPS, config_map("one"), namespace)
    proxy.fail_next(Fault.BEFORE_HEADERS, matching=b"DELETE")
    deleted = await cut_client.delete(CONFIG_MAPS, "one", namespace, uid=created.metadata.uid)
    assert (deleted.uid, deleted.remaining) == (created.metadata.uid, None)
    assert proxy.cuts == 1


@pytest.mark.parametrize("fault", [Fault.INSIDE_LINE, Fault.BETWEEN_EVENTS])
async def test_a_watch_that_is_cut_says_so_and_goes_on_behind_the_last_whole_event(
    client: Client, cut_client: Client, proxy: CuttingProxy, namespace: str, fault: Fault
) -> None:
    seen: list[WatchEvent[ConfigMap]] = []
    position = await version_of(client, namespace)
    async with cut_client.watch(CONFIG_MAPS, namespace, resource_version=position, label_selector=OURS) as events:
        await client.create(CONFIG_MAPS, config_map("one"), namespace)
        seen.append(await anext(events))
        proxy.fail_next(fault, matching=b"watch=true")
        await client.create(CONFIG_MAPS, config_map("two"), namespace)
        with pytest.raises(ConnectionLostError):
            await collect(events, seen)
    position = seen[-1].resource_version
    cut_after = ["one"] if fault is Fault.INSIDE_LINE else ["one", "two"]
    assert [event.object.metadata.name for event in seen] == cut_after
    await client.create(CONFIG_MAPS, config_map("three"), namespace)
    async with cut_client.watch(CONFIG_MAPS, namespace, resource_version=position, label_selector=OURS) as events:
        while len(seen) < 3:
            seen.append(await anext(events))
    assert [event.object.metadata.name for event in seen] == ["one", "two", "three"]


async def test_the_opening_of_a_watch_is_repeated(
    client: Client, cut_client: Client, proxy: CuttingProxy, namespace: str
) -> None:
    await client.create(CONFIG_MAPS, config_map("one"), namespace)
    proxy.fail_next(Fault.BEFORE_HEADERS, matching=b"watch=true", times=2)
    async with cut_client.watch(CONFIG_MAPS, namespace, label_selector=OURS) as events:
        assert (await anext(events)).object.metadata.name == "one"
    assert proxy.cuts == 2


class Follower:
    """The least that follows a collection: lists, watches, goes on after whatever happens."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self.objects: dict[str, dict[str, str]] = {}
        self.interruptions = 0
        #: Set once the first watch is open.
        self.watching = asyncio.Event()

    async def until(self, name: str) -> None:
        """Follow until an object ``name`` is seen."""
        version = ""
        while name not in self.objects:
            try:
                if not version:
                    version = await self._list()
                else:
                    version = await self._watch(version, name)
            except GoneError:
                version = ""
            except (TransportError, ApiError):
                self.interruptions += 1

    async def _list(self) -> str:
        listed = await self._client.list(CONFIG_MAPS, self._namespace, label_selector=OURS, page_size=7)
        self.objects = {item.metadata.name: item.data for item in listed.items}
        return listed.resource_version

    async def _watch(self, version: str, name: str) -> str:
        self._last = version
        try:
            async with self._client.watch(
                CONFIG_MAPS, self._namespace, resource_version=version, label_selector=OURS
            ) as events:
                self.watching.set()
                async for event in events:
                    self._take(event)
                    if name in self.objects:
                        break
        except TransportError:
            self.interruptions += 1
        return self._last

    def _take(self, event: WatchEvent[ConfigMap]) -> None:
        self._last = event.resource_version
        if event.type == "DELETED":
            del self.objects[event.object.metadata.name]
        elif event.type != "BOOKMARK":
            self.objects[event.object.metadata.name] = event.object.data


async def random_writes(client: Client, namespace: str, random: Random, count: int) -> None:
    """``count`` creates, changes and deletes of 20 objects, and then one named ``end``."""
    there: set[str] = set()
    for number in range(count):
        name = f"c{random.randrange(20)}"
        if name not in there:
            await client.create(CONFIG_MAPS, config_map(name, number=str(number)), namespace)
            there.add(name)
        elif random.random() < 0.3:
            await client.delete(CONFIG_MAPS, name, namespace)
            there.remove(name)
        else:
            patch = MergePatch({"data": {"number": str(number)}})
            await client.patch(CONFIG_MAPS, name, namespace, patch=patch)
    await client.create(CONFIG_MAPS, config_map("end"), namespace)


async def state_of(client: Client, namespace: str) -> dict[str, dict[str, str]]:
    listed = await client.list(CONFIG_MAPS, namespace, label_selector=OURS)
    return {item.metadata.name: item.data for item in listed.items}


async def test_no_change_is_missed_however_connections_are_cut(
    client: Client, cut_client: Client, proxy: CuttingProxy, namespace: str
) -> None:
    random = Random(20260101)
    proxy.unleash(random, 0.1)
    follower = Follower(cut_client, namespace)
    async with asyncio.timeout(120):
        await asyncio.gather(follower.until("end"), random_writes(client, namespace, random, 400))
    proxy.unleash(random, 0)
    assert follower.objects == await state_of(client, namespace)
    assert follower.interruptions > 10


async def test_no_change_is_missed_by_one_that_reads_slowly(
    client: Client, cut_client: Client, proxy: CuttingProxy, namespace: str
) -> None:
    follower = Follower(cut_client, namespace)
    following = asyncio.create_task(follower.until("end"))
    async with asyncio.timeout(120):
        await follower.watching.wait()
        proxy.freeze()
        # More than the buffers between server and client hold.
        for number in range(60):
            await client.create(CONFIG_MAPS, config_map(f"large{number}", text="x" * 200_000), namespace)
        await client.create(CONFIG_MAPS, config_map("end"), namespace)
        proxy.thaw()
        await following
    assert follower.objects == await state_of(client, namespace)


# --- The server itself ---------------------------------------------------------------------------------------------


async def test_a_restart_of_the_server(control_plane_factory: ControlPlaneFactory) -> None:
    control_plane = await asyncio.to_thread(control_plane_factory, controllers=())
    patient = RetryPolicy(attempts=1000, backoff=Backoff(initial=0.05, limit=0.2))
    async with (
        proxy_to(control_plane.admin_kubeconfig, control_plane.port) as proxy,
        client_through(proxy, patient) as client,
    ):
        follower = Follower(client, "default")
        following = asyncio.create_task(follower.until("end"))
        await client.create(CONFIG_MAPS, config_map("before"), "default")
        await asyncio.to_thread(control_plane.apiserver.kill)
        reading = asyncio.create_task(client.get(CONFIG_MAPS, "before", "default"))
        await asyncio.to_thread(control_plane.start_apiserver)
        assert (await reading).metadata.name == "before"
        await client.create(CONFIG_MAPS, config_map("end"), "default")
        await following
        assert set(follower.objects) == {"before", "end"}


class Codes:
    """Counts answers; tells when the first 429 has come."""

    def __init__(self) -> None:
        self.codes: list[str] = []
        self.limited = asyncio.Event()

    def request_finished(self, method: str, host: str, code: str, seconds: float) -> None:
        self.codes.append(code)
        if code == "429":
            self.limited.set()

    def limiter_waited(self, method: str, host: str, seconds: float) -> None:
        """Not looked at."""


LEVELS = dynamic_resource(
    "flowcontrol.apiserver.k8s.io", "v1", "prioritylevelconfigurations", "PriorityLevelConfiguration", namespaced=False
)
SCHEMAS = dynamic_resource("flowcontrol.apiserver.k8s.io", "v1", "flowschemas", "FlowSchema", namespaced=False)


@asynccontextmanager
async def one_request_at_a_time(client: Client, namespace: str, group: str) -> AsyncIterator[None]:
    """Lets ``group`` work in ``namespace``, and the server refuse its requests while it is busy with another of it."""
    limited = {"nominalConcurrencyShares": 0, "lendablePercent": 0, "limitResponse": {"type": "Reject"}}
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
    rule = {"subjects": [{"kind": "Group", "group": {"name": group}}], "resourceRules": [everything]}
    schema = {"matchingPrecedence": 5, "priorityLevelConfiguration": {"name": group}, "rules": [rule]}
    subject = {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": group}
    role = {"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": "edit"}
    binding = {"metadata": {"name": group}, "subjects": [subject], "roleRef": role}
    await client.create(ROLE_BINDINGS, binding, namespace)
    await client.create(LEVELS, {"metadata": {"name": group}, "spec": {"type": "Limited", "limited": limited}})
    await client.create(SCHEMAS, {"metadata": {"name": group}, "spec": schema})
    try:
        async with client.watch(SCHEMAS, field_selector=f"metadata.name={group}") as events:
            async for event in events:
                if event.type != "BOOKMARK" and event.object.body.get("status", {}).get("conditions"):
                    break  # the server has taken notice
        yield
    finally:
        await client.delete(SCHEMAS, group)
        await client.delete(LEVELS, group)


@asynccontextmanager
async def endless_request(config: ClientConfig, path: str) -> AsyncIterator[None]:
    """Keeps the server busy with a create whose body never comes."""
    tls = client_context(
        roots=config.certificate_authority,
        system_roots=False,
        certificate=config.client_certificate,
        key=config.client_key,
    )
    host, port = config.server.removeprefix("https://").split(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=tls)
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{"
    writer.write(head.encode())
    await writer.drain()
    try:
        yield
    finally:
        writer.transport.abort()


async def test_a_server_that_sheds_load_is_asked_again_when_it_says_so(
    client: Client, control_plane: ControlPlane, namespace: str
) -> None:
    user = config_of(control_plane.kubeconfig("hurried", ["hurried"]))
    codes = Codes()
    async with one_request_at_a_time(client, namespace, "hurried"), client_of(user, codes) as hurried:
        async with endless_request(user, f"/api/v1/namespaces/{namespace}/configmaps"):
            # The first ones may come before the endless one does.
            while not codes.limited.is_set():
                creating = asyncio.create_task(
                    hurried.create(CONFIG_MAPS, {"metadata": {"generateName": "x-"}}, namespace)
                )
                limited = asyncio.create_task(codes.limited.wait())
                await asyncio.wait([creating, limited], return_when=asyncio.FIRST_COMPLETED)
                limited.cancel()
            assert not creating.done()
        assert (await creating).metadata.name
    assert codes.codes[-1] == "201"
