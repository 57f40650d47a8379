from __future__ import annotations

from typing import Any

import pytest

from runherd.local.apiserver.decoding import builtin_schema
from runherd.local.apiserver.schema import DecodeError, Schema, apply_defaults, decode_typed, prune

_SCHEMA = Schema(
    {
        "type": "object",
        "properties": {
            "a": {"type": "string"},
            "n": {"type": "string", "nullable": True},
            "list": {
                "type": "array",
                "items": {"type": "object", "properties": {"x": {"type": "integer", "default": 1}}},
            },
            "map": {
                "type": "object",
                "additionalProperties": {"type": "object", "properties": {"y": {"default": [1]}}},
            },
            "free": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
                "properties": {"z": {"type": "object"}},
            },
            "any": {"type": "object", "additionalProperties": True},
            "resource": {"type": "object", "x-kubernetes-embedded-resource": True},
        },
    }
)


def test_pruning_names_what_it_removes() -> None:
    value: dict[str, Any] = {
        "kind": "K",
        "a": None,
        "n": None,
        "b": 1,
        "list": [{"x": 1, "q": 2}],
        "map": {"k": {"y": 1, "q": 2}},
        "free": {"q": 1, "z": {"q": 1}},
        "any": {"q": {"q": 1}},
        "resource": {"kind": "Pod", "metadata": {"q": 1}, "q": 1},
    }
    unknown: list[str] = []
    prune(value, _SCHEMA, unknown, is_resource=True)
    assert sorted(unknown) == ["b", "free.z.q", "list[0].q", "map.k.q", "resource.q"]
    assert value == {
        "kind": "K",
        "n": None,
        "list": [{"x": 1}],
        "map": {"k": {"y": 1}},
        "free": {"q": 1, "z": {}},
        "any": {"q": {"q": 1}},
        "resource": {"kind": "Pod", "metadata": {"q": 1}},
    }
    unknown.clear()
    prune(value, _SCHEMA, unknown, is_resource=True)
    assert unknown == []


def test_defaults_are_not_shared() -> None:
    first: dict[str, Any] = {"map": {"k": {}}, "list": [{}]}
    second: dict[str, Any] = {"map": {"k": {}}}
    apply_defaults(first, _SCHEMA)
    apply_defaults(second, _SCHEMA)
    assert first == {"map": {"k": {"y": [1]}}, "list": [{"x": 1}]}
    first["map"]["k"]["y"].append(2)
    assert second["map"]["k"]["y"] == [1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"spec": {"hostname": 1}},
            "cannot unmarshal number into Go struct field PodSpec.spec.hostname of type string",
        ),
        (
            {"spec": {"containers": {}}},
            "cannot unmarshal object into Go struct field PodSpec.spec.containers of type array",
        ),
        ({"spec": []}, "cannot unmarshal array into Go struct field Pod.spec of type PodSpec"),
        (
            {"spec": {"hostNetwork": "x"}},
            "cannot unmarshal string into Go struct field PodSpec.spec.hostNetwork of type bool",
        ),
        (
            {"status": {"startTime": "now"}},
            "cannot unmarshal string into Go struct field PodStatus.status.startTime of type Time",
        ),
    ],
)
def test_a_type_that_does_not_fit(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DecodeError) as error:
        decode_typed(change, builtin_schema("io.k8s.api.core.v1.Pod"), [])
    assert str(error.value) == f"json: {message}"


def test_nulls_of_built_in_kinds() -> None:
    value: dict[str, Any] = {
        "metadata": {"labels": {"a": None}, "name": None},
        "spec": {"containers": [None], "nodeSelector": None},
    }
    decode_typed(value, builtin_schema("io.k8s.api.core.v1.Pod"), [])
    assert value == {"metadata": {"labels": {"a": ""}}, "spec": {"containers": [{}]}}


def test_schemas_that_refer_to_themselves_are_read_as_far_as_needed() -> None:
    schema = builtin_schema("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition")
    properties: dict[str, Any] = {"properties": {"a": {"type": 1}}}
    value = {"spec": {"versions": [{"schema": {"openAPIV3Schema": {"properties": {"x": properties}}}}]}}
    with pytest.raises(DecodeError, match=r"openAPIV3Schema\.properties\.x\.properties\.a\.type of type string"):
        decode_typed(value, schema, [])
