"""OpenAPI documents, as far as kubectl's ``apply`` and ``explain`` need them.

``/openapi/v3`` names a document for each group version; a document holds the schemas of the kinds and, for each of
them, the paths by which kubectl learns that the server validates fields itself.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import msgspec

from runherd.local.apiserver.decoding import builtin_definitions
from runherd.local.apiserver.kinds import Kind, Object
from runherd.local.apiserver.registry import Registry

__all__ = ["V2_DOCUMENT", "V2_MEDIA_TYPE", "document", "index"]

#: An OpenAPI v2 document that describes nothing (its one field: swagger, "2.0"), in the form that Kubernetes' clients
#: ask for. kubectl looks here for a kind that v3 doesn't have, and only goes on to say that there is no such kind when
#: it gets a document.
V2_DOCUMENT = b"\x0a\x032.0"
V2_MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_REFERENCE = "#/components/schemas/"


def index(registry: Registry) -> Object:
    """``/openapi/v3``. The hash in an address changes with the document, so that clients may keep it."""
    paths: Object = {}
    for group, versions in registry.groups().items():
        for version in versions:
            path = f"apis/{group}/{version}" if group else f"api/{version}"
            digest = hashlib.sha256(msgspec.json.encode(document(registry, group, version))).hexdigest().upper()
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    return {"paths": paths}


def document(registry: Registry, group: str, version: str) -> Object | None:
    """The document of one group version, or None where there is no such version."""
    kinds = registry.in_version(group, version)
    if not kinds:
        return None
    schemas: Object = {}
    paths: Object = {}
    for kind in kinds:
        name = _schema_name(registry, kind)
        schemas[name] = {**_schema(kind), "x-kubernetes-group-version-kind": [_group_version_kind(kind)]}
        paths.update(_paths(kind, name))
    _close(schemas)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _group_version_kind(kind: Kind) -> Object:
    return {"group": kind.group, "kind": kind.kind, "version": kind.version}


def _schema_name(registry: Registry, kind: Kind) -> str:
    if kind.is_custom:
        return ".".join([*reversed(kind.group.split(".")), kind.version, kind.kind])
    return str(kind.schema.source["$ref"]).removeprefix(_REFERENCE)


def _schema(kind: Kind) -> Object:
    if not kind.is_custom:
        name = str(kind.schema.source["$ref"]).removeprefix(_REFERENCE)
        return dict(builtin_definitions()[name])
    source = dict(kind.schema.source)
    properties: dict[str, Any] = dict(source.get("properties", {}))
    properties["apiVersion"] = {"type": "string", **properties.get("apiVersion", {})}
    properties["kind"] = {"type": "string", **properties.get("kind", {})}
    properties["metadata"] = {"allOf": [{"$ref": f"{_REFERENCE}{_META}.ObjectMeta"}]}
    return {**source, "properties": properties}


def _close(schemas: Object) -> None:
    """Add the schemas that are referred to."""
    wanted = _references(schemas)
    while wanted:
        name = wanted.pop()
        if name not in schemas and name in builtin_definitions():
            schemas[name] = builtin_definitions()[name]
            wanted |= _references(schemas[name])


def _references(value: Any) -> set[str]:
    return set(re.findall(rf'"{_REFERENCE}([^"]+)"', msgspec.json.encode(value).decode()))


def _paths(kind: Kind, schema: str) -> Object:
    collection = (
        f"{kind.path}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{kind.path}/{kind.plural}"
    )
    content = {"application/json": {"schema": {"$ref": f"{_REFERENCE}{schema}"}}}
    return {
        collection: {
            "get": _operation(kind, "list", content),
            "post": _operation(kind, "post", content, validates=True),
        },
        f"{collection}/{{name}}": {
            "get": _operation(kind, "get", content),
            "put": _operation(kind, "put", content, validates=True),
            "patch": _operation(kind, "patch", content, validates=True),
            "delete": _operation(kind, "delete", content),
        },
    }


def _operation(kind: Kind, action: str, content: Object, *, validates: bool = False) -> Object:
    operation: Object = {
        "operationId": f"{action}{kind.kind}",
        "responses": {"200": {"description": "OK", "content": content}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _group_version_kind(kind),
    }
    if validates:
        operation["parameters"] = [
            {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
            for name in ("fieldManager", "fieldValidation")
        ]
    return operation
