"""Deletion: finalizers, preconditions, grace periods, collections, garbage collection, namespaces."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api import GROUP, MERGE_PATCH, Api, config_map, gadget, pod, widget


async def test_a_delete_answers_with_a_status(api: Api) -> None:
    created = await api.create(api.core("configmaps"), config_map("a"))
    assert await api.delete(api.core("configmaps", "a")) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "a", "kind": "configmaps", "uid": created["metadata"]["uid"]},
    }
    created = await api.create(api.custom("widgets"), widget("a"))
    deleted = await api.delete(api.custom("widgets", "a"))
    assert deleted["details"] == {"name": "a", "group": GROUP, "kind": "widgets", "uid": created["metadata"]["uid"]}
    assert (await api.call("GET", api.custom("widgets", "a"))).status == 404


async def test_some_kinds_answer_with_the_object(api: Api) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}}
    await api.create(api.core("serviceaccounts"), account)
    assert (await api.delete(api.core("serviceaccounts", "a")))["kind"] == "ServiceAccount"
    await api.create(api.core("pods"), pod("a"))
    assert (await api.delete(api.core("pods", "a")))["kind"] == "Pod"


async def test_finalizers_hold_an_object(api: Api) -> None:
    created = await api.create(api.custom("widgets"), widget("a", finalizers=["runherd.dev/one", "runherd.dev/two"]))
    path = api.custom("widgets", "a")
    deleted = await api.delete(path)
    assert deleted["kind"] == "Widget"
    assert deleted["metadata"]["deletionGracePeriodSeconds"] == 0
    assert deleted["metadata"]["generation"] == 2
    when = deleted["metadata"]["deletionTimestamp"]
    again = await api.delete(path)
    assert again["metadata"]["deletionTimestamp"] == when
    assert again["metadata"]["resourceVersion"] == deleted["metadata"]["resourceVersion"]
    # It can still be changed, but gets no new finalizers.
    await api.patch(path, {"spec": {"size": 2}})
    patch = {"metadata": {"finalizers": ["runherd.dev/one", "runherd.dev/three"]}}
    answer = await api.call("PATCH", path, patch, content_type=MERGE_PATCH)
    text = "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers "
    # The real server tells this one twice.
    assert set(answer.causes) == {
        ("FieldValueForbidden", "metadata.finalizers", f'{text}[]string{{"runherd.dev/three"}}')
    }
    await api.patch(path, {"metadata": {"finalizers": ["runherd.dev/one"]}})
    before = (await api.call("GET", path)).json
    last = await api.patch(path, {"metadata": {"finalizers": None}})
    assert last["metadata"]["uid"] == created["metadata"]["uid"]
    # What is answered was never stored: it has the version before, and no finalizer.
    assert "finalizers" not in last["metadata"]
    assert last["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert (await api.call("GET", path)).status == 404


async def test_a_deletion_timestamp_can_not_be_set_or_removed(api: Api) -> None:
    path = api.core("configmaps", "a")
    await api.create(api.core("configmaps"), config_map("a", finalizers=["runherd.dev/one"]))
    assert (
        await api.call(
            "PATCH", path, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, content_type=MERGE_PATCH
        )
    ).status == 422
    await api.delete(path)
    kept = await api.patch(path, {"metadata": {"deletionTimestamp": None, "labels": {"a": "b"}}})
    assert "deletionTimestamp" in kept["metadata"]
    await api.patch(path, {"metadata": {"finalizers": None}})
    assert (await api.call("GET", path)).status == 404


async def test_preconditions_protect(api: Api) -> None:
    created = await api.create(api.core("configmaps"), config_map("a"))
    path = api.core("configmaps", "a")
    for preconditions, what in (({"uid": "other"}, "UID"), ({"resourceVersion": "1"}, "ResourceVersion")):
        answer = await api.call("DELETE", path, {"preconditions": preconditions})
        assert (answer.status, answer.reason) == (409, "Conflict")
        assert f"the {what} in the precondition (" in answer.message
        assert answer.message.startswith('Operation cannot be fulfilled on ConfigMap "a": ')
    fitting = {"uid": created["metadata"]["uid"], "resourceVersion": created["metadata"]["resourceVersion"]}
    await api.delete(path, {"preconditions": fitting})


async def _running(api: Api, name: str, **spec: object) -> dict[str, Any]:
    await api.create(api.core("pods"), pod(name, **spec))
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"kind": "Node", "name": "node-a"},
    }
    await api.create(api.core("pods", name, "binding"), binding)
    result: dict[str, Any] = await api.patch(api.core("pods", name, "status"), {"status": {"phase": "Running"}})
    return result


async def test_a_pod_without_a_node_goes_at_once(api: Api) -> None:
    await api.create(api.core("pods"), pod("a"))
    await api.delete(api.core("pods", "a"))
    assert (await api.call("GET", api.core("pods", "a"))).status == 404


async def test_a_running_pod_waits_for_its_kubelet(api: Api) -> None:
    running = await _running(api, "a", terminationGracePeriodSeconds=40)
    assert running["spec"]["nodeName"] == "node-a"
    path = api.core("pods", "a")
    deleted = await api.delete(path)
    assert deleted["metadata"]["deletionGracePeriodSeconds"] == 40
    assert deleted["metadata"]["generation"] == running["metadata"]["generation"] + 1
    # A later delete can shorten the grace period, not lengthen it.
    longer = await api.delete(path, {"gracePeriodSeconds": 60})
    assert longer["metadata"]["deletionGracePeriodSeconds"] == 40
    shorter = await api.delete(path, {"gracePeriodSeconds": 10})
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 10
    assert shorter["metadata"]["deletionTimestamp"] < deleted["metadata"]["deletionTimestamp"]
    assert (await api.get(path))["metadata"]["deletionGracePeriodSeconds"] == 10
    await api.delete(path, {"gracePeriodSeconds": 0})
    assert (await api.call("GET", path)).status == 404


async def test_a_pod_that_has_ended_goes_at_once(api: Api) -> None:
    await _running(api, "a")
    await api.patch(api.core("pods", "a", "status"), {"status": {"phase": "Succeeded"}})
    await api.delete(api.core("pods", "a"))
    assert (await api.call("GET", api.core("pods", "a"))).status == 404


async def test_a_pod_with_finalizers_waits_for_both(api: Api) -> None:
    await _running(api, "a")
    path = api.core("pods", "a")
    await api.patch(path, {"metadata": {"finalizers": ["runherd.dev/one"]}})
    await api.delete(path)
    await api.patch(path, {"metadata": {"finalizers": None}})
    assert (await api.get(path))["metadata"]["deletionGracePeriodSeconds"] == 30
    await api.delete(path, {"gracePeriodSeconds": 0})
    assert (await api.call("GET", path)).status == 404


async def test_a_pod_is_bound_once(api: Api) -> None:
    await _running(api, "a")
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "a"},
        "target": {"kind": "Node", "name": "node-b"},
    }
    answer = await api.call("POST", api.core("pods", "a", "binding"), binding)
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert answer.message == (
        'Operation cannot be fulfilled on pods/binding "a": pod a is already assigned to node "node-a"'
    )
    answer = await api.call("POST", api.core("pods", "none", "binding"), {**binding, "metadata": {"name": "none"}})
    assert (answer.status, answer.reason) == (404, "NotFound")
    conditions = (await api.get(api.core("pods", "a")))["status"]["conditions"]
    assert [(each["type"], each["status"]) for each in conditions] == [("PodScheduled", "True")]


async def test_a_collection_is_deleted_by_selector(api: Api) -> None:
    for name, color in (("a", "red"), ("b", "green"), ("c", "red")):
        await api.create(api.core("configmaps"), config_map(name, labels={"color": color}))
    answer = await api.call("DELETE", api.core("configmaps"), query={"labelSelector": "color=red"})
    assert answer.status == 200
    assert answer.json["kind"] == "ConfigMapList"
    assert [item["metadata"]["name"] for item in answer.json["items"]] == ["a", "c"]
    assert [n for n in await api.names(api.core("configmaps")) if not n.startswith("kube-root")] == ["b"]


async def test_what_an_owner_leaves_is_collected(api: Api) -> None:
    owner = await api.create(api.core("configmaps"), config_map("owner"))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    await api.create(api.core("configmaps"), config_map("owned", ownerReferences=[reference]))
    await api.create(
        api.core("secrets"),
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "owned", "ownerReferences": [reference]}},
    )
    keeper = await api.create(api.core("configmaps"), config_map("keeper"))
    other = {**reference, "name": "keeper", "uid": keeper["metadata"]["uid"]}
    await api.create(api.core("configmaps"), config_map("shared", ownerReferences=[reference, other]))
    await api.delete(api.core("configmaps", "owner"))
    await api.gone(api.core("configmaps", "owned"))
    await api.gone(api.core("secrets", "owned"))
    answer = await api.until(
        api.core("configmaps", "shared"), lambda answer: len(answer.json["metadata"]["ownerReferences"]) == 1
    )
    assert answer.json["metadata"]["ownerReferences"] == [other]


async def test_an_object_whose_owner_never_was_is_collected(api: Api) -> None:
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "00000000-0000-4000-8000-000000000000"}
    await api.create(api.core("configmaps"), config_map("owned", ownerReferences=[reference]))
    await api.gone(api.core("configmaps", "owned"))


async def test_an_owner_of_an_unknown_kind_is_left_alone(api: Api) -> None:
    reference = {
        "apiVersion": "x.example.com/v1",
        "kind": "X",
        "name": "x",
        "uid": "00000000-0000-4000-8000-000000000000",
    }
    await api.create(api.core("configmaps"), config_map("owned", ownerReferences=[reference]))
    await api.create(
        api.core("configmaps"), config_map("later", ownerReferences=[{**reference, "apiVersion": "v1", "kind": "Pod"}])
    )
    await api.gone(api.core("configmaps", "later"))
    assert (await api.call("GET", api.core("configmaps", "owned"))).status == 200


async def test_a_namespace_takes_its_contents_along(api: Api) -> None:
    name = f"{api.namespace}-inner"
    await api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    path = f"/api/v1/namespaces/{name}"
    created = await api.get(path)
    assert created["metadata"]["labels"] == {"kubernetes.io/metadata.name": name}
    assert (created["spec"], created["status"]) == ({"finalizers": ["kubernetes"]}, {"phase": "Active"})
    held = f"/apis/{GROUP}/v1/namespaces/{name}/gadgets"
    body = gadget("a")
    body["metadata"]["finalizers"] = ["runherd.dev/one"]
    await api.create(held, body)
    await api.create(f"{path}/secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}})
    deleted = await api.delete(path)
    assert deleted["status"]["phase"] == "Terminating"
    assert "deletionTimestamp" in deleted["metadata"]
    await api.gone(f"{path}/secrets/a")
    answer = await api.call("POST", f"{path}/configmaps", config_map("late"))
    assert (answer.status, answer.reason) == (403, "Forbidden")
    assert answer.message == (
        f'configmaps "late" is forbidden: unable to create new content in namespace {name} '
        "because it is being terminated"
    )
    assert answer.causes == [("NamespaceTerminating", "metadata.namespace", f"namespace {name} is being terminated")]
    await api.until(f"{held}/a", lambda answer: "deletionTimestamp" in answer.json["metadata"])
    await api.patch(f"{held}/a", {"metadata": {"finalizers": None}})
    await api.gone(path)


@pytest.mark.parametrize("policy", ["Background", None])
async def test_background_deletion_is_the_default(api: Api, policy: str | None) -> None:
    await api.create(api.custom("widgets"), widget("a"))
    await api.delete(api.custom("widgets", "a"), {"propagationPolicy": policy} if policy else {})
    assert (await api.call("GET", api.custom("widgets", "a"))).status == 404
