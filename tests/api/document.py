"""Reads the schemas of the four kinds out of ``docs/spec/crds.md``, apart from the declaration that ours are made from.

What is read here is what the tests expect: types, required fields, defaults and list keys of sections 4, 5, 7.1 and
7.3, the columns of section 3, the differences of the five pod template copies of section 7.5, and our own additions of
section 8.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

Schema = dict[str, Any]

DOCUMENT = Path(__file__).parents[2] / "docs" / "spec" / "crds.md"
KINDS = ("AutoscalingRunnerSet", "AutoscalingListener", "EphemeralRunnerSet", "EphemeralRunner")

# The tables of section 5 that describe each kind's spec and status.
_SPEC_TABLES = dict(zip(KINDS, ("5.1", "5.3", "5.5", "5.7"), strict=True))
_STATUS_TABLES = {"AutoscalingRunnerSet": "5.2", "EphemeralRunnerSet": "5.6", "EphemeralRunner": "5.8"}

_SCALARS: dict[str, Schema] = {
    "s": {"type": "string"},
    "b": {"type": "boolean"},
    "i": {"type": "integer"},
    "n": {"type": "number"},
    "i32": {"type": "integer", "format": "int32"},
    "i64": {"type": "integer", "format": "int64"},
    "dt": {"type": "string", "format": "date-time"},
    "ios": {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True},
}


class Column(NamedTuple):
    """A printer column of section 3."""

    name: str
    type: str
    json_path: str


class Copy(NamedTuple):
    """A row of section 7.5: where a pod template is, and the types of ``claims`` there."""

    kind: str
    path: tuple[str, ...]
    container_claims: str
    pod_claims: str


def section(number: str) -> str:
    """The text below the heading ``number``, up to the next heading."""
    match = re.search(
        rf"^##+ {re.escape(number)}\.? .*?\n(.*?)(?=^##|\Z)", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE
    )
    assert match is not None, f"docs/spec/crds.md has no section {number}"
    return match[1]


def rows(number: str) -> list[list[str]]:
    """The cells of the table rows of a section, without the head."""
    lines = [line for line in section(number).splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [row for position, row in enumerate(cells) if set("".join(row)) != {"-"} and not _is_head(cells, position)]


def columns(kind: str) -> list[Column]:
    """The printer columns of ``kind``, in order."""
    text = next(row[1] for row in rows("3") if row[0] == kind)
    return [Column(*found) for found in re.findall(r"\d+\. (.+?) \((\w+), `(.+?)`\)", text)]


def copies() -> list[Copy]:
    """The five pod templates."""
    inlined = {row[0]: row[1] for row in rows("7.1") if "inlined" in row[2]}
    result = []
    for place, container_claims, pod_claims in rows("7.5"):
        kind, _, path = place.partition(" ")
        path = (path or inlined[kind]).strip("`")
        result.append(Copy(kind, tuple(path.split(".")), container_claims.strip("`"), pod_claims.strip("`")))
    return result


@cache
def quantity_pattern() -> str:
    """The pattern of section 7.4."""
    match = re.search(r"`(\^.*?\$)`", section("7.4"))
    assert match is not None
    return match[1]


def additions(kind: str) -> Schema:
    """The status fields that ours has beyond upstream's, by name."""
    return {
        field.strip("`"): _type(type_.strip("`")) for owner, field, type_, _ in rows("8") if owner in {kind, "all four"}
    }


def schema(kind: str) -> Schema:
    """The ``openAPIV3Schema`` of ``kind``: upstream's without descriptions, and our additions."""
    status: Schema = _table(_STATUS_TABLES[kind]) if kind in _STATUS_TABLES else {"type": "object"}
    result: Schema = {
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": _table(_SPEC_TABLES[kind]),
            "status": status,
        },
    }
    status.setdefault("properties", {}).update(additions(kind))
    for copy in copies():
        if copy.kind == kind:
            _set_claims(_at(result, *copy.path)["properties"]["spec"], copy)
    return result


def _is_head(cells: list[list[str]], position: int) -> bool:
    return position + 1 < len(cells) and set("".join(cells[position + 1])) == {"-"}


def _table(number: str) -> Schema:
    """The object that a table of section 5 describes: field, type, required, validation."""
    properties: Schema = {}
    required = []
    for field, type_, needed, validation, *_ in rows(number):
        name = field.strip("`")
        properties[name] = _type(type_.strip("`"))
        if match := re.fullmatch(r"minimum (\d+)", validation):
            properties[name]["minimum"] = int(match[1])
        if needed == "yes":
            required.append(name)
    return _object(properties, required)


@cache
def _definitions() -> dict[str, str]:
    """``Name`` or ``Name~`` to its fields, from the listings of sections 4, 7.1, 7.3 and 8."""
    found = {}
    for number in ("4", "7.1", "7.3", "8"):
        for line in section(number).splitlines():
            for definition in line.removeprefix("- ").split(" // "):
                name, separator, fields = definition.partition(" = ")
                if line.startswith("- ") and separator:
                    found[name] = fields
    return found


def _named(name: str) -> Schema:
    if name == "RunnerSpec":
        return _table("5.7")
    definitions = _definitions()
    atomic = f"{name}~" in definitions
    properties: Schema = {}
    required = []
    for field in definitions[f"{name}~" if atomic else name].split("; "):
        key, _, rest = field.partition(":")
        type_, _, default = rest.partition("=")
        properties[key.removesuffix("!")] = _type(type_)
        if default:
            properties[key.removesuffix("!")]["default"] = json.loads(default)
        if key.endswith("!"):
            required.append(key.removesuffix("!"))
    result = _object(properties, required)
    return {**result, "x-kubernetes-map-type": "atomic"} if atomic else result


def _object(properties: Schema, required: list[str]) -> Schema:
    return {"type": "object", "properties": properties, **({"required": sorted(required)} if required else {})}


def _type(text: str) -> Schema:
    if text == "qty":
        return {**_SCALARS["ios"], "pattern": quantity_pattern()}
    if text in _SCALARS:
        return dict(_SCALARS[text])
    if text.startswith("{"):
        inner, _, atomic = text[1:].rpartition("}")
        result: Schema = {"type": "object", "additionalProperties": _type(inner)}
        return {**result, "x-kubernetes-map-type": "atomic"} if atomic == "~" else result
    if text.startswith("["):
        inner, _, kind = text[1:].rpartition("]")
        return {"type": "array", "items": _type(inner), **_list_kind(kind)}
    return _named(text)


def _list_kind(text: str) -> Schema:
    if match := re.fullmatch(r"m\((.+)\)", text):
        return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": match[1].split(",")}
    return {"x-kubernetes-list-type": {"a": "atomic", "set": "set"}[text]} if text else {}


def _set_claims(pod_spec: Schema, copy: Copy) -> None:
    for containers in ("containers", "initContainers", "ephemeralContainers"):
        container = pod_spec["properties"][containers]["items"]
        container["properties"]["resources"]["properties"]["claims"] = _type(copy.container_claims)
    pod_spec["properties"]["resources"]["properties"]["claims"] = _type(copy.pod_claims)


def _at(schema: Schema, *path: str) -> Schema:
    for name in path:
        schema = schema["properties"][name]
    return schema
