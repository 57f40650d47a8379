"""Every verb, on a real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from runherd.api.core import CONFIG_MAPS, NAMESPACES, PODS, SECRETS, SERVICE_ACCOUNTS, Secret
from runherd.api.meta import ObjectMeta, Status
from runherd.kube.client import Client
from runherd.kube.connection import open_transport
from runherd.kube.dynamic import DynamicObject, dynamic_resource
from runherd.kube.errors import (
    AlreadyExistsError,
    BadRequestError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    MethodNotAllowedError,
    NotFoundError,
    RequestEntityTooLargeError,
    UnauthorizedError,
    UnsupportedMediaTypeError,
)
from runherd.kube.patch import ApplyPatch, JsonPatch, MergePatch, StrategicMergePatch
from runherd.wire.clock import SystemClock
from runherd.wire.transport import DEFAULT_TIMEOUTS, Request, Response, ResponseStream, Timeouts, Transport
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.programs import Programs
from tests.kube.on_control_plane import client_of, client_over, config_map, config_of, running_pod

DEPLOYMENTS = dynamic_resource("apps", "v1", "deployments", "Deployment")


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[Client]:
    async with client_of(config_of(control_plane.admin_kubeconfig)) as client:
        yield client


async def test_the_life_of_an_object(client: Client, namespace: str) -> None:
    created = await client.create(CONFIG_MAPS, config_map("one", a="1"), namespace)
    assert (created.metadata.namespace, created.data) == (namespace, {"a": "1"})
    assert await client.get(CONFIG_MAPS, "one", namespace) == created
    body = config_map("one", b="2")
    body["metadata"]["resourceVersion"] = created.metadata.resource_version
    updated = await client.update(CONFIG_MAPS, body, namespace)
    assert (updated.data, updated.metadata.uid) == ({"b": "2"}, created.metadata.uid)
    listed = await client.list(CONFIG_MAPS, namespace, label_selector="test=yes")
    assert listed.items == [updated]
    assert listed.resource_version
    await client.delete(CONFIG_MAPS, "one", namespace, uid=created.metadata.uid)
    with pytest.raises(NotFoundError, match=rf'get configmaps {namespace}/one: NotFound \(404\): configmaps "one" not'):
        await client.get(CONFIG_MAPS, "one", namespace)
    with pytest.raises(NotFoundError):
        await client.delete(CONFIG_MAPS, "one", namespace)


async def test_a_struct_can_be_created(client: Client, namespace: str) -> None:
    secret = Secret(metadata=ObjectMeta(name="s", namespace=namespace), data={"key": b"\x00\xff"})
    created = await client.create(SECRETS, secret)
    assert created.data == {"key": b"\x00\xff"}
    assert created.type == "Opaque"


async def test_a_name_can_be_left_to_the_server(client: Client, namespace: str) -> None:
    body = {"metadata": {"generateName": "many-"}}
    names = {(await client.create(CONFIG_MAPS, body, namespace)).metadata.name for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("many-") for name in names)


async def test_a_list_in_pages_shows_one_moment(client: Client, namespace: str) -> None:
    for number in range(7):
        await client.create(CONFIG_MAPS, config_map(f"c{number}"), namespace)
    pages = client.pages(CONFIG_MAPS, namespace, label_selector="test=yes", page_size=3)
    first = await anext(pages)
    await client.create(CONFIG_MAPS, config_map("c7-too-late"), namespace)
    await client.delete(CONFIG_MAPS, "c5", namespace)
    rest = [page async for page in pages]
    names = [item.metadata.name for page in (first, *rest) for item in page.items]
    assert names == [f"c{number}" for number in range(7)]
    assert {page.resource_version for page in (first, *rest)} == {first.resource_version}
    assert [len(page.items) for page in (first, *rest)] == [3, 3, 1]
    now = await client.list(CONFIG_MAPS, namespace, label_selector="test=yes", page_size=2)
    assert [item.metadata.name for item in now.items] == ["c0", "c1", "c2", "c3", "c4", "c6", "c7-too-late"]


async def test_selectors_and_resource_versions(client: Client, namespace: str) -> None:
    first = await client.create(CONFIG_MAPS, config_map("a"), namespace)
    await client.create(CONFIG_MAPS, {"metadata": {"name": "b"}}, namespace)
    by_field = await client.list(CONFIG_MAPS, namespace, field_selector="metadata.name=b")
    assert [item.metadata.name for item in by_field.items] == ["b"]
    version = first.metadata.resource_version
    then = await client.list(CONFIG_MAPS, namespace, resource_version=version, resource_version_match="Exact")
    assert "a" in [item.metadata.name for item in then.items]
    assert "b" not in [item.metadata.name for item in then.items]
    assert then.resource_version == version
    since = await client.list(CONFIG_MAPS, namespace, resource_version=version, resource_version_match="NotOlderThan")
    assert int(since.resource_version) >= int(version)
    assert (await client.get(CONFIG_MAPS, "a", namespace, resource_version=version)).metadata.name == "a"
    everywhere = await client.list(CONFIG_MAPS, label_selector="test=yes")
    assert (namespace, "a") in {(item.metadata.namespace, item.metadata.name) for item in everywhere.items}


async def test_four_kinds_of_patch(client: Client, namespace: str) -> None:
    pod = await client.create(dynamic_resource("", "v1", "pods", "Pod"), running_pod("web"), namespace)
    images: list[Any] = [{"name": "main", "image": "example.test/other"}]

    async def labels_after(patch: Any, **options: Any) -> dict[str, str]:
        return (await client.patch(PODS, "web", namespace, patch=patch, **options)).metadata.labels

    assert await labels_after(MergePatch({"metadata": {"labels": {"a": "1", "b": "2"}}})) == {"a": "1", "b": "2"}
    assert await labels_after(MergePatch({"metadata": {"labels": {"a": None}}})) == {"b": "2"}
    test = [{"op": "test", "path": "/metadata/labels/b", "value": "2"}, {"op": "remove", "path": "/metadata/labels/b"}]
    assert await labels_after(JsonPatch(test)) == {}
    with pytest.raises(InvalidError):
        await labels_after(JsonPatch(test))
    await client.patch(PODS, "web", namespace, patch=StrategicMergePatch({"spec": {"containers": images}}))
    got = await client.get(dynamic_resource("", "v1", "pods", "Pod"), "web", namespace)
    (container,) = got.body["spec"]["containers"]
    assert container["image"] == "example.test/other"
    assert container["imagePullPolicy"] == pod.body["spec"]["containers"][0]["imagePullPolicy"]
    mine = ApplyPatch({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"c": "3"}}})
    assert await labels_after(mine, field_manager="one") == {"c": "3"}
    other = ApplyPatch({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"c": "4"}}})
    with pytest.raises(ConflictError, match="Apply failed with 1 conflict"):
        await labels_after(other, field_manager="two")
    assert await labels_after(other, field_manager="two", force=True) == {"c": "4"}


async def test_a_patch_can_be_made_conditional(client: Client, namespace: str) -> None:
    created = await client.create(CONFIG_MAPS, config_map("one"), namespace)
    patch = MergePatch({"metadata": {"resourceVersion": created.metadata.resource_version}, "data": {"a": "1"}})
    await client.patch(CONFIG_MAPS, "one", namespace, patch=patch)
    with pytest.raises(ConflictError, match="the object has been modified"):
        await client.patch(CONFIG_MAPS, "one", namespace, patch=patch)


async def test_a_kind_that_has_no_strategic_merge_says_so(client: Client) -> None:
    crds = dynamic_resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "X", namespaced=False)
    kind = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {"group": "kube-client.test", "names": kind, "scope": "Cluster", "versions": [version]}
    await client.create(crds, {"metadata": {"name": "things.kube-client.test"}, "spec": spec})
    things = dynamic_resource("kube-client.test", "v1", "things", "Thing", namespaced=False)
    try:
        async with client.watch(crds, field_selector="metadata.name=things.kube-client.test") as events:
            async for event in events:
                if event.type == "BOOKMARK":
                    continue
                conditions = event.object.body.get("status", {}).get("conditions") or []
                if any(each["type"] == "Established" and each["status"] == "True" for each in conditions):
                    break
        thing = {"apiVersion": "kube-client.test/v1", "kind": "Thing", "metadata": {"name": "t"}}
        created = await client.create(things, thing)
        with pytest.raises(UnsupportedMediaTypeError):
            await client.patch(things, "t", patch=StrategicMergePatch({"spec": 1}))
        patched = await client.patch(things, "t", patch=MergePatch({"spec": {"anything": [1]}}))
        assert patched.body["spec"] == {"anything": [1]}
        assert patched.metadata.uid == created.metadata.uid
    finally:
        await client.delete(crds, "things.kube-client.test")


async def test_status_is_written_apart(client: Client, namespace: str) -> None:
    await client.create(PODS, running_pod("web"), namespace)
    patch = MergePatch({"status": {"phase": "Running"}, "metadata": {"labels": {"ignored": "yes"}}})
    patched = await client.patch(PODS, "web", namespace, patch=patch, subresource="status")
    assert patched.status.phase == "Running"
    body = (await client.get(dynamic_resource("", "v1", "pods", "Pod"), "web", namespace)).body
    body["status"] = {"phase": "Failed", "reason": "Gone"}
    updated = await client.update(PODS, body, subresource="status")
    assert (updated.status.phase, updated.status.reason) == ("Failed", "Gone")


async def test_scale(client: Client, namespace: str) -> None:
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": running_pod("x")["spec"] | {"terminationGracePeriodSeconds": 5},
    }
    spec = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    await client.create(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec}, namespace)
    scale = await client.get_subresource(DEPLOYMENTS, "web", "scale", DynamicObject, namespace)
    assert scale.body["spec"].get("replicas", 0) == 0
    scale.body["spec"]["replicas"] = 3
    after = await client.update_subresource(DEPLOYMENTS, "web", "scale", scale, DynamicObject, namespace)
    assert (after.kind, after.body["spec"]["replicas"]) == ("Scale", 3)


async def test_token_binding_and_eviction(client: Client, namespace: str) -> None:
    await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "robot"}}, namespace)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    token = await client.create_subresource(SERVICE_ACCOUNTS, "robot", "token", request, DynamicObject, namespace)
    assert token.body["status"]["token"].count(".") == 2
    await client.create(PODS, running_pod("web"), namespace)
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "web"},
        "target": {"kind": "Node", "name": "n"},
    }
    answer = await client.create_subresource(PODS, "web", "binding", binding, Status, namespace)
    assert answer.status == "Success"
    assert (await client.get(PODS, "web", namespace)).spec.node_name == "n"
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"}}
    await client.create_subresource(PODS, "web", "eviction", eviction, Status, namespace)
    assert (await client.get(PODS, "web", namespace)).metadata.deletion_timestamp is not None


async def test_delete_with_preconditions(client: Client, namespace: str) -> None:
    created = await client.create(CONFIG_MAPS, config_map("one"), namespace)
    with pytest.raises(ConflictError, match="the UID in the precondition"):
        await client.delete(CONFIG_MAPS, "one", namespace, uid="another")
    with pytest.raises(ConflictError, match="the ResourceVersion in the precondition"):
        await client.delete(CONFIG_MAPS, "one", namespace, resource_version="1")
    version = created.metadata.resource_version
    await client.delete(CONFIG_MAPS, "one", namespace, uid=created.metadata.uid, resource_version=version)


async def test_delete_with_grace(client: Client, namespace: str) -> None:
    pod = running_pod("web")
    pod["spec"]["nodeName"] = "nowhere"
    await client.create(PODS, pod, namespace)
    leaving = await client.delete(PODS, "web", namespace, grace_period_seconds=17)
    assert leaving.remaining is not None
    assert leaving.remaining.metadata.deletion_grace_period_seconds == 17
    assert (await client.get(PODS, "web", namespace)).metadata.deletion_timestamp is not None
    await client.delete(PODS, "web", namespace, grace_period_seconds=0)
    with pytest.raises(NotFoundError):
        await client.get(PODS, "web", namespace)


async def test_delete_with_propagation(client: Client, namespace: str) -> None:
    for policy, finalizer in (("Foreground", "foregroundDeletion"), ("Orphan", "orphan")):
        await client.create(CONFIG_MAPS, config_map(policy.lower()), namespace)
        held = await client.delete(CONFIG_MAPS, policy.lower(), namespace, propagation_policy=policy)
        assert held.remaining is not None
        assert held.remaining.metadata.finalizers == [finalizer]
    with pytest.raises(InvalidError):
        await client.delete(CONFIG_MAPS, "foreground", namespace, propagation_policy="Sideways")


async def test_refusals_have_their_types(client: Client, namespace: str, control_plane: ControlPlane) -> None:
    await client.create(CONFIG_MAPS, config_map("one"), namespace)
    with pytest.raises(AlreadyExistsError, match='configmaps "one" already exists'):
        await client.create(CONFIG_MAPS, config_map("one"), namespace)
    stale = config_map("one")
    stale["metadata"]["resourceVersion"] = "1"
    with pytest.raises(ConflictError):
        await client.update(CONFIG_MAPS, stale, namespace)
    with pytest.raises(InvalidError) as invalid:
        await client.create(CONFIG_MAPS, config_map("Not_A_Name"), namespace)
    assert invalid.value.status.details is not None
    assert [cause.field for cause in invalid.value.status.details.causes] == ["metadata.name"]
    with pytest.raises(BadRequestError, match="strict decoding error: unknown field"):
        await client.create(CONFIG_MAPS, config_map("two") | {"odd": 1}, namespace, field_validation="Strict")
    with pytest.raises(MethodNotAllowedError):
        await client.update_subresource(PODS, "x", "eviction", {}, Status, namespace)
    with pytest.raises(NotFoundError, match="404 page not found"):
        await client.list(dynamic_resource("no.such.group", "v1", "things", "Thing"))
    with pytest.raises(RequestEntityTooLargeError):
        await client.create(CONFIG_MAPS, config_map("big", a="x" * 4_000_000), namespace)
    await client.create(PODS, running_pod("web"), namespace)
    with pytest.raises(BadRequestError, match="container other is not valid for pod web"):
        async with client.logs(namespace, "web", container="other"):
            pytest.fail("a container that does not exist has logs")
    nobody = control_plane.kubeconfig("nobody")
    async with client_of(config_of(nobody)) as stranger:
        with pytest.raises(ForbiddenError, match='User "nobody" cannot list resource "pods"'):
            await stranger.list(PODS, namespace)


async def test_a_token_that_is_wrong_is_unauthorized(control_plane: ControlPlane) -> None:
    admin = config_of(control_plane.admin_kubeconfig)
    config = type(admin)(server=admin.server, certificate_authority=admin.certificate_authority, token="made.up.token")
    async with client_of(config) as client:
        with pytest.raises(UnauthorizedError) as caught:
            await client.list(NAMESPACES)
    assert "made.up.token" not in str(caught.value)


async def test_server_version(client: Client) -> None:
    version = await client.server_version()
    assert version.major == "1"
    assert version.git_version.startswith("v1.")


# --- When the server has forgotten ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def forgetful(control_plane_programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane whose API server keeps nothing in memory that etcd has forgotten."""
    logs = tmp_path_factory.mktemp("forgetful")
    with ControlPlane(control_plane_programs, logs, apiserver_flags=["--watch-cache=false"], controllers=()) as started:
        yield started


class Forgetting:
    """A transport that lets the server forget the moment of the first page before the second is asked for."""

    def __init__(self, inner: Transport, server: ControlPlane) -> None:
        self._inner = inner
        self._server = server

    async def request(self, request: Request, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> Response:
        if "continue=" in request.url:
            self._server.client().create("/api/v1/namespaces/default/secrets", {"metadata": {"generateName": "s-"}})
            self._server.compact()
        return await self._inner.request(request, timeouts)

    def stream(
        self, request: Request, timeouts: Timeouts = DEFAULT_TIMEOUTS
    ) -> AbstractAsyncContextManager[ResponseStream]:
        return self._inner.stream(request, timeouts)

    async def close(self) -> None:
        await self._inner.close()


async def test_a_list_goes_on_when_its_moment_is_forgotten(forgetful: ControlPlane) -> None:
    config = config_of(forgetful.admin_kubeconfig)
    async with client_of(config) as client:
        for number in range(6):
            await client.create(CONFIG_MAPS, config_map(f"c{number}"), "default")
        pages = client.pages(CONFIG_MAPS, "default", label_selector="test=yes", page_size=2)
        first = await anext(pages)
        await client.delete(CONFIG_MAPS, "c0", "default")
        forgetful.compact()
        with pytest.raises(GoneError):
            await anext(pages)

        listing = client_over(Forgetting(open_transport(config, clock=SystemClock()), forgetful), config.server)
        listed = await listing.list(CONFIG_MAPS, "default", label_selector="test=yes", page_size=2)
        await listing.close()
        assert [item.metadata.name for item in listed.items] == ["c1", "c2", "c3", "c4", "c5"]
        assert int(listed.resource_version) > int(first.resource_version)
        with pytest.raises(GoneError):
            await client.list(CONFIG_MAPS, resource_version=first.resource_version, resource_version_match="Exact")


async def test_a_watch_from_a_forgotten_version_is_gone(forgetful: ControlPlane) -> None:
    async with client_of(config_of(forgetful.admin_kubeconfig)) as client:
        created, *_ = [await client.create(CONFIG_MAPS, {"metadata": {"generateName": "w-"}}, "default") for _ in "123"]
        forgetful.compact()
        with pytest.raises(GoneError, match=r"watch configmaps in default: Expired \(410\): The resourceVersion"):
            async with client.watch(
                CONFIG_MAPS, "default", resource_version=created.metadata.resource_version
            ) as events:
                await anext(events)
