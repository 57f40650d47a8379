"""Validation of custom resources: jsonschema-rs decides, and its findings are worded as the real server words them."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from typing import Any
from urllib.parse import urlsplit

import jsonschema_rs
import msgspec

from runherd.local.apiserver.errors import (
    FieldError,
    invalid_value,
    not_supported,
    required,
    too_long,
    too_many,
    type_invalid,
)

__all__ = ["SchemaError", "Validator"]


class SchemaError(Exception):
    """A schema can't be used: a pattern that is no regular expression, a keyword of the wrong type."""


class Validator:
    """Checks objects against one ``openAPIV3Schema``."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Raises :class:`SchemaError` for a schema that can't be used."""
        try:
            self._validator = jsonschema_rs.Draft4Validator(
                _translated(schema), formats=_FORMATS, validate_formats=True
            )
        except ValueError as error:
            raise SchemaError(str(error)) from error

    def check(self, value: Any, path: str = "") -> list[FieldError]:
        """What is wrong with ``value``, which is found at ``path`` of its object; empty when nothing is."""
        if self._validator.is_valid(value):
            return []
        found = [_worded(error, path) for error in self._validator.iter_errors(value)]
        return sorted((each for group in found for each in group), key=lambda error: error.field)


_KEPT = (
    "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "maxLength", "minLength", "pattern", "maxItems",
    "minItems", "uniqueItems", "multipleOf", "maxProperties", "minProperties",
)  # fmt: skip
_INTEGER_BITS = {"int32": 32, "int64": 64}


def _translated(schema: Mapping[str, Any]) -> dict[str, Any]:
    """An OpenAPI v3 schema as a JSON schema (draft 4, whose exclusive bounds are booleans too)."""
    result: dict[str, Any] = {key: schema[key] for key in _KEPT if key in schema}
    types = ["integer", "string"] if schema.get("x-kubernetes-int-or-string") else [schema.get("type")]
    if types != [None]:
        result["type"] = [*types, "null"] if schema.get("nullable") else types
    if schema.get("type") == "string" and schema.get("format") in _FORMATS:
        result["format"] = schema["format"]
    if schema.get("type") == "integer" and schema.get("format") in _INTEGER_BITS:
        limit = 2 ** (_INTEGER_BITS[schema["format"]] - 1)
        result.setdefault("minimum", -limit)
        result.setdefault("maximum", limit - 1)
    if schema.get("enum") is not None:
        result["enum"] = [*schema["enum"], None] if schema.get("nullable") else schema["enum"]
    if schema.get("required"):
        result["required"] = schema["required"]
    if "properties" in schema:
        result["properties"] = {key: _translated(value) for key, value in schema["properties"].items()}
    for keyword in ("additionalProperties", "items", "not"):
        if isinstance(schema.get(keyword), Mapping):
            result[keyword] = _translated(schema[keyword])
    for keyword in ("allOf", "anyOf", "oneOf"):
        if schema.get(keyword):
            result[keyword] = [_translated(value) for value in schema[keyword]]
    if schema.get("x-kubernetes-embedded-resource"):
        result.setdefault("required", [])
        result["required"] = sorted({*result["required"], "apiVersion", "kind"})
    return result


def _worded(error: jsonschema_rs.ValidationError, path: str) -> list[FieldError]:
    """The real server's causes for one finding. (It reads ``spec.a in body`` and the like; that is kept.)"""
    field = path + _joined(error.instance_path, path)
    value = error.instance
    limits: dict[str, Any] = error.kind.as_dict()
    where = f"{field} in body"
    match error.kind.name:
        case "required":
            return [required(f"{field}.{limits['property']}" if field else limits["property"])]
        case "type":
            found = _type_of(value)
            return [type_invalid(field, found, f'{where} must be of type {_expected(limits)}: "{found}"')]
        case "enum":
            options = [o for o in limits["options"] if o is not None]
            return [
                not_supported(
                    field, value, [o if isinstance(o, str) else msgspec.json.encode(o).decode() for o in options]
                )
            ]
        case "maxLength":
            return [too_long(field, limits["limit"])]
        case "minLength":
            return [invalid_value(field, value, f"{where} should be at least {limits['limit']} chars long")]
        case "pattern":
            return [invalid_value(field, value, f"{where} should match '{limits['pattern']}'")]
        case "format":
            detail = f"{where} must be of type {limits['format']}: {msgspec.json.encode(value).decode()}"
            return [invalid_value(field, value, detail)]
        case "maximum":
            return [invalid_value(field, value, f"{where} should be less than or equal to {_number(limits['limit'])}")]
        case "exclusiveMaximum":
            return [invalid_value(field, value, f"{where} should be less than {_number(limits['limit'])}")]
        case "minimum":
            return [
                invalid_value(field, value, f"{where} should be greater than or equal to {_number(limits['limit'])}")
            ]
        case "exclusiveMinimum":
            return [invalid_value(field, value, f"{where} should be greater than {_number(limits['limit'])}")]
        case "multipleOf":
            return [invalid_value(field, value, f"{where} should be a multiple of {_number(limits['multiple_of'])}")]
        case "maxItems" | "maxProperties":
            size = len(value) if isinstance(value, list | dict) else 0
            return [too_many(field, size, limits["limit"])]
        case "minItems":
            return [invalid_value(field, value, f"{where} should have at least {limits['limit']} items")]
        case "minProperties":
            return [invalid_value(field, value, f"{where} should have at least {limits['limit']} properties")]
        case "uniqueItems":
            return [invalid_value(field, value, f"{where} shouldn't contain duplicates")]
        case "anyOf":
            nearest = _nearest(limits, path)
            return [invalid_value(field, "", f'"{field}" must validate at least one schema (anyOf)'), *nearest]
        case "oneOf":
            text = f'"{field}" must validate one and only one schema (oneOf). '
            if "OneOfNotValid" in type(error.kind).__name__:
                return [invalid_value(field, "", f"{text}Found none valid"), *_nearest(limits, path)]
            return [invalid_value(field, "", f"{text}Found several valid alternatives")]
        case "not":
            return [invalid_value(field, "", f'"{field}" must not validate the schema (not)')]
    return [invalid_value(field, value, error.message)]


def _nearest(limits: Mapping[str, Any], path: str) -> list[FieldError]:
    """The causes of the alternative that the value fits best: the one with the fewest findings."""
    alternatives: list[list[jsonschema_rs.ValidationError]] = limits.get("context") or [[]]
    best = min(alternatives, key=len)
    return [cause for error in best for cause in _worded(error, path)]


def _joined(parts: Iterable[str | int], prefix: str) -> str:
    path = ""
    for part in parts:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path or prefix else part
    return path


def _type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def _expected(limits: Mapping[str, Any]) -> str:
    types = limits.get("types") or limits.get("type")
    names = [types] if isinstance(types, str) else list(types or ())
    return ",".join(name for name in names if name != "null")


def _number(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _matches(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern, re.IGNORECASE)
    return lambda value: compiled.fullmatch(value) is not None


def _parses(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def check(value: str) -> bool:
        try:
            parse(value)
        except (ValueError, binascii.Error):
            return False
        return True

    return check


def _is_uri(value: str) -> bool:
    return value.startswith("/") or bool(urlsplit(value).scheme)


_LABEL = r"[0-9a-z]([0-9a-z-]{0,61}[0-9a-z])?"
#: The string formats that are checked, as the real server checks them; others are only notes to the reader.
_FORMATS: dict[str, Callable[[str], bool]] = {
    "byte": _parses(lambda value: base64.b64decode(value, validate=True)),
    "cidr": _parses(lambda value: ipaddress.ip_network(value, strict=False)),
    "date": _parses(date.fromisoformat),
    "date-time": _parses(datetime.fromisoformat),
    "datetime": _parses(datetime.fromisoformat),
    "duration": _matches(r"[+-]?((\d+(\.\d*)?|\.\d+)\s*(ns|us|\u00b5s|ms|s|m|h|d|w|[a-z]+)\s*)+|0"),
    "email": _matches(r"[^@\s]+@[^@\s]+"),
    "hostname": _matches(rf"{_LABEL}(\.{_LABEL})*"),
    "ipv4": _parses(ipaddress.IPv4Address),
    "ipv6": _parses(ipaddress.IPv6Address),
    "mac": _matches(r"([0-9a-f]{2}[:-]){5}[0-9a-f]{2}"),
    "uri": _is_uri,
    "uuid": _matches(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}"),
}
