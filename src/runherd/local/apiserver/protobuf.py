"""Request bodies in protobuf, which programs written with client-go send of the built-in kinds unless told otherwise.

A body is four bytes of a magic number and a ``runtime.Unknown`` message, which holds the version and kind and the
object's own message. The messages' fields are data (``protobuf_fields.json``, made from the Go types by the client-go
program of the interoperability tests); the result is what the same client's JSON would have been parsed into. Answers
are never in protobuf: all clients that send it take JSON too.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from typing import Any

import msgspec

__all__ = ["decode_protobuf", "message_fields"]

_MAGIC = b"k8s\x00"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_EXTENSIONS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"
_GROUP_PACKAGES = {
    "v1": "io.k8s.api.core.v1",
    "coordination.k8s.io/v1": "io.k8s.api.coordination.v1",
    "rbac.authorization.k8s.io/v1": "io.k8s.api.rbac.v1",
    "apiextensions.k8s.io/v1": _EXTENSIONS,
}
#: The messages of which one field stands for the whole, the first that is there.
_ALTERNATIVES = {
    f"{_EXTENSIONS}.JSONSchemaPropsOrArray": ("Schema", "JSONSchemas"),
    f"{_EXTENSIONS}.JSONSchemaPropsOrBool": ("Schema", "Allows"),
    f"{_EXTENSIONS}.JSONSchemaPropsOrStringArray": ("Schema", "Property"),
}
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
#: What a field of a scalar type holds where it is empty.
_EMPTY: dict[str, Any] = {"string": "", "bytes": "", "bool": False, "int": 0, "double": 0.0}

#: A field's number, wire type and raw value: an int, or the bytes of everything longer.
_Raw = tuple[int, int, int | bytes]


class _Field(msgspec.Struct, array_like=True, frozen=True):
    """``name`` is the JSON name, ``""`` where the fields of the message stand in its place."""

    name: str
    shape: str
    type: str
    keeps_empty: bool


@cache
def message_fields() -> dict[str, dict[int, _Field]]:
    """The fields of each message by their numbers; messages have the names that OpenAPI gives their types."""
    data = resources.files("runherd.local.apiserver").joinpath("protobuf_fields.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, dict[int, _Field]])


def decode_protobuf(body: bytes) -> Any:
    """The object in a body, in JSON's terms. Raises ValueError, with the reason, where it is malformed."""
    if not body.startswith(_MAGIC):
        raise ValueError("protobuf: the body lacks the prefix that Kubernetes objects have")
    api_version = kind = ""
    raw = b""
    for number, _, value in _read(body[len(_MAGIC) :]):
        if number == 1:
            names = {inner: _text(held) for inner, _, held in _read(_message(value))}
            api_version, kind = names.get(1, ""), names.get(2, "")
        elif number == 2:
            raw = _message(value)
    # Every group has these options.
    package = _META if kind == "DeleteOptions" else _GROUP_PACKAGES.get(api_version)
    if f"{package}.{kind}" not in message_fields():
        raise ValueError(f"protobuf: no kind {kind!r} is known in version {api_version!r}")
    try:
        return {"apiVersion": api_version, "kind": kind, **_decode(raw, f"{package}.{kind}")}
    except RecursionError:
        raise ValueError("protobuf: exceeded max depth") from None


def _decode(data: bytes, message: str) -> Any:
    special = _SPECIAL.get(message)
    if special is not None:
        return special(data)
    fields = message_fields()[message]
    result: dict[str, Any] = {}
    for number, wire, raw in _read(data):
        field = fields.get(number)
        # What a newer client knows besides is unknown here, as it is in JSON.
        if field is not None:
            _add(result, field, wire, raw)
    if message in _ALTERNATIVES:
        return next((result[name] for name in _ALTERNATIVES[message] if name in result), None)
    return result


def _add(result: dict[str, Any], field: _Field, wire: int, raw: int | bytes) -> None:
    if field.shape == "list":
        result.setdefault(field.name, []).append(_value(field.type, wire, raw))
    elif field.shape == "map":
        entry = {number: (inner, held) for number, inner, held in _read(_message(raw))}
        key = _text(entry[1][1]) if 1 in entry else ""
        result.setdefault(field.name, {})[key] = _value(field.type, *entry.get(2, (_BYTES, b"")))
    elif not field.name:
        result.update(_decode(_message(raw), field.type))
    else:
        value = _value(field.type, wire, raw)
        if field.keeps_empty or value not in (_EMPTY.get(field.type), None, {}):
            result[field.name] = value


def _value(type_: str, wire: int, raw: int | bytes) -> Any:
    match type_:
        case "string":
            return _text(raw)
        case "bytes":
            return base64.b64encode(_message(raw)).decode()
        case "bool":
            return bool(_integer(raw))
        case "int":
            return _integer(raw)
        case "double":
            if wire != _FIXED64:
                raise ValueError("protobuf: a number has the wrong wire type")
            return struct.unpack("<d", _message(raw))[0]
    return _decode(_message(raw), type_)


def _read(data: bytes) -> Iterator[_Raw]:
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, position = _varint(data, position)
            yield number, wire, value
            continue
        if wire == _BYTES:
            size, position = _varint(data, position)
        elif wire in {_FIXED64, _FIXED32}:
            size = 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"protobuf: field {number} has the unknown wire type {wire}")
        end = position + size
        if end > len(data):
            raise ValueError("protobuf: the body ends within a field")
        yield number, wire, data[position:end]
        position = end


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), position
        shift += 7
    raise ValueError("protobuf: the body ends within a number, or the number is too long")


def _integer(raw: int | bytes) -> int:
    if isinstance(raw, bytes):
        raise ValueError("protobuf: a number has the wrong wire type")  # noqa: TRY004  # malformed input, not misuse
    return raw - 2**64 if raw >= 2**63 else raw


def _message(raw: int | bytes) -> bytes:
    if isinstance(raw, int):
        raise ValueError("protobuf: a text or message has the wrong wire type")  # noqa: TRY004  # as above
    return raw


def _text(raw: int | bytes) -> str:
    try:
        return _message(raw).decode()
    except UnicodeDecodeError:
        raise ValueError("protobuf: a text is not UTF-8") from None


def _scalars(data: bytes) -> Mapping[int, int | bytes]:
    return {number: raw for number, _, raw in _read(data)}


def _time(data: bytes, timespec: str = "seconds") -> str | None:
    if not data:
        return None
    fields = _scalars(data)
    seconds, nanoseconds = _integer(fields.get(1, 0)), _integer(fields.get(2, 0))
    try:
        moment = datetime.fromtimestamp(0, UTC) + timedelta(seconds=seconds, microseconds=nanoseconds // 1000)
    except OverflowError:
        raise ValueError("protobuf: a time is out of range") from None
    return moment.isoformat(timespec=timespec).replace("+00:00", "Z")


def _micro_time(data: bytes) -> str | None:
    return _time(data, "microseconds")


def _quantity(data: bytes) -> str:
    return _text(_scalars(data).get(1, b"")) or "0"


def _int_or_string(data: bytes) -> int | str:
    fields = _scalars(data)
    return _text(fields.get(3, b"")) if _integer(fields.get(1, 0)) else _integer(fields.get(2, 0))


def _json(data: bytes) -> Any:
    raw = _message(_scalars(data).get(1, b""))
    try:
        return msgspec.json.decode(raw) if raw else None
    except msgspec.DecodeError as error:
        raise ValueError(f"protobuf: a field that should hold JSON doesn't: {error}") from error


#: The messages whose JSON isn't made of their fields.
_SPECIAL: dict[str, Callable[[bytes], Any]] = {
    f"{_META}.Time": _time,
    f"{_META}.MicroTime": _micro_time,
    f"{_META}.FieldsV1": _json,
    "io.k8s.apimachinery.pkg.api.resource.Quantity": _quantity,
    "io.k8s.apimachinery.pkg.runtime.RawExtension": _json,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": _int_or_string,
    f"{_EXTENSIONS}.JSON": _json,
}
