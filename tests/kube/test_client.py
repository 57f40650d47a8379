from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from runherd.api.core import LEASES, NODES, PODS, SECRETS, Lease, LeaseSpec, Pod, Secret
from runherd.api.meta import ObjectMeta
from runherd.kube.client import Client
from runherd.kube.deletion import Deleted
from runherd.kube.dynamic import DynamicObject, dynamic_resource
from runherd.kube.errors import DecodeError, GoneError, NotFoundError
from runherd.kube.patch import ApplyPatch, JsonPatch, MergePatch, StrategicMergePatch
from runherd.wire.transport import ConnectionLostError, Timeouts
from tests.kube.scripted import Script, answer, client_of, path_of, pod, query_of, refusal, stream_of


async def test_get_decodes_into_the_type_of_the_resource() -> None:
    script = Script(answer(pod("web", "12", status={"phase": "Running"})))
    got = await client_of(script).get(PODS, "web", "default", resource_version="0")
    assert isinstance(got, Pod)
    assert (got.metadata.name, got.metadata.resource_version, got.status.phase) == ("web", "12", "Running")
    (request,) = script.requests
    assert (request.method, path_of(request)) == ("GET", "/api/v1/namespaces/default/pods/web")
    assert query_of(request) == {"resourceVersion": "0"}
    assert request.headers["Accept"] == "application/json"
    assert request.headers["User-Agent"] == "runherd-test"
    assert "Content-Type" not in request.headers


async def test_an_answer_that_is_no_such_object_is_a_decode_error_that_names_the_request() -> None:
    with pytest.raises(DecodeError, match=r"get pods default/web: the answer can't be read as Pod"):
        await client_of(Script(answer(b"<html>Log in to the hotel's network</html>"))).get(PODS, "web", "default")


async def test_list_follows_continue_tokens_and_returns_one_list() -> None:
    script = Script(
        answer({"metadata": {"resourceVersion": "9", "continue": "next+page"}, "items": [pod("a"), pod("b")]}),
        answer({"metadata": {"resourceVersion": "9"}, "items": [pod("c")]}),
    )
    listed = await client_of(script).list(
        PODS,
        "default",
        label_selector="app in (a,b)",
        page_size=2,
        resource_version="3",
        resource_version_match="Exact",
    )
    assert [item.metadata.name for item in listed.items] == ["a", "b", "c"]
    assert listed.resource_version == "9"
    first, second = (query_of(request) for request in script.requests)
    assert first == {
        "labelSelector": "app in (a,b)",
        "limit": "2",
        "resourceVersion": "3",
        "resourceVersionMatch": "Exact",
    }
    assert second == {"labelSelector": "app in (a,b)", "limit": "2", "continue": "next+page"}


async def test_list_starts_again_in_one_piece_when_the_server_forgets_the_moment_between_two_pages() -> None:
    script = Script(
        answer({"metadata": {"resourceVersion": "9", "continue": "x"}, "items": [pod("gone")]}),
        refusal(410, "Expired"),
        answer({"metadata": {"resourceVersion": "20"}, "items": [pod("b"), pod("c")]}),
    )
    listed = await client_of(script).list(PODS, page_size=1)
    assert [item.metadata.name for item in listed.items] == ["b", "c"]
    assert listed.resource_version == "20"
    assert query_of(script.requests[2]) == {}


async def test_list_of_an_exact_version_that_is_gone_raises() -> None:
    client = client_of(Script(refusal(410, "Expired")))
    with pytest.raises(GoneError):
        await client.list(PODS, resource_version="1", resource_version_match="Exact")
    script = Script(
        answer({"metadata": {"resourceVersion": "1", "continue": "x"}, "items": [pod("a")]}), refusal(410, "Expired")
    )
    with pytest.raises(GoneError):
        await client_of(script).list(PODS, page_size=1, resource_version="1", resource_version_match="Exact")


async def test_items_of_a_list_have_their_kind_though_the_server_leaves_it_out() -> None:
    bare = {key: value for key, value in pod("a").items() if key not in {"kind", "apiVersion"}}
    script = Script(
        answer({"metadata": {"resourceVersion": "9"}, "items": [bare]}),
        answer({"metadata": {"resourceVersion": "9"}, "items": None}),
        answer({"metadata": {"resourceVersion": "9"}, "items": None}),
    )
    client = client_of(script)
    (item,) = (await client.list(PODS)).items
    assert (item.api_version, item.kind) == ("v1", "Pod")
    assert (await client.list(PODS)).items == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"paths": []},
        {"kind": "Status", "status": "Failure", "code": 404},
        {"kind": "ConfigMapList", "metadata": {"resourceVersion": "9"}, "items": []},
    ],
)
async def test_an_answer_that_is_no_such_list_is_never_an_empty_one(body: dict[str, Any]) -> None:
    client = client_of(Script(answer(body)))
    with pytest.raises(DecodeError, match="list pods"):
        await client.list(PODS)


async def test_create_from_a_struct_plain_data_and_bytes() -> None:
    lease = Lease(metadata=ObjectMeta(name="leader", namespace="ns"), spec=LeaseSpec(holder_identity="me"))
    script = Script(*(answer({"metadata": {"name": "leader"}}, 201) for _ in range(3)))
    client = client_of(script)
    await client.create(LEASES, lease)
    await client.create(LEASES, {"metadata": {"name": "leader"}}, "ns", field_validation="Strict", field_manager="me")
    await client.create(LEASES, b'{"metadata":{"name":"leader","namespace":"ns"}}')
    assert {path_of(request) for request in script.requests} == {"/apis/coordination.k8s.io/v1/namespaces/ns/leases"}
    assert json.loads(script.requests[0].body) == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "leader", "namespace": "ns"},
        "spec": {"holderIdentity": "me"},
    }
    assert query_of(script.requests[1]) == {"fieldValidation": "Strict", "fieldManager": "me"}
    assert script.requests[2].body == b'{"metadata":{"name":"leader","namespace":"ns"}}'
    assert {request.headers["Content-Type"] for request in script.requests} == {"application/json"}


@pytest.mark.parametrize(
    ("patch", "content_type", "body"),
    [
        (MergePatch({"a": None}), "application/merge-patch+json", b'{"a":null}'),
        (MergePatch(b'{"b":1}'), "application/merge-patch+json", b'{"b":1}'),
        (JsonPatch([{"op": "remove", "path": "/x"}]), "application/json-patch+json", b'[{"op":"remove","path":"/x"}]'),
        (StrategicMergePatch({"c": 1}), "application/strategic-merge-patch+json", b'{"c":1}'),
        (ApplyPatch({"kind": "Pod"}), "application/apply-patch+yaml", b'{"kind":"Pod"}'),
    ],
)
async def test_patch(patch: Any, content_type: str, body: bytes) -> None:
    script = Script(answer(pod("web")))
    await client_of(script).patch(
        PODS, "web", "default", patch=patch, subresource="status", field_manager="me", force=True
    )
    (request,) = script.requests
    assert (request.method, path_of(request)) == ("PATCH", "/api/v1/namespaces/default/pods/web/status")
    assert (request.headers["Content-Type"], request.body) == (content_type, body)
    assert query_of(request) == {"fieldManager": "me", "force": "true"}


async def test_apply_without_a_field_manager_is_refused_before_it_is_sent() -> None:
    with pytest.raises(ValueError, match="field manager"):
        await client_of(Script()).patch(PODS, "web", "default", patch=ApplyPatch({}))


async def test_update_addresses_the_object_by_its_own_metadata() -> None:
    script = Script(answer(pod("web", "2")), answer(pod("web", "3")))
    client = client_of(script)
    updated = await client.update(PODS, pod("web"))
    assert updated.metadata.resource_version == "2"
    await client.update(PODS, pod("web"), subresource="status")
    assert [(request.method, path_of(request)) for request in script.requests] == [
        ("PUT", "/api/v1/namespaces/default/pods/web"),
        ("PUT", "/api/v1/namespaces/default/pods/web/status"),
    ]


async def test_delete_sends_only_the_options_that_were_given() -> None:
    script = Script(answer({}), answer({}))
    client = client_of(script)
    await client.delete(NODES, "n1")
    await client.delete(
        PODS,
        "web",
        "default",
        grace_period_seconds=0,
        uid="u1",
        resource_version="5",
        propagation_policy="Foreground",
    )
    bare, full = (json.loads(request.body) for request in script.requests)
    assert bare == {"apiVersion": "v1", "kind": "DeleteOptions"}
    assert full == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u1", "resourceVersion": "5"},
        "propagationPolicy": "Foreground",
    }
    assert path_of(script.requests[0]) == "/api/v1/nodes/n1"


async def test_delete_tells_whether_the_object_may_be_there_still() -> None:
    last_state = {"kind": "Pod", "metadata": {"name": "web", "uid": "u2"}}
    held = {"kind": "Pod", "metadata": {"name": "web", "uid": "u3", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    script = Script(
        answer({"kind": "Status", "status": "Success", "details": {"uid": "u1"}}), answer(last_state), answer(held)
    )
    client = client_of(script)
    assert await client.delete(PODS, "web", "default") == Deleted("u1")
    assert await client.delete(PODS, "web", "default") == Deleted("u2")
    deleted = await client.delete(PODS, "web", "default")
    assert deleted.uid == "u3"
    assert deleted.remaining is not None
    assert deleted.remaining.metadata.deletion_timestamp is not None


async def test_delete_of_what_does_not_exist_raises() -> None:
    with pytest.raises(NotFoundError):
        await client_of(Script(refusal(404, "NotFound"))).delete(PODS, "web", "default", uid="u1")


async def test_delete_with_a_uid_that_is_gone_at_the_repeat_has_succeeded() -> None:
    lost = ConnectionLostError("cut", request_sent=True)
    script = Script(lost, refusal(404, "NotFound"))
    await client_of(script).delete(PODS, "web", "default", uid="u1")
    assert len(script.requests) == 2


async def test_subresources_with_a_kind_of_their_own() -> None:
    scale = dynamic_resource("autoscaling", "v1", "scales", "Scale")
    script = Script(
        *(answer({"kind": "Scale", "metadata": {}, "spec": {"replicas": n}}, 201 if n == 2 else 200) for n in range(3))
    )
    client = client_of(script)
    deployments = dynamic_resource("apps", "v1", "deployments", "Deployment")
    got = await client.get_subresource(deployments, "web", "scale", scale.type, "default")
    assert isinstance(got, DynamicObject)
    assert got.body["spec"] == {"replicas": 0}
    await client.update_subresource(deployments, "web", "scale", got, DynamicObject, "default")
    await client.create_subresource(deployments, "web", "scale", {"kind": "Scale"}, DynamicObject, "default")
    assert [request.method for request in script.requests] == ["GET", "PUT", "POST"]
    assert {path_of(request) for request in script.requests} == {
        "/apis/apps/v1/namespaces/default/deployments/web/scale"
    }
    assert json.loads(script.requests[1].body) == got.body


async def test_dynamic_objects_keep_every_field_and_show_their_metadata() -> None:
    pods = dynamic_resource("", "v1", "pods", "Pod")
    body = pod("web", spec={"anything": [1, {"x": None}]})
    script = Script(answer({"metadata": {"resourceVersion": "9"}, "items": [body]}), answer(body, 201))
    client = client_of(script)
    (item,) = (await client.list(pods)).items
    assert item.body == body
    assert (item.kind, item.api_version, item.metadata.uid) == ("Pod", "v1", "uid-web")
    await client.create(pods, item)
    assert json.loads(script.requests[1].body) == body


async def test_logs_stream_bytes() -> None:
    script = Script(stream_of(b"one\ntw", b"o\n"))
    async with client_of(script).logs(
        "default", "web", container="runner", follow=True, tail_lines=0, since_seconds=5, timestamps=True
    ) as chunks:
        assert b"".join([chunk async for chunk in chunks]) == b"one\ntwo\n"
    (request,) = script.requests
    assert path_of(request) == "/api/v1/namespaces/default/pods/web/log"
    assert query_of(request) == {
        "container": "runner",
        "follow": "true",
        "tailLines": "0",
        "sinceSeconds": "5",
        "timestamps": "true",
    }
    assert request.headers["Accept"] == "*/*"
    assert (script.timeouts[0].total, script.timeouts[0].idle) == (None, None)


async def test_logs_that_are_there_already_must_keep_coming() -> None:
    script = Script(stream_of(b"all"))
    async with client_of(script).logs("default", "web") as chunks:
        assert [chunk async for chunk in chunks] == [b"all"]
    assert query_of(script.requests[0]) == {}
    assert (script.timeouts[0].total, script.timeouts[0].idle) == (None, 60)


async def test_server_version() -> None:
    version = await client_of(Script(answer({"major": "1", "minor": "36", "gitVersion": "v1.36.3"}))).server_version()
    assert version.git_version == "v1.36.3"


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.get(PODS, "web"),
        lambda client: client.get(PODS, "", "default"),
        lambda client: client.get(PODS, "..", "default"),
        lambda client: client.get(PODS, "a/b", "default"),
        lambda client: client.get(PODS, "a%2fb", "default"),
        lambda client: client.get(PODS, "web", "../kube-system"),
        lambda client: client.get(NODES, "n1", "default"),
        lambda client: client.create(PODS, {"metadata": {"name": "web"}}),
        lambda client: client.create(PODS, {"metadata": "what?"}, "default"),
        lambda client: client.create(PODS, b"not json", "default"),
        lambda client: client.update(PODS, {"metadata": {"namespace": "default"}}),
        lambda client: client.delete(PODS, "web"),
    ],
)
async def test_what_names_no_object_is_refused_before_it_is_sent(call: Callable[[Client], Any]) -> None:
    script = Script()
    with pytest.raises(ValueError, match=r"namespace|name|metadata"):
        await call(client_of(script))
    assert script.requests == []


async def test_names_that_need_it_are_quoted() -> None:
    roles = dynamic_resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
    script = Script(answer({"metadata": {}}), answer({"metadata": {}}))
    client = client_of(script)
    await client.get(roles, "system:node")
    await client.get(roles, "what is this?")
    assert script.requests[0].url.endswith("/clusterroles/system:node")
    assert script.requests[1].url.endswith("/clusterroles/what%20is%20this%3F")


async def test_every_call_has_a_deadline() -> None:
    script = Script(answer(pod("a")), answer({"metadata": {"resourceVersion": "9"}, "items": []}), answer({}))
    client = client_of(script, timeouts=Timeouts(connect=1, total=2))
    await client.get(PODS, "a", "default")
    await client.list(PODS)
    await client.delete(PODS, "a", "default")
    assert [timeouts.total for timeouts in script.timeouts] == [2, 60, 2]


async def test_secrets_are_decoded_from_base64_and_not_shown() -> None:
    secret = {"metadata": {"name": "jit", "namespace": "ns"}, "data": {"config": "c2VjcmV0"}}
    got = await client_of(Script(answer(secret))).get(SECRETS, "jit", "ns")
    assert isinstance(got, Secret)
    assert got.data == {"config": b"secret"}
    assert "secret'" not in repr(got)
