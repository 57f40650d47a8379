"""Bad input: the code and the reason of each refusal."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conformance.api import GROUP, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Api, config_map, pod, widget


@pytest.mark.parametrize("body", [b"{", b"", b"[]", b'"text"', b"\xff\xfe", b'{"kind": 3}', b"{'a': 1}", b"[" * 5000])
async def test_malformed_json_is_a_bad_request(api: Api, body: bytes) -> None:
    for path in (api.core("configmaps"), api.custom("widgets")):
        answer = await api.call("POST", path, body)
        assert (answer.status, answer.reason) == (400, "BadRequest"), answer.body


@pytest.mark.parametrize("body", [b"a: [", b"a: b: c", b"\t- x", b"- a", b"text", b"a: &x [*x]"])
async def test_malformed_yaml_is_a_bad_request(api: Api, body: bytes) -> None:
    answer = await api.call("POST", api.core("configmaps"), body, content_type="application/yaml")
    assert (answer.status, answer.reason) == (400, "BadRequest"), answer.body


async def test_yaml_is_read(api: Api) -> None:
    metadata = b"metadata:\n  name: a\n  annotations:\n    when: 2001-01-01T00:00:00Z\n"
    body = b"apiVersion: v1\nkind: ConfigMap\n" + metadata + b"data:\n  k: 'on'\n"
    answer = await api.call("POST", api.core("configmaps"), body, content_type="application/yaml")
    assert answer.status == 201
    assert answer.json["data"] == {"k": "on"}
    assert answer.json["metadata"]["annotations"] == {"when": "2001-01-01T00:00:00Z"}


async def test_yaml_is_written(api: Api) -> None:
    await api.create(api.core("configmaps"), config_map("a", {"k": "v"}))
    answer = await api.call("GET", api.core("configmaps", "a"), accept="application/yaml")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/yaml"
    assert b"data:\n  k: v\n" in answer.body


async def test_the_kind_must_be_the_right_one(api: Api) -> None:
    for path in (api.core("configmaps"), api.custom("widgets")):
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}
        answer = await api.call("POST", path, body)
        assert (answer.status, answer.reason) == (400, "BadRequest")
        answer = await api.call("POST", path, {"apiVersion": "v9", "kind": "ConfigMap", "metadata": {"name": "a"}})
        assert (answer.status, answer.reason) == (400, "BadRequest")
    answer = await api.call("POST", api.custom("widgets"), {**widget("a"), "apiVersion": f"{GROUP}/v2"})
    assert answer.message == (
        f"the API version in the data ({GROUP}/v2) does not match the expected API version ({GROUP}/v1)"
    )
    answer = await api.call("POST", api.custom("widgets"), {"metadata": {"name": "a"}, "spec": {"size": 1}})
    assert (answer.status, answer.reason) == (400, "BadRequest")


async def test_a_built_in_kind_need_not_be_named(api: Api) -> None:
    created = await api.create(api.core("configmaps"), {"metadata": {"name": "a"}, "data": {"k": "v"}})
    assert (created["apiVersion"], created["kind"], created["data"]) == ("v1", "ConfigMap", {"k": "v"})


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "application/octet-stream"]
)
async def test_other_media_types_are_not_supported(api: Api, content_type: str) -> None:
    answer = await api.call("POST", api.core("configmaps"), config_map("a"), content_type=content_type)
    assert (answer.status, answer.reason) == (415, "UnsupportedMediaType")
    await api.create(api.core("configmaps"), config_map("a"))
    answer = await api.call("PATCH", api.core("configmaps", "a"), {}, content_type=content_type)
    assert (answer.status, answer.reason) == (415, "UnsupportedMediaType")


async def test_custom_kinds_have_no_strategic_patches(api: Api) -> None:
    await api.create(api.custom("widgets"), widget("a"))
    answer = await api.call("PATCH", api.custom("widgets", "a"), {}, content_type=STRATEGIC_PATCH)
    assert (answer.status, answer.reason) == (415, "UnsupportedMediaType")


@pytest.mark.parametrize("accept", ["text/csv", "application/json;as=Nonsense;v=v1;g=meta.k8s.io", "image/*"])
async def test_other_forms_are_not_acceptable(api: Api, accept: str) -> None:
    for path in (api.core("configmaps"), api.custom("widgets")):
        answer = await api.call("GET", path, accept=accept)
        assert (answer.status, answer.reason) == (406, "NotAcceptable")


@pytest.mark.parametrize(
    "accept",
    ["", "*/*", "application/*", "text/html, */*;q=0.1", "application/vnd.kubernetes.protobuf, application/json;q=0.5"],
)
async def test_json_is_the_default(api: Api, accept: str) -> None:
    answer = await api.call("GET", api.custom("widgets"), accept=accept)
    assert answer.json["kind"] == "WidgetList"


async def test_a_body_has_a_limit(api: Api) -> None:
    large = config_map("a", {"k": "x" * (3 * 2**20)})
    for method, path, content_type in (
        ("POST", api.core("configmaps"), "application/json"),
        ("PUT", api.core("configmaps", "a"), "application/json"),
        ("PATCH", api.core("configmaps", "a"), MERGE_PATCH),
    ):
        answer = await api.call(method, path, large, content_type=content_type)
        assert (answer.status, answer.reason) == (413, "RequestEntityTooLarge")


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/api/v2",
        "/api/v1/nothings",
        "/apis/nothing.example.com",
        "/apis/nothing.example.com/v1",
        "/apis/nothing.example.com/v1/things",
        f"/apis/{GROUP}/v2/widgets",
        f"/apis/{GROUP}/v1/nothings",
        "/apis/coordination.k8s.io/v1/nothings",
    ],
)
async def test_unknown_paths_are_not_found(api: Api, path: str) -> None:
    answer = await api.call("GET", path)
    assert answer.status == 404
    if path in {"/api/v1/nothings", "/apis/coordination.k8s.io/v1/nothings"}:
        assert answer.json == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": "the server could not find the requested resource",
            "reason": "NotFound",
            "details": {},
            "code": 404,
        }
    elif path.startswith("/apis"):
        assert answer.body == b"404 page not found\n"


async def test_unknown_subresources_are_not_found(api: Api) -> None:
    await api.create(api.custom("gadgets"), {"apiVersion": f"{GROUP}/v1", "kind": "Gadget", "metadata": {"name": "a"}})
    for path in (api.custom("gadgets", "a", "status"), api.core("configmaps", "a", "status")):
        assert (await api.call("GET", path)).status == 404


async def test_methods_that_are_not_there(api: Api) -> None:
    for method, path in (
        ("PATCH", api.core("configmaps")),
        ("POST", api.core("configmaps", "a")),
        ("PUT", api.core("configmaps")),
        ("DELETE", "/api/v1/namespaces"),
    ):
        answer = await api.call(method, path, {}, content_type=MERGE_PATCH if method == "PATCH" else "application/json")
        assert (answer.status, answer.reason) == (405, "MethodNotAllowed"), (method, path)
        assert answer.message == "the server does not allow this method on the requested resource"


async def test_type_errors_of_built_in_kinds_are_bad_requests(api: Api) -> None:
    changes: list[dict[str, Any]] = [
        {"data": {"k": 1}},
        {"data": []},
        {"immutable": "yes"},
        {"metadata": {"name": "a", "labels": {"a": 1}}},
    ]
    for change in changes:
        answer = await api.call("POST", api.core("configmaps"), {**config_map("a"), **change})
        assert (answer.status, answer.reason) == (400, "BadRequest")
        assert answer.message.startswith('ConfigMap in version "v1" cannot be handled as a ConfigMap: ')
    answer = await api.call("POST", api.core("pods"), pod("a", containers={}))
    assert (answer.status, answer.reason) == (400, "BadRequest")
    answer = await api.call("POST", api.custom("widgets"), widget("a", labels={"a": 1}))
    assert answer.status == 400


async def test_bad_patches(api: Api) -> None:
    await api.create(api.core("configmaps"), config_map("a", {"k": "v"}))
    path = api.core("configmaps", "a")
    for content_type, body, status in (
        (MERGE_PATCH, b"{", 400),
        (MERGE_PATCH, b"[]", 400),
        (STRATEGIC_PATCH, b"[]", 400),
        (JSON_PATCH, b"{}", 400),
        (JSON_PATCH, b"[{}]", 422),
        (JSON_PATCH, json.dumps([{"op": "remove", "path": "/data/none"}]).encode(), 422),
        (JSON_PATCH, json.dumps([{"op": "test", "path": "/data/k", "value": "w"}]).encode(), 422),
        (JSON_PATCH, json.dumps([{"op": "nonsense", "path": "/data/k"}]).encode(), 422),
        (MERGE_PATCH, b'{"data": {"k": 1}}', 422),
        (JSON_PATCH, json.dumps([{"op": "replace", "path": "/data/k", "value": 1}]).encode(), 422),
        (MERGE_PATCH, b'{"metadata": {"name": "b"}}', 400),
    ):
        answer = await api.call("PATCH", path, body, content_type=content_type)
        assert answer.status == status, (content_type, body, answer.body)
    assert (await api.get(path))["data"] == {"k": "v"}


@pytest.mark.parametrize(
    "query",
    [
        {"labelSelector": "a in"},
        {"labelSelector": "!"},
        {"labelSelector": "a=b=c"},
        {"fieldSelector": "nonsense"},
        {"fieldSelector": "spec.nothing=1"},
        {"limit": "many"},
        {"continue": "nonsense"},
        {"timeoutSeconds": "x", "watch": "1"},
        {"resourceVersion": "abc"},
    ],
)
async def test_bad_parameters_are_bad_requests(api: Api, query: dict[str, str]) -> None:
    for path in (api.core("configmaps"), api.custom("widgets")):
        answer = await api.call("GET", path, query=query)
        assert (answer.status, answer.reason) == (400, "BadRequest"), answer.body


async def test_a_watch_from_a_bad_version_is_refused(api: Api) -> None:
    answer = await api.call("GET", api.core("configmaps"), query={"resourceVersion": "abc", "watch": "1"})
    # A difference: the embedded server never says that the fault is its own.
    assert answer.status == (500 if api.is_real else 400)
    assert "strconv.ParseUint" in answer.message


@pytest.mark.parametrize(
    "query",
    [
        {"resourceVersionMatch": "Exact"},
        {"resourceVersionMatch": "Nonsense", "resourceVersion": "1"},
        {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
        {"sendInitialEvents": "true"},
        {"watch": "1", "sendInitialEvents": "true"},
        {"watch": "1", "resourceVersionMatch": "NotOlderThan"},
    ],
)
async def test_contradicting_parameters_are_invalid(api: Api, query: dict[str, str]) -> None:
    answer = await api.call("GET", api.core("configmaps"), query=query)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert 'ListOptions.meta.k8s.io "" is invalid: ' in answer.message


async def test_bad_delete_options_are_refused(api: Api) -> None:
    await api.create(api.core("configmaps"), config_map("a"))
    path = api.core("configmaps", "a")
    answer = await api.call("DELETE", path, b"{")
    assert (answer.status, answer.reason) == (400, "BadRequest")
    answer = await api.call("DELETE", path, {"gracePeriodSeconds": "x"})
    assert (answer.status, answer.reason) == (400, "BadRequest")
    answer = await api.call(
        "DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Nonsense"}
    )
    assert (answer.status, answer.reason) == (422, "Invalid")


async def test_health_and_version(api: Api) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        answer = await api.call("GET", path)
        assert (answer.status, answer.body) == (200, b"ok")
    version = await api.get("/version")
    assert (version["major"], version["gitVersion"][:3]) == ("1", "v1.")
