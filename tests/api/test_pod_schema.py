"""Our pod templates against what a real kube-apiserver publishes as its own Pod, field by field.

This tells when a newer Kubernetes has pod fields that the definitions would prune (``docs/spec/crds.md`` 7.6).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from runherd.api.crds import crds
from tests.controlplane.control_plane import ControlPlane

Schema = dict[str, Any]

LIST_AND_MAP_TYPES = ("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type")

# Upstream's generator gives an object that inlines a LocalObjectReference the reference's map type; a Pod has none.
INLINED_REFERENCES = {
    *(
        f".{kind}[].envFrom[].{ref}"
        for kind in ("containers", "initContainers", "ephemeralContainers")
        for ref in ("configMapRef", "secretRef")
    ),
    ".volumes[].configMap",
    ".volumes[].projected.sources[].configMap",
    ".volumes[].projected.sources[].secret",
}
# Metadata of a volume claim template, of which upstream keeps five fields (7.2).
EMBEDDED_METADATA = ".volumes[].ephemeral.volumeClaimTemplate.metadata"
# Defaults that a Pod has and upstream's definitions have not.
DEFAULTS_OF_PODS_ONLY = {".volumes[].azureDisk.cachingMode", ".volumes[].azureDisk.kind"}


@pytest.fixture(scope="module")
def published(control_plane: ControlPlane) -> dict[str, Schema]:
    """The schemas of ``v1``, by name."""
    schemas: dict[str, Schema] = control_plane.client().get("/openapi/v3/api/v1")["components"]["schemas"]
    return schemas


def test_pod_spec_is_that_of_the_api_server(published: dict[str, Schema]) -> None:
    [listeners] = [crd for crd in crds() if crd["spec"]["names"]["kind"] == "AutoscalingListener"]
    schema = listeners["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    ours = schema["properties"]["spec"]["properties"]["template"]["properties"]["spec"]
    found = set(differences(ours, published["io.k8s.api.core.v1.PodSpec"], published, ""))
    expected = {
        *((path, "x-kubernetes-map-type", "atomic", "None") for path in INLINED_REFERENCES),
        *(
            (path, "default", "None", default)
            for path, default in zip(sorted(DEFAULTS_OF_PODS_ONLY), ("ReadWrite", "Shared"), strict=True)
        ),
    }
    assert {item for item in found if not item[0].startswith(EMBEDDED_METADATA)} == expected


def differences(
    ours: Schema, theirs: Schema, published: dict[str, Schema], path: str
) -> Iterator[tuple[str, str, str, str]]:
    """Path, aspect, and what each of the two says there."""
    theirs = resolved(theirs, published)
    if "x-kubernetes-int-or-string" in ours or theirs.get("format") == "int-or-string":
        is_quantity = "number" in {choice["type"] for choice in theirs.get("oneOf", ())}
        if not theirs.get("oneOf") or is_quantity != ("pattern" in ours):
            yield path, "integer or string", str(ours), str(theirs)
        return
    aspects: list[tuple[str, Any, Any]] = [
        *((name, ours.get(name), theirs.get(name)) for name in ("type", "format", *LIST_AND_MAP_TYPES)),
        ("required", sorted(ours.get("required", ())), sorted(theirs.get("required", ()))),
    ]
    # The published schemas show zero values of Go as defaults, which are none.
    if theirs.get("default") or "default" in ours:
        aspects.append(("default", ours.get("default"), theirs.get("default", "")))
    yield from ((path, name, str(mine), str(its)) for name, mine, its in aspects if mine != its)

    mine, its = ours.get("properties", {}), theirs.get("properties", {})
    if set(mine) != set(its):
        yield path, "fields", str(sorted(set(mine) - set(its))), str(sorted(set(its) - set(mine)))
    for name in set(mine) & set(its):
        yield from differences(mine[name], its[name], published, f"{path}.{name}")
    if "items" in ours and "items" in theirs:
        yield from differences(ours["items"], theirs["items"], published, f"{path}[]")
    if "additionalProperties" in ours and "additionalProperties" in theirs:
        yield from differences(ours["additionalProperties"], theirs["additionalProperties"], published, f"{path}{{}}")


def resolved(schema: Schema, published: dict[str, Schema]) -> Schema:
    """``schema``, or what it refers to with what it says besides."""
    references = [schema, *schema.get("allOf", ())]
    for reference in references:
        if "$ref" in reference:
            beside = {key: value for key, value in schema.items() if key not in {"$ref", "allOf"}}
            return {**published[reference["$ref"].rpartition("/")[2]], **beside}
    return schema
