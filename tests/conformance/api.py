"""A thin client of a Kubernetes API, for tests that see every byte, and the kinds that these tests install."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from multidict import CIMultiDict, CIMultiDictProxy

from runherd.wire.transport import Request, ResponseStream, Timeouts, Transport

__all__ = ["GROUP", "JSON_PATCH", "MERGE_PATCH", "STRATEGIC_PATCH", "Answer", "Api", "Watching", "definitions"]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

GROUP = "conformance.runherd.dev"
#: Longer than anything takes, so that it only ends a test that would hang.
_PATIENCE = 30.0


@dataclass(frozen=True)
class Answer:
    status: int
    headers: CIMultiDictProxy[str] | CIMultiDict[str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def reason(self) -> str:
        return str(self.json["reason"])

    @property
    def message(self) -> str:
        return str(self.json["message"])

    @property
    def causes(self) -> list[tuple[str, str, str]]:
        """Reason, field and message of each cause, sorted."""
        causes = self.json.get("details", {}).get("causes", [])
        return sorted((each.get("reason", ""), each.get("field", ""), each.get("message", "")) for each in causes)

    @property
    def warnings(self) -> list[str]:
        """The texts of the warnings."""
        values = self.headers.getall("Warning", [])
        return [value.removeprefix('299 - "').removesuffix('"').replace('\\"', '"') for value in values]


@dataclass
class Watching:
    """The events of a watch, one by one."""

    stream: ResponseStream
    _lines: list[bytes] = field(default_factory=list)
    _rest: bytes = b""
    _chunks: AsyncIterator[bytes] | None = None

    async def next(self) -> dict[str, Any]:
        """The next event. Raises StopAsyncIteration at the end of the stream."""
        async with asyncio.timeout(_PATIENCE):
            while not self._lines:
                if self._chunks is None:
                    self._chunks = self.stream.chunks()
                *lines, self._rest = (self._rest + await anext(self._chunks)).split(b"\n")
                self._lines += lines
        event: dict[str, Any] = json.loads(self._lines.pop(0))
        return event

    async def take(self, count: int) -> list[tuple[str, str]]:
        """Type and name of the next events."""
        events = [await self.next() for _ in range(count)]
        return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


@dataclass
class Api:
    """``namespace`` is the test's own. ``is_real`` tells the real control plane from ours, where they differ."""

    transport: Transport
    url: str
    namespace: str = ""
    is_real: bool = False
    token: str = ""

    def core(self, plural: str, name: str = "", subresource: str = "") -> str:
        """The path of core objects in the test's namespace."""
        return "/".join(filter(None, [f"/api/v1/namespaces/{self.namespace}", plural, name, subresource]))

    def custom(self, plural: str, name: str = "", subresource: str = "", version: str = "v1") -> str:
        """The path of the test kinds' objects in the test's namespace."""
        prefix = f"/apis/{GROUP}/{version}/namespaces/{self.namespace}"
        return "/".join(filter(None, [prefix, plural, name, subresource]))

    def _request(
        self,
        method: str,
        path: str,
        body: object,
        content_type: str,
        accept: str,
        query: Mapping[str, object],
        headers: Mapping[str, str],
    ) -> Request:
        sent = {"Accept": accept, **headers}
        if self.token:
            sent.setdefault("Authorization", f"Bearer {self.token}")
        data = b""
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            sent["Content-Type"] = content_type
        suffix = f"?{urlencode(query)}" if query else ""
        return Request(method, f"{self.url}{path}{suffix}", sent, data)

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, object] | None = None,
    ) -> Answer:
        """Send one request, whatever becomes of it. ``body`` is sent as JSON unless it is bytes."""
        request = self._request(method, path, body, content_type, accept, query or {}, headers or {})
        response = await self.transport.request(request, Timeouts(total=_PATIENCE))
        return Answer(response.status, response.headers, response.body)

    async def get(self, path: str, **query: object) -> Any:
        return _expect(await self.call("GET", path, query=query), 200).json

    async def create(self, path: str, body: object, **query: object) -> Any:
        return _expect(await self.call("POST", path, body, query=query), 201).json

    async def put(self, path: str, body: object, **query: object) -> Any:
        return _expect(await self.call("PUT", path, body, query=query), 200).json

    async def patch(self, path: str, body: object, content_type: str = MERGE_PATCH, **query: object) -> Any:
        return _expect(await self.call("PATCH", path, body, content_type=content_type, query=query), 200).json

    async def delete(self, path: str, body: object = None, **query: object) -> Any:
        return _expect(await self.call("DELETE", path, body, query=query), 200).json

    async def names(self, path: str, **query: object) -> list[str]:
        """The names in a list."""
        return [item["metadata"]["name"] for item in (await self.get(path, **query))["items"]]

    @asynccontextmanager
    async def watch(self, path: str, accept: str = "application/json", **query: object) -> AsyncIterator[Watching]:
        """Watch; the answer must be a 200."""
        request = self._request("GET", path, None, "", accept, {"watch": "true", **query}, {})
        async with self.transport.stream(request, Timeouts(total=None, idle=None)) as stream:
            assert stream.status == 200, await stream.read()
            yield Watching(stream)

    async def gone(self, path: str) -> None:
        """Return when there is nothing at ``path`` any more."""
        await self.until(path, lambda answer: answer.status == 404)

    async def until(self, path: str, condition: Any) -> Answer:
        """Return the first answer to a GET that meets ``condition``."""
        async with asyncio.timeout(_PATIENCE):
            while True:
                answer = await self.call("GET", path)
                if condition(answer):
                    return answer
                await asyncio.sleep(0.05)

    async def version(self) -> str:
        """The resourceVersion of now."""
        return str((await self.get(self.core("configmaps")))["metadata"]["resourceVersion"])


def _expect(answer: Answer, status: int) -> Answer:
    assert answer.status == status, f"{answer.status}: {answer.body.decode(errors='replace')}"
    return answer


def config_map(name: str, data: Mapping[str, str] | None = None, **metadata: object) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": dict(data or {})}


def widget(name: str, spec: object = None, **metadata: object) -> dict[str, Any]:
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": {"name": name, **metadata}}
    return {**body, "spec": {"size": 1} if spec is None else spec}


def gadget(name: str, **fields: object) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/v1", "kind": "Gadget", "metadata": {"name": name}, **fields}


def pod(name: str, **spec: object) -> dict[str, Any]:
    containers = [{"name": "main", "image": "example.com/image:1"}]
    # Without a token the pod is the same with and without the ServiceAccount admission plugin.
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"automountServiceAccountToken": False, "containers": containers, **spec},
    }


_WIDGET_SCHEMA = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 10, "format": "int32"},
                "color": {"type": "string", "enum": ["red", "green"], "default": "red"},
                "label": {"type": "string", "minLength": 2, "maxLength": 5, "pattern": "^[a-z]+$"},
                "port": {"x-kubernetes-int-or-string": True},
                "since": {"type": "string", "format": "date-time"},
                "note": {"type": "string", "nullable": True},
                "ratio": {"type": "number", "exclusiveMinimum": True, "minimum": 0},
                "flag": {"type": "boolean"},
                "parts": {
                    "type": "array",
                    "maxItems": 3,
                    "minItems": 1,
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {
                            "name": {"type": "string"},
                            "count": {"type": "integer", "default": 1},
                        },
                    },
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                },
                "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                "settings": {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 2},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "template": {
                    "type": "object",
                    "x-kubernetes-embedded-resource": True,
                    "x-kubernetes-preserve-unknown-fields": True,
                },
                "nested": {
                    "type": "object",
                    "default": {},
                    "properties": {"depth": {"type": "integer", "default": 3}},
                },
                "choice": {
                    "type": "object",
                    "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                    "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
                },
            },
        },
        "status": {
            "type": "object",
            "properties": {
                "phase": {"type": "string"},
                "ready": {"type": "integer"},
                "conditions": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"type": {"type": "string"}, "status": {"type": "string"}},
                    },
                },
            },
        },
    },
}


def definitions() -> list[dict[str, Any]]:
    """Widget has a status endpoint and all that a schema can have, Gadget has neither, Crate has two versions."""
    columns = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "How big."},
        {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
        {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status', "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    widgets = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _WIDGET_SCHEMA},
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
        "selectableFields": [{"jsonPath": ".spec.color"}],
    }
    open_schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    v1 = {"name": "v1", "served": True, "storage": True, "schema": open_schema}
    return [
        _definition("widgets", "Widget", [widgets], shortNames=["wg"], categories=["all"]),
        _definition("gadgets", "Gadget", [v1]),
        _definition("crates", "Crate", [v1, {**v1, "name": "v1beta1", "storage": False}]),
    ]


def _definition(plural: str, kind: str, versions: list[dict[str, Any]], **names: object) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, **names},
            "versions": versions,
        },
    }
