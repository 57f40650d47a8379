"""Makes manifests from a schema: one that uses every field, and variations of it that break one rule everywhere.

A *path* is a tuple of keys and list positions. All functions return fresh values.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

Schema = dict[str, Any]
Path = tuple[str | int, ...]

UNKNOWN = "unknownToTheSchema"


class Place(NamedTuple):
    """A value in a manifest, and the schema that it has to meet."""

    path: Path
    schema: Schema
    value: Any


def maximal(schema: Schema) -> Any:
    """A value that uses every field at every depth, none with its default. Lists have one item, maps one entry.

    Places that take integers and strings get them in turn.
    """
    turns = iter(range(1_000_000))

    def make(node: Schema) -> Any:
        if node.get("x-kubernetes-int-or-string"):
            pair = (2, "250m") if "pattern" in node else (8080, "http")
            return pair[next(turns) % 2]
        if "properties" in node:
            return {name: make(child) for name, child in node["properties"].items()}
        if "additionalProperties" in node:
            return {"key": make(node["additionalProperties"])}
        if node["type"] == "array":
            return [make(node["items"])]
        if node.get("format") == "date-time":
            return "2026-01-02T03:04:05Z"
        return {"string": "text", "boolean": True, "integer": 7, "number": 0.5, "object": {}}[node["type"]]

    return make(schema)


def minimal(schema: Schema) -> Any:
    """A value that has every object, list and map of the schema, and in them only what is required."""

    def make(node: Schema) -> Any:
        if "properties" in node:
            required = node.get("required", ())
            return {
                name: make(child)
                for name, child in node["properties"].items()
                if name in required or _is_container(child)
            }
        if "additionalProperties" in node:
            return {"key": make(node["additionalProperties"])}
        return [make(node["items"])] if node.get("type") == "array" else maximal(node)

    return make(schema)


def with_defaults(schema: Schema, value: Any) -> Any:
    """``value`` with the defaults of ``schema`` in the objects that lack the field or have null for it."""
    if isinstance(value, dict) and "properties" in schema:
        result = {}
        for name, child in schema["properties"].items():
            if value.get(name) is not None:
                result[name] = with_defaults(child, value[name])
            elif "default" in child:
                result[name] = child["default"]
        return result | {name: given for name, given in value.items() if name not in schema["properties"]}
    if isinstance(value, dict) and "additionalProperties" in schema:
        return {key: with_defaults(schema["additionalProperties"], item) for key, item in value.items()}
    if isinstance(value, list):
        return [with_defaults(schema["items"], item) for item in value]
    return value


def places(schema: Schema, value: Any, path: Path = ()) -> Iterator[Place]:
    """Every value within ``value``, itself included, from the outside in."""
    yield Place(path, schema, value)
    if isinstance(value, dict):
        for key, item in value.items():
            child = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
            if child is not None:
                yield from places(child, item, (*path, key))
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from places(schema["items"], item, (*path, position))


def changed(value: Any, where: Iterable[Place], change: Callable[[Any, Place], Any]) -> Any:
    """A copy of ``value`` in which ``change`` has replaced what is at each place, in their order.

    It gets what is there now, which differs from the place's own value when something inside was changed before.
    """
    root = [copy.deepcopy(value)]
    for place in where:
        *parents, last = (0, *place.path)
        holder: Any = root
        for step in parents:
            holder = holder[step]
        holder[last] = change(holder[last], place)
    return root[0]


def without(value: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """``value`` without the fields ``names``."""
    return {name: item for name, item in value.items() if name not in names}


def field_name(path: Path) -> str:
    """``path`` as the API server writes it in the causes of a refusal: ``spec.containers[0].name``."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def _is_container(schema: Schema) -> bool:
    return schema.get("type") in {"object", "array"}
