from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runherd.local.apiserver.protobuf import decode_protobuf

EXTENSIONS = "apiextensions.k8s.io/v1"


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    result = bytearray()
    while value > 0x7F:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*result, value])


def field(number: int, value: int | float | str | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def body(api_version: str, kind: str, message: bytes) -> bytes:
    type_meta = field(1, api_version) + field(2, kind)
    return b"k8s\0" + field(1, type_meta) + field(2, message) + field(3, "") + field(4, "")


def decode(api_version: str, kind: str, *fields: bytes) -> Any:
    value = decode_protobuf(body(api_version, kind, b"".join(fields)))
    assert (value.pop("apiVersion"), value.pop("kind")) == (api_version, kind)
    return value


def test_texts_maps_and_bytes() -> None:
    metadata = field(1, "a") + field(3, "ns") + field(11, field(1, "k") + field(2, "é"))
    data = field(2, field(1, "x") + field(2, "1")) + field(2, field(1, "empty"))
    value = decode("v1", "ConfigMap", field(1, metadata), data, field(3, field(1, "b") + field(2, b"\0\xff")))
    assert value == {
        "metadata": {"name": "a", "namespace": "ns", "labels": {"k": "é"}},
        "data": {"x": "1", "empty": ""},
        "binaryData": {"b": "AP8="},
    }


def test_what_is_empty_is_there_only_where_json_has_it() -> None:
    # Go's protobuf has all fields that aren't pointers; JSON leaves out those that are empty.
    metadata = field(1, "a") + field(2, "") + field(7, 0) + field(8, b"") + field(10, 0)
    assert decode("v1", "Secret", field(1, metadata), field(3, ""), field(5, 0)) == {
        "metadata": {"name": "a", "deletionGracePeriodSeconds": 0},
        "immutable": False,
    }


def test_times_and_negative_numbers() -> None:
    spec = field(1, "me") + field(2, -7) + field(4, field(1, 1767323045) + field(2, 123456789))
    metadata = field(1, "a") + field(8, field(1, 1767323045) + field(2, 0))
    assert decode("coordination.k8s.io/v1", "Lease", field(1, metadata), field(2, spec)) == {
        "metadata": {"name": "a", "creationTimestamp": "2026-01-02T03:04:05Z"},
        "spec": {"holderIdentity": "me", "leaseDurationSeconds": -7, "renewTime": "2026-01-02T03:04:05.123456Z"},
    }


def test_fields_of_an_embedded_struct_stand_beside_the_others() -> None:
    volume = field(1, "v") + field(2, field(2, b""))
    port = field(1, 0) + field(2, 0) + field(3, "http")
    probe = field(1, field(2, field(1, "/up") + field(2, port))) + field(2, 5)
    limits = field(1, field(1, "cpu") + field(2, field(1, "250m")))
    container = field(1, "main") + field(8, limits) + field(10, probe)
    pod = decode("v1", "Pod", field(2, field(1, volume) + field(2, container)))
    assert pod["spec"]["volumes"] == [{"name": "v", "emptyDir": {}}]
    [main] = pod["spec"]["containers"]
    assert main["livenessProbe"] == {"httpGet": {"path": "/up", "port": 0}, "initialDelaySeconds": 5}
    assert main["resources"] == {"limits": {"cpu": "250m"}}


def test_schemas_of_definitions() -> None:
    nested = field(5, "object") + field(11, 1.5)
    schema = b"".join(
        [
            field(5, "object"),
            field(8, field(1, b"3")),
            field(20, field(1, b'"x"')),
            field(24, field(1, nested)),
            field(30, field(1, 1) + field(2, nested)),
            field(31, field(1, "p") + field(2, b"")),
            field(29, field(1, "s") + field(2, field(5, "string"))),
            field(32, field(1, "d") + field(2, field(2, "s"))),
            field(33, field(1, 1)),
            field(38, 1),
        ]
    )
    version = field(1, "v1") + field(4, field(1, schema))
    value = decode(EXTENSIONS, "CustomResourceDefinition", field(2, field(7, version)))
    assert value["spec"]["versions"][0]["schema"]["openAPIV3Schema"] == {
        "type": "object",
        "default": 3,
        "enum": ["x"],
        "items": {"type": "object", "minimum": 1.5},
        "additionalProperties": {"type": "object", "minimum": 1.5},
        "patternProperties": {"p": {}},
        "properties": {"s": {"type": "string"}},
        "dependencies": {"d": ["s"]},
        "additionalItems": True,
        "x-kubernetes-preserve-unknown-fields": True,
    }


def test_options_of_a_deletion_are_the_same_in_every_group() -> None:
    options = field(1, 0) + field(2, field(1, "u") + field(2, "7")) + field(4, "Background")
    for version in ("v1", "actions.github.com/v1alpha1"):
        assert decode(version, "DeleteOptions", options) == {
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": "u", "resourceVersion": "7"},
            "propagationPolicy": "Background",
        }


def test_what_a_newer_client_knows_besides_is_passed_over() -> None:
    assert (
        decode("v1", "ConfigMap", field(99, "new"), field(98, 7), field(97, 1.0), varint(96 << 3 | 5) + b"1234") == {}
    )


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"{}", "lacks the prefix"),
        (b"k8s\0" + field(1, field(1, "v1") + field(2, "Widget")), "no kind 'Widget' is known in version 'v1'"),
        (body("v1", "ConfigMap", field(1, "a"))[:-4] + b"\x12\x50", "ends within a field"),
        (body("v1", "ConfigMap", b"\x80"), "ends within a number"),
        (body("v1", "ConfigMap", b"\x80" * 11), "too long"),
        (body("v1", "ConfigMap", field(1, 7)), "wrong wire type"),
        (body("v1", "Secret", field(5, "true")), "wrong wire type"),
        (body("v1", "ConfigMap", field(1, field(1, b"\xff"))), "not UTF-8"),
        (body("v1", "ConfigMap", b"\x0b"), "unknown wire type 3"),
        (body("v1", "ConfigMap", field(1, field(8, field(1, 2**60)))), "out of range"),
    ],
)
def test_malformed_bodies(data: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        decode_protobuf(data)


def test_a_schema_of_bottomless_depth() -> None:
    schema = b""
    for _ in range(3000):
        schema = field(28, schema)
    version = field(1, "v1") + field(4, field(1, schema))
    with pytest.raises(ValueError, match="exceeded max depth"):
        decode(EXTENSIONS, "CustomResourceDefinition", field(2, field(7, version)))


@given(st.sampled_from(["ConfigMap", "Pod", "Event", "DeleteOptions"]), st.binary(max_size=200))
def test_any_bytes_are_an_object_or_a_clear_error(kind: str, message: bytes) -> None:
    problem = ""
    try:
        value = decode_protobuf(body("v1", kind, message))
    except ValueError as error:
        problem = str(error)
    else:
        assert value["kind"] == kind
    assert problem.startswith("protobuf: ") or not problem
