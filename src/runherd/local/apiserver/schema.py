"""Schemas of objects: what is pruned, what is defaulted, and what a strategic merge patch needs to know.

A schema is read from its OpenAPI form (the ``openAPIV3Schema`` of a CustomResourceDefinition, or the bundled schemas
of the built-in kinds) into a tree of :class:`Schema` once; objects are then walked with it in place.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from runherd.local.apiserver.targets import fits

__all__ = ["DecodeError", "Definitions", "Schema", "apply_defaults", "decode_typed", "prune"]

#: The schemas that ``$ref`` may name.
Definitions = Mapping[str, Mapping[str, Any]]

_REF_PREFIX = "#/components/schemas/"
_UNSET = object()
#: What every object may have besides what its schema names.
_OBJECT_FIELDS = frozenset({"apiVersion", "kind", "metadata"})


class DecodeError(Exception):
    """A value has a type that its field can't have, so that the object can't be read at all."""


@dataclass(frozen=True)
class Schema:
    """One node of a schema, a view of its OpenAPI form. Children are read when they are first needed."""

    source: Mapping[str, Any]
    definitions: Definitions = field(default_factory=dict, repr=False)

    @cached_property
    def _resolved(self) -> Mapping[str, Any]:
        """The node with a reference followed; what stands next to the reference (a default, merge keys) wins."""
        source = self.source
        reference = source.get("$ref")
        if reference is None and self.definitions and len(source.get("allOf", ())) == 1:
            reference = source["allOf"][0].get("$ref")
        if reference is None:
            return source
        return {**self.definitions[reference.removeprefix(_REF_PREFIX)], **source}

    @cached_property
    def name(self) -> str:
        """The name of the type that the node refers to, without its package; ``""`` for one that has none."""
        reference = self.source.get("$ref") or next((each.get("$ref", "") for each in self.source.get("allOf", ())), "")
        return str(reference).rpartition(".")[2]

    @cached_property
    def type(self) -> str:
        """``object``, ``array``, ``string``, ``integer``, ``number``, ``boolean``, or ``""`` for any."""
        return str(self._resolved.get("type", ""))

    @cached_property
    def format(self) -> str:
        return str(self._resolved.get("format", ""))

    @cached_property
    def properties(self) -> dict[str, Schema]:
        return {key: self._child(value) for key, value in self._resolved.get("properties", {}).items()}

    @cached_property
    def additional(self) -> Schema | None:
        """The schema of a map's values. ``additionalProperties: true`` is a schema that allows anything."""
        source = self._resolved.get("additionalProperties")
        if source is True:
            return Schema({"x-kubernetes-preserve-unknown-fields": True})
        return self._child(source) if source else None

    @cached_property
    def items(self) -> Schema | None:
        source = self._resolved.get("items")
        return self._child(source) if isinstance(source, Mapping) else None

    @cached_property
    def preserves_unknown(self) -> bool:
        return bool(self._resolved.get("x-kubernetes-preserve-unknown-fields"))

    @cached_property
    def is_embedded_resource(self) -> bool:
        return bool(self._resolved.get("x-kubernetes-embedded-resource"))

    @cached_property
    def is_nullable(self) -> bool:
        return bool(self._resolved.get("nullable"))

    @cached_property
    def default(self) -> Any:
        """The default, to be copied before use; ``_UNSET`` where there is none."""
        return self._resolved.get("default", _UNSET)

    @cached_property
    def has_defaults(self) -> bool:
        """Whether there is a default anywhere below, so that the walk can be cut short where there is none."""
        below = [*self.properties.values(), self.additional, self.items]
        return any(child is not None and (child.default is not _UNSET or child.has_defaults) for child in below)

    @cached_property
    def has_keyed_lists(self) -> bool:
        """Whether this or anything below is a list that is a set, or a map by some of its items' fields."""
        if self._resolved.get("x-kubernetes-list-type") in {"set", "map"}:
            return True
        below = [*self.properties.values(), self.additional, self.items]
        return any(child is not None and child.has_keyed_lists for child in below)

    def identity_of(self, item: Any) -> Any:
        """What tells an item of this list from the others; None where they may repeat."""
        match self._resolved.get("x-kubernetes-list-type"):
            case "set":
                return item
            case "map" if isinstance(item, dict):
                keys = self._resolved.get("x-kubernetes-list-map-keys") or ()
                return {key: item[key] for key in keys if key in item}
        return None

    @cached_property
    def patch_strategies(self) -> frozenset[str]:
        """``merge``, ``retainKeys``, ``replace``: how a strategic merge patch treats the field."""
        return frozenset(filter(None, str(self._resolved.get("x-kubernetes-patch-strategy", "")).split(",")))

    @cached_property
    def patch_merge_key(self) -> str:
        return str(self._resolved.get("x-kubernetes-patch-merge-key", ""))

    def at(self, name: str) -> Schema | None:
        """The schema of an object's field, if it has one."""
        return self.properties.get(name) or self.additional

    def _child(self, source: Mapping[str, Any]) -> Schema:
        return Schema(source, self.definitions)


def prune(value: Any, schema: Schema, unknown: list[str], path: str = "", *, is_resource: bool = False) -> None:
    """Remove, in place, the fields that the schema doesn't know; their paths are added to ``unknown``.

    A null in a field that isn't nullable goes too: it counts as absent. ``is_resource`` keeps ``apiVersion``, ``kind``
    and ``metadata``, which a resource may have without them being named.
    """
    # Most objects have nothing to remove, which is found out faster than how it would be removed.
    if not _is_pruned(value, schema, is_resource):
        _prune(value, schema, unknown, path, is_resource)


def _is_pruned(value: Any, schema: Schema, is_resource: bool = False) -> bool:
    """Whether there is nothing to remove."""
    if isinstance(value, dict):
        properties, additional = schema.properties, schema.additional
        is_resource = is_resource or schema.is_embedded_resource
        for key, item in value.items():
            if is_resource and key in _OBJECT_FIELDS:
                continue
            child = properties.get(key, additional)
            if child is None:
                if schema.preserves_unknown:
                    continue
                return False
            kind = type(item)
            if kind is str or kind is int:
                continue
            if item is None:
                if key in properties and not child.is_nullable:
                    return False
            elif (kind is dict or kind is list) and not _is_pruned(item, child):
                return False
    elif isinstance(value, list) and schema.items is not None:
        for item in value:
            if type(item) is not str and not _is_pruned(item, schema.items):
                return False
    return True


def _prune(value: Any, schema: Schema, unknown: list[str], path: str, is_resource: bool = False) -> None:
    if isinstance(value, dict):
        is_resource = is_resource or schema.is_embedded_resource
        properties, additional, preserves = schema.properties, schema.additional, schema.preserves_unknown
        for key in list(value):
            if is_resource and key in _OBJECT_FIELDS:
                continue
            child = properties.get(key) or additional
            if child is not None:
                item = value[key]
                if isinstance(item, dict | list):
                    _prune(item, child, unknown, f"{path}.{key}" if path else key)
                elif item is None and key in properties and not child.is_nullable:
                    del value[key]
            elif not preserves:
                unknown.append(f"{path}.{key}" if path else key)
                del value[key]
    elif isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(value):
            if isinstance(item, dict | list):
                _prune(item, schema.items, unknown, f"{path}[{index}]")


def apply_defaults(value: Any, schema: Schema) -> None:
    """Fill in, in place, what is absent and has a default."""
    if not schema.has_defaults:
        return
    if isinstance(value, dict):
        for key, child in schema.properties.items():
            if child.default is not _UNSET and key not in value:
                value[key] = copy.deepcopy(child.default)
        for key, item in value.items():
            known = schema.at(key)
            if known is not None and isinstance(item, dict | list):
                apply_defaults(item, known)
    elif isinstance(value, list) and schema.items is not None:
        for item in value:
            apply_defaults(item, schema.items)


_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
_TYPE_NAMES = {dict: "object", list: "array", str: "string", bool: "bool", int: "number", float: "number"}
_GO_TYPES = {"integer": "int64", "number": "float64", "boolean": "bool"}


def decode_typed(value: Any, schema: Schema, unknown: list[str], path: str = "", owner: str = "") -> Any:
    """Read a value of a built-in kind as Go's decoder does: unknown fields go, nulls count as absent.

    Changes ``value`` in place and returns it. Raises :class:`DecodeError` where a type doesn't fit.
    """
    kind = schema.type
    if kind == "object":
        if not isinstance(value, dict):
            raise _mismatch(value, schema, path, owner)
        properties, additional = schema.properties, schema.additional
        if not properties and additional is None:
            return value
        for key in list(value):
            item = value[key]
            child = properties.get(key) or additional
            if child is None:
                unknown.append(f"{path}.{key}" if path else key)
                del value[key]
            elif item is None:
                if key in properties:
                    del value[key]
                else:
                    value[key] = _zero(child)
            elif type(item) is not str or child.type != "string" or child.format == "date-time":
                value[key] = decode_typed(item, child, unknown, f"{path}.{key}" if path else key, schema.name or owner)
        return value
    if kind == "array":
        if not isinstance(value, list):
            raise _mismatch(value, schema, path, owner)
        items = schema.items
        if items is not None:
            for index, item in enumerate(value):
                if item is None:
                    value[index] = _zero(items)
                else:
                    value[index] = decode_typed(item, items, unknown, f"{path}[{index}]", owner)
        return value
    if not _fits(value, schema):
        raise _mismatch(value, schema, path, owner)
    return value


def _zero(schema: Schema) -> Any:
    """What a null among a list's items or a map's values stands for."""
    zeros: dict[str, Any] = {"object": {}, "array": [], "string": "", "integer": 0, "number": 0, "boolean": False}
    return zeros.get(schema.type)


def _fits(value: Any, schema: Schema) -> bool:
    match schema.type:
        case "string" if schema.format == "date-time":
            return isinstance(value, str) and _TIMESTAMP.fullmatch(value) is not None
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            bits = 32 if schema.format == "int32" else 64
            return isinstance(value, int) and not isinstance(value, bool) and fits(value, bits)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
    # A quantity or an int-or-string is a number or a string; a schema within a schema may be anything.
    return schema.format != "int-or-string" or (isinstance(value, int | str) and not isinstance(value, bool))


def _mismatch(value: Any, schema: Schema, path: str, owner: str) -> DecodeError:
    found = _TYPE_NAMES.get(type(value), "value")
    expected = _GO_TYPES.get(schema.type, schema.name or schema.type)
    if schema.type == "integer" and schema.format == "int32":
        expected = "int32"
    field_name = f"{owner}.{path}" if owner else path
    return DecodeError(f"json: cannot unmarshal {found} into Go struct field {field_name} of type {expected}")
