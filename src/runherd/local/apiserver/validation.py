"""Validation of custom resources: jsonschema-rs decides, and its findings are worded as the real server words them."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any
from urllib.parse import urlsplit

import jsonschema_rs
import msgspec

from runherd.local.apiserver.errors import (
    FieldError,
    duplicate,
    invalid_value,
    not_supported,
    required,
    too_long,
    too_many,
    type_invalid,
)
from runherd.local.apiserver.schema import Schema

__all__ = ["SchemaError", "Validator"]


class SchemaError(Exception):
    """A schema can't be used: a pattern that is no regular expression, a keyword of the wrong type."""


class Validator:
    """Checks objects against one ``openAPIV3Schema``."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Raises :class:`SchemaError` for a schema that can't be used."""
        self._schema = _translated(schema)
        self._lists = Schema(schema)
        try:
            self._validator = jsonschema_rs.Draft4Validator(self._schema, formats=_FORMATS, validate_formats=True)
        except ValueError as error:
            raise SchemaError(str(error)) from error

    def check(self, value: Any) -> list[FieldError]:
        """What is wrong with an object; empty when nothing is."""
        errors: list[FieldError] = []
        if not self._validator.is_valid(value):
            found = _without_repetition(list(self._validator.iter_errors(value)))
            errors = sorted((each for error in found for each in self._worded(error)), key=lambda each: each.field)
        return errors + (list(_list_errors(value, self._lists, "")) if self._lists.has_keyed_lists else [])

    def _worded(self, error: jsonschema_rs.ValidationError) -> list[FieldError]:
        """The real server's causes for one finding."""
        field = _joined(error.instance_path)
        if error.kind.name == "type":
            return _wrong_type(field, error, self._node(error.schema_path))
        if error.kind.name in {"anyOf", "oneOf"}:
            nearest = [cause for each in _nearest(error) for cause in self._worded(each)]
            return [_combination(field, error), *nearest]
        return [_value_error(field, error.instance, error.kind)]

    def _node(self, path: Sequence[str | int]) -> Mapping[str, Any]:
        """The part of the schema whose keyword (the path's last step) has failed."""
        node: Any = self._schema
        for step in path[:-1]:
            node = node[step]
        return dict(node)


#: Of these the real server tells the first that fails.
_STRING_KEYWORDS = ("maxLength", "minLength", "pattern")


def _without_repetition(errors: list[jsonschema_rs.ValidationError]) -> list[jsonschema_rs.ValidationError]:
    failed = {(tuple(error.instance_path), error.kind.name) for error in errors}

    def comes_first(error: jsonschema_rs.ValidationError) -> bool:
        name = error.kind.name
        if name not in _STRING_KEYWORDS:
            return True
        before = _STRING_KEYWORDS[: _STRING_KEYWORDS.index(name)]
        return not any((tuple(error.instance_path), each) in failed for each in before)

    return [error for error in errors if comes_first(error)]


def _list_errors(value: Any, schema: Schema, path: str) -> Iterator[FieldError]:
    """What comes twice in lists that are sets, or maps by some of their items' fields."""
    if isinstance(value, dict):
        for key, item in value.items():
            child = schema.at(key)
            if child is not None and child.has_keyed_lists:
                yield from _list_errors(item, child, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        seen: list[Any] = []
        for index, item in enumerate(value):
            identity = schema.identity_of(item)
            if identity is not None:
                if identity in seen:
                    yield duplicate(f"{path}[{index}]", identity)
                seen.append(identity)
            if schema.items is not None and schema.items.has_keyed_lists:
                yield from _list_errors(item, schema.items, f"{path}[{index}]")


_KEPT = (
    "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "maxLength", "minLength", "pattern", "maxItems",
    "minItems", "uniqueItems", "multipleOf", "maxProperties", "minProperties",
)  # fmt: skip
#: Kept in a translated schema for the wording; it means nothing to the validator.
_FORMAT = "x-format"
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
        result[_FORMAT] = schema["format"]
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


def _wrong_type(field: str, error: jsonschema_rs.ValidationError, schema: Mapping[str, Any]) -> list[FieldError]:
    expected, found = _expected(error.kind.as_dict()), _type_of(error.instance)
    errors = []
    if _FORMAT in schema and not isinstance(error.instance, str | list) and error.instance is not None:
        # A number's form is checked before its type.
        expected, found = schema[_FORMAT], "float64" if isinstance(error.instance, float) else ""
        if found:
            text = f"Checked value must be of type integer with format {expected} in {field}"
            errors.append(invalid_value("<nil>", "", text))
    text = f'{field} in body must be of type {expected}: "{found}"'
    return [*errors, type_invalid(field, found, text)]


def _combination(field: str, error: jsonschema_rs.ValidationError) -> FieldError:
    """No alternative fits, or too many do. The real server doesn't name the field, as a field."""
    if error.kind.name == "anyOf":
        return invalid_value("<nil>", "", f'"{field}" must validate at least one schema (anyOf)')
    alternatives: list[list[Any]] = error.kind.as_dict().get("context") or []
    fitting = sum(not findings for findings in alternatives)
    told = f"Found {fitting} valid alternatives" if fitting else "Found none valid"
    return invalid_value("<nil>", "", f'"{field}" must validate one and only one schema (oneOf). {told}')


def _nearest(error: jsonschema_rs.ValidationError) -> list[jsonschema_rs.ValidationError]:
    """The findings of the alternative that the value fits best: the one with the fewest."""
    alternatives: list[list[jsonschema_rs.ValidationError]] = error.kind.as_dict().get("context") or [[]]
    return min(alternatives, key=len)


_BOUNDS = {
    "maximum": "less than or equal to",
    "exclusiveMaximum": "less than",
    "minimum": "greater than or equal to",
    "exclusiveMinimum": "greater than",
}


def _value_error(field: str, value: Any, kind: jsonschema_rs.ValidationErrorKind) -> FieldError:
    limits: dict[str, Any] = kind.as_dict()
    where = f"{field} in body"
    name = kind.name
    if name in _BOUNDS:
        return invalid_value(field, value, f"{where} should be {_BOUNDS[name]} {_number(limits['limit'])}")
    size = len(value) if isinstance(value, list | dict) else 0
    match name:
        case "required":
            return required(f"{field}.{limits['property']}" if field else limits["property"])
        case "enum":
            options = [option for option in limits["options"] if option is not None]
            return not_supported(field, value, [o if isinstance(o, str) else _json(o) for o in options])
        case "maxLength":
            return too_long(field, limits["limit"])
        case "minLength":
            return invalid_value(field, value, f"{where} should be at least {limits['limit']} chars long")
        case "pattern":
            return invalid_value(field, value, f"{where} should match '{limits['pattern']}'")
        case "format":
            return type_invalid(field, value, f"{where} must be of type {limits['format']}: {_json(value)}")
        case "multipleOf":
            return invalid_value(field, value, f"{where} should be a multiple of {_number(limits['multiple_of'])}")
        case "maxItems" | "maxProperties":
            return too_many(field, size, limits["limit"])
        case "minItems":
            return invalid_value(field, size, f"{where} should have at least {limits['limit']} items")
        case "minProperties":
            return invalid_value(field, size, f"{where} should have at least {limits['limit']} properties")
        case "not":
            return invalid_value("<nil>", "", f'"{field}" must not validate the schema (not)')
    return invalid_value(field, value, str(name))


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _joined(parts: Iterable[str | int]) -> str:
    path = ""
    for part in parts:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
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
