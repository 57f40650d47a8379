"""The definitions against ``docs/spec/crds.md``, which is read by a parser of the tests' own."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from runherd.api.actions import (
    AUTOSCALING_LISTENERS,
    AUTOSCALING_RUNNER_SETS,
    EPHEMERAL_RUNNER_SETS,
    EPHEMERAL_RUNNERS,
)
from runherd.api.crds import crd_json, crd_names, crds
from runherd.api.resource import Resource
from tests.api import document

# What annotations may hold together, and with them the last-applied annotation of client-side apply.
ANNOTATION_LIMIT = 262_144


def definition(kind: str) -> dict[str, Any]:
    return next(crd for crd in crds() if crd["spec"]["names"]["kind"] == kind)


def version(kind: str) -> dict[str, Any]:
    [only] = definition(kind)["spec"]["versions"]
    assert isinstance(only, dict)
    return only


def schema(kind: str) -> dict[str, Any]:
    result: dict[str, Any] = version(kind)["schema"]["openAPIV3Schema"]
    return result


def nodes(node: Any) -> Iterator[dict[str, Any]]:
    """All schemas within ``node``, itself included."""
    yield node
    for child in (*node.get("properties", {}).values(), node.get("items"), node.get("additionalProperties")):
        if child is not None:
            yield from nodes(child)


def without_order(node: Any) -> Any:
    """``node`` with its ``required`` lists sorted: their order means nothing."""
    if isinstance(node, dict):
        return {key: sorted(value) if key == "required" else without_order(value) for key, value in node.items()}
    return node


@pytest.mark.parametrize("kind", document.KINDS)
def test_schema_is_that_of_the_document(kind: str) -> None:
    assert without_order(schema(kind)) == without_order(document.schema(kind))


def test_there_are_the_four_of_section_2() -> None:
    expected = [
        {"kind": kind, "listKind": list_kind, "plural": plural, "singular": singular}
        for kind, list_kind, plural, singular in document.rows("2")[-4:]
    ]
    assert [crd["spec"]["names"] for crd in crds()] == expected
    assert crd_names() == [f"{names['plural']}.actions.github.com" for names in expected]


@pytest.mark.parametrize("kind", document.KINDS)
def test_common_facts_of_section_2(kind: str) -> None:
    crd = definition(kind)
    plural = crd["spec"]["names"]["plural"]
    assert set(crd) == {"apiVersion", "kind", "metadata", "spec"}
    assert (crd["apiVersion"], crd["kind"]) == ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    assert crd["metadata"] == {"name": f"{plural}.actions.github.com"}
    assert set(crd["spec"]) == {"group", "names", "scope", "versions"}
    assert (crd["spec"]["group"], crd["spec"]["scope"]) == ("actions.github.com", "Namespaced")

    only = version(kind)
    assert set(only) == {"name", "served", "storage", "schema", "subresources", "additionalPrinterColumns"}
    assert (only["name"], only["served"], only["storage"]) == ("v1alpha1", True, True)
    assert only["subresources"] == {"status": {}}

    top = schema(kind)
    assert "required" not in top
    assert set(top["properties"]) == {"apiVersion", "kind", "metadata", "spec", "status"}
    assert top["properties"]["metadata"] == {"type": "object"}


@pytest.mark.parametrize("kind", document.KINDS)
def test_keywords_are_those_of_section_2(kind: str) -> None:
    keywords = Counter(key for node in nodes(schema(kind)) for key in node)
    allowed = {
        *("type", "format", "properties", "required", "items", "additionalProperties", "default", "anyOf", "pattern"),
        *("x-kubernetes-int-or-string", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"),
        *("x-kubernetes-map-type", "minimum"),
    }
    assert set(keywords) <= allowed
    bounded = {
        name: child["minimum"]
        for node in nodes(schema(kind))
        for name, child in node.get("properties", {}).items()
        if "minimum" in child
    }
    has_bounds = kind in {"AutoscalingRunnerSet", "AutoscalingListener"}
    assert bounded == ({"minRunners": 0, "maxRunners": 0} if has_bounds else {})
    assert {node["pattern"] for node in nodes(schema(kind)) if "pattern" in node} == {document.quantity_pattern()}
    assert not [node for node in nodes(schema(kind)) if "properties" in node and "additionalProperties" in node]


@pytest.mark.parametrize("kind", document.KINDS)
def test_printer_columns_are_those_of_section_3(kind: str) -> None:
    expected = [
        {"name": column.name, "type": column.type, "jsonPath": column.json_path} for column in document.columns(kind)
    ]
    assert version(kind)["additionalPrinterColumns"] == expected


@pytest.mark.parametrize("copy", document.copies(), ids=lambda copy: f"{copy.kind}.{'.'.join(copy.path)}")
def test_pod_template_counts_of_section_7_4(copy: document.Copy) -> None:
    template = schema(copy.kind)
    for name in copy.path:
        template = template["properties"][name]
    # EphemeralRunner's spec has fields beside the template, of which a TLS key reference has a default.
    in_pod_spec = list(nodes(template["properties"]["spec"]))
    assert sum("x-kubernetes-int-or-string" in node for node in in_pod_spec) == 47
    assert sum("default" in node for node in in_pod_spec) == 47


def test_differences_of_the_copies_of_section_7_5() -> None:
    expected = {
        ("AutoscalingRunnerSet", "spec", "template"): (None, None),
        ("AutoscalingRunnerSet", "spec", "listenerTemplate"): ("map", "map"),
        ("AutoscalingListener", "spec", "template"): ("map", "map"),
        ("EphemeralRunnerSet", "spec", "ephemeralRunnerSpec"): (None, "map"),
        ("EphemeralRunner", "spec"): (None, "map"),
    }
    for (kind, *path), (in_containers, in_pod) in expected.items():
        node = schema(kind)
        for name in (*path, "spec"):
            node = node["properties"][name]
        for containers in ("containers", "initContainers", "ephemeralContainers"):
            claims = node["properties"][containers]["items"]["properties"]["resources"]["properties"]["claims"]
            assert claims.get("x-kubernetes-list-type") == in_containers
        claims = node["properties"]["resources"]["properties"]["claims"]
        assert claims.get("x-kubernetes-list-type") == in_pod


@pytest.mark.parametrize("name", crd_names())
def test_size_leaves_half_of_the_annotation_limit(name: str) -> None:
    size = len(crd_json(name))
    assert size < ANNOTATION_LIMIT / 2, f"{name} has {size} bytes"
    assert len(json.dumps(json.loads(crd_json(name)), separators=(",", ":"))) == size


def test_objects_are_the_callers_own() -> None:
    crds()[0]["spec"].clear()
    assert crds()[0]["spec"]["group"] == "actions.github.com"


def test_resources_name_what_is_defined() -> None:
    resources: tuple[Resource[Any], ...] = (
        AUTOSCALING_RUNNER_SETS,
        AUTOSCALING_LISTENERS,
        EPHEMERAL_RUNNER_SETS,
        EPHEMERAL_RUNNERS,
    )
    for resource, crd in zip(resources, crds(), strict=True):
        spec = crd["spec"]
        assert (resource.plural, resource.kind) == (spec["names"]["plural"], spec["names"]["kind"])
        assert (resource.group, resource.version) == (spec["group"], spec["versions"][0]["name"])
        assert resource.namespaced
