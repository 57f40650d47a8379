"""Patches: JSON, merge and strategic; fields that aren't known, or come twice."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api import GROUP, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Api, config_map, gadget, pod, widget


async def test_merge_patches(api: Api) -> None:
    await api.create(api.custom("gadgets"), gadget("a", spec={"a": {"b": 1, "c": 2}, "list": [1, 2], "gone": 1}))
    patched = await api.patch(
        api.custom("gadgets", "a"), {"spec": {"a": {"b": 9}, "list": [3], "gone": None, "new": {"x": None, "y": 1}}}
    )
    assert patched["spec"] == {"a": {"b": 9, "c": 2}, "list": [3], "new": {"y": 1}}


async def test_json_patches(api: Api) -> None:
    await api.create(api.custom("gadgets"), gadget("a", spec={"list": [1, 2], "a/b": 1, "x": {"y": 1}}))
    operations = [
        {"op": "test", "path": "/spec/list/0", "value": 1},
        {"op": "add", "path": "/spec/list/-", "value": 3},
        {"op": "add", "path": "/spec/list/0", "value": 0},
        {"op": "replace", "path": "/spec/a~1b", "value": 2},
        {"op": "copy", "from": "/spec/x", "path": "/spec/z"},
        {"op": "move", "from": "/spec/x/y", "path": "/spec/moved"},
        {"op": "remove", "path": "/spec/list/1"},
    ]
    patched = await api.patch(api.custom("gadgets", "a"), operations, JSON_PATCH)
    assert patched["spec"] == {"list": [0, 2, 3], "a/b": 2, "x": {}, "z": {"y": 1}, "moved": 1}


async def test_strategic_patches_merge_lists_by_key(api: Api) -> None:
    body = pod("a")
    body["spec"]["containers"] = [
        {
            "name": "main",
            "image": "example.com/image:1",
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            "ports": [{"containerPort": 80, "name": "http"}],
            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        }
    ]
    body["spec"]["volumes"] = [{"name": "v", "emptyDir": {}}]
    await api.create(api.core("pods"), body)
    path = api.core("pods", "a")
    patched = await api.patch(
        path, {"spec": {"containers": [{"name": "main", "image": "example.com/image:2"}]}}, STRATEGIC_PATCH
    )
    container = patched["spec"]["containers"][0]
    assert container["image"] == "example.com/image:2"
    assert [each["name"] for each in container["env"]] == ["A", "B"]
    status = {
        "conditions": [{"type": "Ready", "status": "False"}, {"type": "Other", "status": "True"}],
        "containerStatuses": [{"name": "main", "ready": False, "restartCount": 0, "image": "i", "imageID": ""}],
    }
    await api.patch(api.core("pods", "a", "status"), {"status": status}, STRATEGIC_PATCH)
    change = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    patched = await api.patch(api.core("pods", "a", "status"), change, STRATEGIC_PATCH)
    assert {each["type"]: each["status"] for each in patched["status"]["conditions"]} == {
        "Ready": "True",
        "Other": "True",
    }
    removal = {"status": {"conditions": [{"type": "Other", "$patch": "delete"}]}}
    patched = await api.patch(api.core("pods", "a", "status"), removal, STRATEGIC_PATCH)
    assert [each["type"] for each in patched["status"]["conditions"]] == ["Ready"]


async def test_strategic_patches_of_finalizers_and_owners(api: Api) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u1"}
    metadata: dict[str, Any] = {
        "finalizers": ["runherd.dev/a", "runherd.dev/b"],
        "ownerReferences": [owner],
        "labels": {"x": "1", "y": "2"},
    }
    owner["apiVersion"] = "unknown.example.com/v1"
    await api.create(api.core("configmaps"), config_map("a", **metadata))
    path = api.core("configmaps", "a")
    patched = await api.patch(
        path, {"metadata": {"finalizers": ["runherd.dev/c"], "labels": {"x": None}}}, STRATEGIC_PATCH
    )
    assert sorted(patched["metadata"]["finalizers"]) == ["runherd.dev/a", "runherd.dev/b", "runherd.dev/c"]
    assert patched["metadata"]["labels"] == {"y": "2"}
    removal = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["runherd.dev/a"]}}
    patched = await api.patch(path, removal, STRATEGIC_PATCH)
    assert sorted(patched["metadata"]["finalizers"]) == ["runherd.dev/b", "runherd.dev/c"]
    second = {**owner, "name": "q", "uid": "u2"}
    patched = await api.patch(path, {"metadata": {"ownerReferences": [second]}}, STRATEGIC_PATCH)
    assert sorted(each["uid"] for each in patched["metadata"]["ownerReferences"]) == ["u1", "u2"]
    replaced = {"data": {"$patch": "replace", "k": "v"}}
    await api.patch(path, {"data": {"old": "1"}}, STRATEGIC_PATCH)
    assert (await api.patch(path, replaced, STRATEGIC_PATCH))["data"] == {"k": "v"}
    await api.patch(path, {"metadata": {"finalizers": None}}, MERGE_PATCH)


async def test_a_pods_spec_is_fixed(api: Api) -> None:
    await api.create(api.core("pods"), pod("a"))
    answer = await api.call(
        "PATCH", api.core("pods", "a"), {"spec": {"restartPolicy": "Never"}}, content_type=MERGE_PATCH
    )
    assert (answer.status, answer.reason) == (422, "Invalid")
    ((reason, field, message),) = answer.causes
    assert (reason, field) == ("FieldValueForbidden", "spec")
    assert message.startswith("Forbidden: pod updates may not change fields other than `spec.containers[*].image`,")


@pytest.mark.parametrize("kind", ["Widget", "Pod"])
async def test_unknown_and_duplicate_fields(api: Api, kind: str) -> None:
    if kind == "Widget":
        path, body, base = api.custom("widgets"), widget("a", {"size": 1, "other": 2}), "spec.other"
    else:
        path, body, base = api.core("pods"), pod("a", other=2), "spec.other"
    body["metadata"]["bogus"] = 1
    answer = await api.call("POST", path, body, query={"fieldValidation": "Strict"})
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert f'{kind} in version "v1" cannot be handled as a {kind}: strict decoding error: ' in answer.message
    assert f'unknown field "{base}"' in answer.message
    assert 'unknown field "metadata.bogus"' in answer.message
    answer = await api.call("POST", path, body, query={"fieldValidation": "Warn"})
    assert answer.status == 201
    assert sorted(answer.warnings) == ['unknown field "metadata.bogus"', f'unknown field "{base}"']
    body["metadata"]["name"] = "b"
    answer = await api.call("POST", path, body)
    assert len(answer.warnings) == 2
    body["metadata"]["name"] = "c"
    answer = await api.call("POST", path, body, query={"fieldValidation": "Ignore"})
    assert (answer.status, answer.warnings) == (201, [])
    answer = await api.call("POST", path, body, query={"fieldValidation": "Nonsense"})
    assert (answer.status, answer.reason) == (422, "Invalid")


async def test_fields_that_come_twice(api: Api) -> None:
    metadata = '"metadata":{"name":"a"}'
    for path, text in (
        (
            api.custom("widgets"),
            f'{{"apiVersion":"{GROUP}/v1","kind":"Widget",{metadata},"spec":{{"size":1,"size":2}}}}',
        ),
        (
            api.core("configmaps"),
            f'{{"apiVersion":"v1","kind":"ConfigMap",{metadata},"data":{{"k":"1","k":"2"}}}}',
        ),
    ):
        answer = await api.call("POST", path, text.encode(), query={"fieldValidation": "Strict"})
        assert (answer.status, answer.reason) == (400, "BadRequest")
        field = "spec.size" if "widgets" in path else "data.k"
        assert f'duplicate field "{field}"' in answer.message
        answer = await api.call("POST", path, text.encode())
        assert answer.status == 201
        assert answer.warnings == [f'duplicate field "{field}"']


async def test_unknown_fields_of_patches(api: Api) -> None:
    await api.create(api.custom("widgets"), widget("a"))
    await api.create(api.core("configmaps"), config_map("a"))
    for path in (api.custom("widgets", "a"), api.core("configmaps", "a")):
        patch = {"bogus": 1, "metadata": {"labels": {"x": "y"}}}
        answer = await api.call("PATCH", path, patch, content_type=MERGE_PATCH, query={"fieldValidation": "Strict"})
        assert (answer.status, answer.reason) == (422, "Invalid")
        assert 'strict decoding error: unknown field "bogus"' in answer.message
        answer = await api.call("PATCH", path, patch, content_type=MERGE_PATCH)
        assert (answer.status, answer.warnings) == (200, ['unknown field "bogus"'])
        answer = await api.call("PATCH", path, b'{"metadata":{"labels":{"x":"1","x":"2"}}}', content_type=MERGE_PATCH)
        assert (answer.status, answer.warnings) == (200, ['duplicate field "metadata.labels.x"'])


async def test_yaml_with_a_field_that_comes_twice(api: Api) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: '1'\n  k: '2'\n"
    answer = await api.call(
        "POST", api.core("configmaps"), body, content_type="application/yaml", query={"fieldValidation": "Strict"}
    )
    assert (answer.status, answer.reason) == (400, "BadRequest")
    answer = await api.call("POST", api.core("configmaps"), body, content_type="application/yaml")
    assert answer.status == 201
    assert answer.json["data"] == {"k": "2"}


async def test_server_side_apply_is_refused(api: Api) -> None:
    if api.is_real:
        pytest.skip("a difference: the real server can")
    answer = await api.call(
        "PATCH", api.core("configmaps", "a"), config_map("a"), content_type="application/apply-patch+yaml"
    )
    assert (answer.status, answer.reason) == (501, "NotImplemented")
    assert "server-side apply is not supported" in answer.message


@pytest.mark.parametrize(
    ("method", "options", "query"),
    [
        ("DELETE", {"propagationPolicy": "Foreground"}, {}),
        ("DELETE", {"propagationPolicy": "Orphan"}, {}),
        ("DELETE", {"orphanDependents": True}, {}),
        ("DELETE", None, {"propagationPolicy": "Foreground"}),
        ("DELETE", {"dryRun": ["All"]}, {}),
        ("DELETE", None, {"dryRun": "All"}),
        ("POST", {}, {"dryRun": "All"}),
        ("PUT", {}, {"dryRun": "All"}),
        ("PATCH", {}, {"dryRun": "All"}),
    ],
)
async def test_what_is_left_out_is_refused(api: Api, method: str, options: Any, query: dict[str, str]) -> None:
    if api.is_real:
        pytest.skip("a difference: the real server can")
    await api.create(api.core("configmaps"), config_map("a"))
    path = api.core("configmaps") if method == "POST" else api.core("configmaps", "a")
    content_type = MERGE_PATCH if method == "PATCH" else "application/json"
    body = config_map("a") if method in {"POST", "PUT"} else options
    answer = await api.call(method, path, body, content_type=content_type, query=query)
    assert (answer.status, answer.reason) == (501, "NotImplemented")
    assert (await api.call("GET", api.core("configmaps", "a"))).status == 200


async def test_streams_into_pods_are_refused(api: Api) -> None:
    if api.is_real:
        pytest.skip("a difference: the real server can")
    await api.create(api.core("pods"), pod("a"))
    for what in ("exec", "attach", "portforward"):
        answer = await api.call("POST", api.core("pods", "a", what))
        assert (answer.status, answer.reason) == (501, "NotImplemented")
