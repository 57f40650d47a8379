"""Reads the compact notation in which ``crds.schema`` declares object types, and writes them as OpenAPI v3 schemas.

The notation is that of ``docs/spec/crds.md`` 1; the head of ``crds.schema`` says what that file adds to it. It is read
once, when a definition is asked for, and any mistake in it is a :class:`DeclarationError` that names the line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Column", "Declaration", "DeclarationError", "Kind"]

Schema = dict[str, Any]

#: What the API server takes for a quantity (``docs/spec/crds.md`` 7.4).
_QUANTITY = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
_INT_OR_STRING: Schema = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}

_SCALARS: dict[str, Schema] = {
    "s": {"type": "string"},
    "b": {"type": "boolean"},
    "i": {"type": "integer"},
    "n": {"type": "number"},
    "i32": {"type": "integer", "format": "int32"},
    "i64": {"type": "integer", "format": "int64"},
    "dt": {"type": "string", "format": "date-time"},
    "ios": _INT_OR_STRING,
    "qty": {**_INT_OR_STRING, "pattern": _QUANTITY},
}

_DEFINITION = re.compile(r"(?P<name>\w+)(<(?P<parameters>[\w,]+)>)?(?P<atomic>~)? = (?P<fields>.+)")
_KIND = re.compile(r"kind (?P<name>\w+) = (?P<fields>.+)")
_COLUMN = re.compile(r"column (?P<name>.+) (?P<type>integer|number|string|date) (?P<json_path>\.\S+)")
_FIELD = re.compile(r"(?P<name>\w+)(?P<required>!)?:(?P<type>[^=]+?)(>=(?P<minimum>\d+))?(=(?P<default>.+))?")
_TOKEN = re.compile(r"\w+|[\[\]{}<>(),~]")


class DeclarationError(ValueError):
    """The declaration breaks its own notation; the message names the line or the type."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column that ``kubectl get`` prints."""

    name: str
    type: str
    json_path: str


@dataclass(frozen=True, slots=True)
class Kind:
    """A declared kind: its top-level object (``spec`` and ``status``) and its columns."""

    name: str
    schema: Schema
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class _Definition:
    parameters: tuple[str, ...]
    atomic: bool
    fields: str


@dataclass(slots=True)
class Declaration:
    """A parsed declaration: named object types, and the kinds that are made of them."""

    _definitions: dict[str, _Definition] = field(default_factory=dict)
    _kinds: dict[str, str] = field(default_factory=dict)
    _columns: dict[str, list[Column]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Declaration:
        """Reads ``text``. Raises :class:`DeclarationError` for a line that is no definition, kind or column."""
        declaration = cls()
        for line in _logical_lines(text):
            declaration._read(line)
        return declaration

    def kinds(self) -> list[Kind]:
        """All kinds in the order of their declaration. Raises :class:`DeclarationError` when a type is wrong."""
        return [
            Kind(name, self._object(fields, {}), tuple(self._columns.get(name, ())))
            for name, fields in self._kinds.items()
        ]

    def _read(self, line: str) -> None:
        if match := _KIND.fullmatch(line):
            self._kinds[match["name"]] = match["fields"]
        elif match := _COLUMN.fullmatch(line):
            if not self._kinds:
                raise DeclarationError(f"column before any kind: {line!r}")
            kind = next(reversed(self._kinds))
            self._columns.setdefault(kind, []).append(Column(match["name"], match["type"], match["json_path"]))
        elif match := _DEFINITION.fullmatch(line):
            if match["name"] in self._definitions or match["name"] in _SCALARS:
                raise DeclarationError(f"type {match['name']} is defined twice: {line!r}")
            parameters = tuple(match["parameters"].split(",")) if match["parameters"] else ()
            self._definitions[match["name"]] = _Definition(parameters, bool(match["atomic"]), match["fields"])
        else:
            raise DeclarationError(f"neither a definition nor a kind nor a column: {line!r}")

    def _object(self, fields: str, arguments: Mapping[str, Schema]) -> Schema:
        """The schema of an object with ``fields``, in which the names in ``arguments`` stand for those types."""
        properties: Schema = {}
        required = []
        for text in fields.split(";"):
            match = _FIELD.fullmatch(text.strip())
            if match is None:
                raise DeclarationError(f"not a field: {text.strip()!r}")
            schema = dict(_TypeReader(self, match["type"], arguments).read())
            if match["minimum"]:
                schema["minimum"] = int(match["minimum"])
            if match["default"]:
                schema["default"] = _default(match["default"], text)
            if match["required"]:
                required.append(match["name"])
            properties[match["name"]] = schema
        return {"type": "object", **({"required": required} if required else {}), "properties": properties}

    def _named(self, name: str, arguments: list[Schema]) -> Schema:
        """The schema of the type called ``name``, given its arguments."""
        definition = self._definitions.get(name)
        if definition is None:
            raise DeclarationError(f"unknown type {name}")
        if len(definition.parameters) != len(arguments):
            raise DeclarationError(f"type {name} takes {len(definition.parameters)} parameters, not {len(arguments)}")
        schema = self._object(definition.fields, dict(zip(definition.parameters, arguments, strict=True)))
        return {**schema, "x-kubernetes-map-type": "atomic"} if definition.atomic else schema


class _TypeReader:
    """Recursive descent over one type expression: ``s``, ``Name<T,..>``, ``{T}``, ``{T}~``, ``[T]`` and its kinds."""

    def __init__(self, declaration: Declaration, text: str, arguments: Mapping[str, Schema]) -> None:
        self._declaration = declaration
        self._text = text
        self._arguments = arguments
        self._tokens = _TOKEN.findall(text)
        if "".join(self._tokens) != text:
            raise DeclarationError(f"not a type: {text!r}")

    def read(self) -> Schema:
        """The schema of the whole expression."""
        schema = self._type()
        if self._tokens:
            raise DeclarationError(f"not a type: {self._text!r}")
        return schema

    def _type(self) -> Schema:
        symbol = self._next()
        if symbol == "[":
            return self._list()
        if symbol == "{":
            return self._map()
        if symbol in _SCALARS:
            return _SCALARS[symbol]
        if symbol in self._arguments:
            return self._arguments[symbol]
        return self._declaration._named(symbol, self._type_arguments())

    def _list(self) -> Schema:
        schema: Schema = {"type": "array", "items": self._type()}
        self._expect("]")
        if self._accept("a"):
            schema["x-kubernetes-list-type"] = "atomic"
        elif self._accept("set"):
            schema["x-kubernetes-list-type"] = "set"
        elif self._accept("m"):
            self._expect("(")
            keys = [self._next()]
            while self._accept(","):
                keys.append(self._next())
            self._expect(")")
            schema["x-kubernetes-list-map-keys"] = keys
            schema["x-kubernetes-list-type"] = "map"
        return schema

    def _map(self) -> Schema:
        schema: Schema = {"type": "object", "additionalProperties": self._type()}
        self._expect("}")
        return {**schema, "x-kubernetes-map-type": "atomic"} if self._accept("~") else schema

    def _type_arguments(self) -> list[Schema]:
        if not self._accept("<"):
            return []
        arguments = [self._type()]
        while self._accept(","):
            arguments.append(self._type())
        self._expect(">")
        return arguments

    def _next(self) -> str:
        if not self._tokens:
            raise DeclarationError(f"type ends too early: {self._text!r}")
        return str(self._tokens.pop(0))

    def _accept(self, token: str) -> bool:
        if self._tokens and self._tokens[0] == token:
            self._tokens.pop(0)
            return True
        return False

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            raise DeclarationError(f"expected {token!r} in type {self._text!r}")


def _default(literal: str, field_text: str) -> str | bool | int:
    """The value of a field's default, which is written as JSON."""
    try:
        value = json.loads(literal)
    except ValueError as error:
        raise DeclarationError(f"default of {field_text.strip()!r} is not JSON: {error}") from error
    if not isinstance(value, str | bool | int):
        raise DeclarationError(f"default of {field_text.strip()!r} is no string, boolean or integer")
    return value


def _logical_lines(text: str) -> Iterator[str]:
    """The lines of ``text`` without comments and blank lines, each joined with the indented lines that follow it."""
    joined = ""
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if line[0].isspace():
            joined += f" {line.strip()}"
            continue
        if joined:
            yield joined
        joined = line.strip()
    if joined:
        yield joined
