"""Whatever is sent, the answer is one that the API has, and the server goes on."""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runherd.local.apiserver.server import ApiServer
from runherd.local.apiserver.store import Store
from runherd.wire.clock import EventLoopClock
from runherd.wire.transport import Request, Response, StreamingResponse
from tests.conformance.api import definitions

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=6,
)
_FIELDS = [
    "metadata", "spec", "status", "data", "containers", "name", "namespace", "labels", "finalizers", "ownerReferences",
    "rules", "subjects", "roleRef", "versions", "names", "schema", "openAPIV3Schema", "properties", "type", "env",
    "volumes", "ports", "uid", "resourceVersion", "generateName", "conditions", "stringData", "size", "parts", "target",
]  # fmt: skip
shaped = st.recursive(
    json_values,
    lambda children: st.dictionaries(st.sampled_from(_FIELDS), children, max_size=4) | st.lists(children, max_size=2),
    max_leaves=12,
)
plurals = st.sampled_from(
    [
        "api/v1/namespaces",
        "api/v1/nodes",
        "apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "apis/rbac.authorization.k8s.io/v1/clusterroles",
        *(
            f"api/v1/namespaces/default/{each}"
            for each in ("pods", "secrets", "configmaps", "events", "serviceaccounts")
        ),
        "apis/coordination.k8s.io/v1/namespaces/default/leases",
        "apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
        "apis/conformance.runherd.dev/v1/namespaces/default/widgets",
        "apis/conformance.runherd.dev/v1/namespaces/default/gadgets",
    ]
)
patch_types = st.sampled_from(
    ["application/merge-patch+json", "application/json-patch+json", "application/strategic-merge-patch+json"]
)
_EXPECTED = {200, 201, 400, 404, 405, 406, 409, 410, 413, 415, 422, 501, 504}


class Harness:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.server = self.loop.run_until_complete(self._start())

    async def _start(self) -> ApiServer:
        server = ApiServer(Store(), random=Random(0), clock=EventLoopClock())
        await server.start()
        for definition in definitions():
            url = "http://x/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            request = Request("POST", url, {"Content-Type": "application/json"}, json.dumps(definition).encode())
            answer = await server.handle(request)
            assert answer.status == 201
        return server

    def settle(self) -> None:
        """Let the server do what it does on its own."""
        self.loop.run_until_complete(asyncio.sleep(0.01))

    def send(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> int:
        async def exchange() -> Response | StreamingResponse:
            headers = {"Content-Type": content_type, "Accept": accept}
            request = Request(method, f"http://x/{path}", headers, body)
            async with asyncio.timeout(30):
                answer = await self.server.handle(request)
            if isinstance(answer, StreamingResponse):
                await answer.chunks.aclose()  # type: ignore[attr-defined]  # it is an asynchronous generator
            return answer

        status = self.loop.run_until_complete(exchange()).status
        assert status in _EXPECTED, (method, path, body, status)
        return status


@pytest.fixture(scope="module")
def harness() -> Any:
    result = Harness()
    yield result
    result.loop.run_until_complete(result.server.close())
    result.loop.close()


_settings = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@_settings
@given(path=plurals, body=shaped)
def test_any_object(harness: Harness, path: str, body: Any) -> None:
    text = json.dumps(body).encode()
    harness.send("POST", path, text)
    if isinstance(body, dict):
        named = {
            **body,
            "metadata": {**(body["metadata"] if isinstance(body.get("metadata"), dict) else {}), "name": "n"},
        }
        for kind in ({}, _kind_of(path)):
            harness.send("POST", path, json.dumps({**kind, **named}).encode())
            harness.send("PUT", f"{path}/n", json.dumps({**kind, **named}).encode())
    harness.send("GET", path)
    harness.send("GET", f"{path}?limit=1")


_RBAC = "rbac.authorization.k8s.io"
_VALID: dict[str, dict[str, Any]] = {
    "api/v1/namespaces/default/pods": {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "n",
            "generateName": "n-",
            "labels": {"a": "b"},
            "annotations": {"a": "b"},
            "finalizers": ["a.b/c"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "controller": True}],
        },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "activeDeadlineSeconds": 5,
            "nodeName": "n",
            "serviceAccountName": "s",
            "initContainers": [{"name": "i", "image": "i"}],
            "containers": [
                {
                    "name": "c",
                    "image": "i:latest",
                    "env": [
                        {"name": "A", "value": "1"},
                        {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    ],
                    "ports": [{"containerPort": 80, "protocol": "TCP"}],
                    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                    "resources": {"limits": {"cpu": "1", "memory": 1}, "requests": {"cpu": "1"}},
                    "livenessProbe": {"httpGet": {"port": 80}},
                }
            ],
            "volumes": [
                {"name": "v", "emptyDir": {}},
                {"name": "p", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
                {"name": "h", "hostPath": {"path": "/"}},
                {"name": "s", "secret": {"secretName": "s"}},
            ],
        },
    },
    "api/v1/namespaces/default/secrets": {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "n"},
        "type": "kubernetes.io/tls",
        "data": {"tls.crt": "YQ=="},
        "stringData": {"tls.key": "x"},
        "immutable": False,
    },
    "api/v1/namespaces/default/configmaps": {
        "metadata": {"name": "n"},
        "data": {"a": "b"},
        "binaryData": {"c": "YQ=="},
    },
    "api/v1/namespaces/default/events": {
        "metadata": {"name": "n"},
        "involvedObject": {"kind": "Pod", "name": "n", "namespace": "default"},
        "source": {"component": "c"},
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 1,
    },
    f"apis/{_RBAC}/v1/namespaces/default/rolebindings": {
        "metadata": {"name": "n"},
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s", "namespace": "n"}],
    },
    f"apis/{_RBAC}/v1/clusterroles": {
        "metadata": {"name": "n"},
        "rules": [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
            {"nonResourceURLs": ["/"], "verbs": ["get"]},
        ],
    },
    "apis/coordination.k8s.io/v1/namespaces/default/leases": {
        "metadata": {"name": "n"},
        "spec": {"leaseDurationSeconds": 1, "leaseTransitions": 1, "holderIdentity": "h"},
    },
    "apis/conformance.runherd.dev/v1/namespaces/default/widgets": {
        "apiVersion": "conformance.runherd.dev/v1",
        "kind": "Widget",
        "metadata": {"name": "n"},
        "spec": {
            "size": 1,
            "parts": [{"name": "a", "count": 1}],
            "tags": ["a", "b"],
            "settings": {"a": "b"},
            "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}},
            "nested": {"depth": 1},
            "choice": {"a": "1"},
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    },
    "apis/apiextensions.k8s.io/v1/customresourcedefinitions": {
        "metadata": {"name": "mutants.m.runherd.dev"},
        "spec": {
            "group": "m.runherd.dev",
            "scope": "Namespaced",
            "names": {"plural": "mutants", "kind": "Mutant", "shortNames": ["mu"], "categories": ["all"]},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {
                                "spec": {
                                    "type": "object",
                                    "required": ["a"],
                                    "properties": {
                                        "a": {"type": "integer", "default": 1, "minimum": 1},
                                        "b": {"type": "array", "items": {"type": "string", "pattern": "^a"}},
                                        "c": {
                                            "type": "object",
                                            "additionalProperties": {"type": "string", "enum": ["x"]},
                                        },
                                        "d": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "string"}]},
                                    },
                                }
                            },
                        }
                    },
                    "additionalPrinterColumns": [{"name": "A", "type": "date", "jsonPath": ".spec.a"}],
                    "selectableFields": [{"jsonPath": ".spec.a"}],
                }
            ],
        },
    },
}


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values within a value."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, child in children for place in _places(child, (*path, key)))]


def _mutated(value: Any, path: tuple[Any, ...], replacement: Any, remove: bool) -> Any:
    if not path:
        return replacement
    copy = dict(value) if isinstance(value, dict) else list(value)
    if len(path) == 1 and remove:
        del copy[path[0]]
    else:
        copy[path[0]] = _mutated(copy[path[0]], path[1:], replacement, remove)
    return copy


@st.composite
def mutants(draw: st.DrawFn) -> tuple[str, Any]:
    """A collection, and an object of it that has something else in one place."""
    path = draw(st.sampled_from(sorted(_VALID)))
    valid = _VALID[path]
    place = draw(st.sampled_from(_places(valid)[1:]))
    replacement = draw(
        json_values | st.sampled_from([{}, [], "", -1, 2**70, None, [None], {"a": None}, "2026-01-01T00:00:00Z"])
    )
    return path, _mutated(valid, place, replacement, draw(st.integers(0, 4)) == 0)


@pytest.mark.slow
@settings(_settings, max_examples=1500)
@given(mutant=mutants())
def test_any_almost_valid_object(harness: Harness, mutant: tuple[str, Any]) -> None:
    path, body = mutant
    text = json.dumps(body).encode()
    name = _VALID[path]["metadata"]["name"]
    harness.send("DELETE", f"{path}/{name}", b'{"gracePeriodSeconds":0}')
    harness.send("PATCH", f"{path}/{name}", b'{"metadata":{"finalizers":null}}', "application/merge-patch+json")
    created = harness.send("POST", path, text)
    harness.send("PUT", f"{path}/{name}", text)
    harness.send("PATCH", f"{path}/{name}", text, "application/merge-patch+json")
    harness.send("GET", f"{path}?labelSelector=a&fieldSelector=metadata.name%3Dx")
    assert harness.send("GET", path, accept="application/json;as=Table;v=v1;g=meta.k8s.io") == 200
    if created == 201 and "customresourcedefinitions" in path:
        mutant_kind = {
            "apiVersion": "m.runherd.dev/v1",
            "kind": "Mutant",
            "metadata": {"name": "n"},
            "spec": {"a": 1, "d": 2},
        }
        harness.send("POST", "apis/m.runherd.dev/v1/namespaces/default/mutants", json.dumps(mutant_kind).encode())
        harness.send("GET", "openapi/v3/apis/m.runherd.dev/v1")
    elif created == 201:
        harness.send("PATCH", f"{path}/{name}/status", text, "application/merge-patch+json")


def test_the_valid_objects_are_valid(harness: Harness) -> None:
    for path, body in _VALID.items():
        name = body["metadata"]["name"]
        harness.send("DELETE", f"{path}/{name}", b'{"gracePeriodSeconds":0}')
        harness.send("PATCH", f"{path}/{name}", b'{"metadata":{"finalizers":null}}', "application/merge-patch+json")
        harness.settle()
        assert harness.send("POST", path, json.dumps(body).encode()) == 201, path


def _kind_of(path: str) -> dict[str, str]:
    plural = path.rpartition("/")[2]
    kinds = {"widgets": "Widget", "gadgets": "Gadget"}
    if plural in kinds:
        return {"apiVersion": "conformance.runherd.dev/v1", "kind": kinds[plural]}
    return {}


@_settings
@given(path=plurals, body=shaped, kind=patch_types, subresource=st.sampled_from(["", "/status"]))
def test_any_patch(harness: Harness, path: str, body: Any, kind: str, subresource: str) -> None:
    harness.send("POST", path, json.dumps({**_kind_of(path), "metadata": {"name": "p"}, "spec": {"size": 1}}).encode())
    harness.send("PATCH", f"{path}/p{subresource}", json.dumps(body).encode(), kind)


operations = st.lists(
    st.fixed_dictionaries(
        {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]), "path": st.text(max_size=8)},
        optional={"value": json_values, "from": st.sampled_from(["/data", "/metadata", "", "/x/0"])},
    ),
    max_size=3,
)


@_settings
@given(operations=operations)
def test_any_json_patch(harness: Harness, operations: list[Any]) -> None:
    path = "api/v1/namespaces/default/configmaps"
    harness.send("POST", path, json.dumps({"metadata": {"name": "p"}, "data": {"k": "v"}}).encode())
    harness.send("PATCH", f"{path}/p", json.dumps(operations).encode(), "application/json-patch+json")


@_settings
@given(body=st.binary(max_size=60) | st.text(max_size=60).map(str.encode), kind=st.sampled_from(["json", "yaml"]))
def test_any_bytes(harness: Harness, body: bytes, kind: str) -> None:
    for path in ("api/v1/namespaces/default/configmaps", "apis/conformance.runherd.dev/v1/namespaces/default/widgets"):
        harness.send("POST", path, body, f"application/{kind}")
        harness.send("DELETE", f"{path}/n", body, f"application/{kind}")


@_settings
@given(
    path=plurals,
    query=st.dictionaries(
        st.sampled_from(
            [
                "labelSelector",
                "fieldSelector",
                "limit",
                "continue",
                "resourceVersion",
                "resourceVersionMatch",
                "watch",
                "timeoutSeconds",
                "sendInitialEvents",
                "allowWatchBookmarks",
                "includeObject",
                "fieldValidation",
            ]
        ),
        st.text(max_size=10) | st.sampled_from(["true", "1", "a in (b)", "metadata.name=x", "Exact", "-1", "0"]),
        max_size=4,
    ),
)
def test_any_query(harness: Harness, path: str, query: dict[str, str]) -> None:
    harness.send("GET", f"{path}?{'&'.join(f'{key}={quote(value)}' for key, value in query.items())}")


@_settings
@given(path=st.text(max_size=30), method=st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"]))
def test_any_path(harness: Harness, path: str, method: str) -> None:
    for prefix in ("", "api/v1/", "apis/", "api/v1/namespaces/default/pods/", "openapi/v3/"):
        harness.send(method, prefix + quote(path), b"{}")


def test_aliases_do_not_become_a_huge_object(harness: Harness) -> None:
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    body = "\n".join(lines).encode()
    assert harness.send("POST", "api/v1/namespaces/default/configmaps", body, "application/yaml") == 400


@pytest.mark.parametrize("depth", [500, 5_000, 100_000])
def test_deep_objects_are_refused_or_kept(harness: Harness, depth: int) -> None:
    body = b'{"metadata":{"name":"deep"},"spec":' + b'{"a":' * depth + b"1" + b"}" * (depth + 1)
    gadget = b'{"apiVersion":"conformance.runherd.dev/v1","kind":"Gadget",' + body[1:]
    path = "apis/conformance.runherd.dev/v1/namespaces/default/gadgets"
    assert harness.send("POST", path, gadget) in {201, 400, 409}
    assert harness.send("GET", path) == 200
