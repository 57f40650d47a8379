"""From a request's body to an object of its kind: typed or pruned, with unknown and duplicate fields reported."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import msgspec

from runherd.local.apiserver import metadata
from runherd.local.apiserver.bodies import duplicate_fields, media_type_of, parse
from runherd.local.apiserver.errors import bad_request
from runherd.local.apiserver.kinds import Kind, Object
from runherd.local.apiserver.negotiation import JSON, YAML
from runherd.local.apiserver.options import FieldValidation
from runherd.local.apiserver.schema import DecodeError, Schema, decode_typed, prune

__all__ = [
    "builtin_definitions",
    "builtin_schema",
    "check_kind",
    "conform",
    "encode",
    "read_body",
    "read_object",
    "report_strict",
]


@cache
def builtin_definitions() -> dict[str, Any]:
    """The schemas of the built-in kinds and of all they refer to, by their full names."""
    data = resources.files("runherd.local.apiserver").joinpath("builtin_schemas.json").read_bytes()
    result: dict[str, Any] = msgspec.json.decode(data)
    return result


@cache
def builtin_schema(name: str) -> Schema:
    """The schema of a built-in type by its full name, as in ``io.k8s.api.core.v1.Pod``."""
    return Schema({"$ref": f"#/components/schemas/{name}"}, builtin_definitions())


_OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def encode(value: Object) -> bytes:
    """An object as the store keeps it: ``apiVersion`` and ``kind`` come first, always in this order."""
    return msgspec.json.encode({"apiVersion": value["apiVersion"], "kind": value["kind"], **value})


def read_body(body: bytes, content_type: str, kind: Kind) -> Any:
    """The plain value of a body that should hold an object of ``kind``. Raises a 400 or a 415."""
    try:
        # What is sent to a definition's kinds has no message that could be known.
        return parse(body, media_type_of(content_type, (JSON, YAML)) if kind.is_custom else media_type_of(content_type))
    except ValueError as error:
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind.kind}): couldn't get version/kind; {error}"
        ) from error


def read_object(kind: Kind, body: bytes, content_type: str, validation: FieldValidation) -> tuple[Object, list[str]]:
    """The object that a create or update sends, and warnings for the client.

    Raises a 400 for what is no object of the kind, or (``Strict``) has unknown or duplicate fields.
    """
    value = read_body(body, content_type, kind)
    if value is None and not kind.is_custom:
        value = {}
    duplicates = [] if validation == "Ignore" else duplicate_fields(body, value, media_type_of(content_type))
    check_kind(kind, value)
    try:
        unknown = conform(kind, value)
    except DecodeError as error:
        raise bad_request(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {error}'
        ) from error
    if validation == "Ignore":
        return value, []
    problems = [f'duplicate field "{path}"' for path in duplicates]
    problems += [f'unknown field "{path}"' for path in unknown]
    if problems and validation == "Strict":
        raise bad_request(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {report_strict(problems)}'
        )
    return value, problems


def report_strict(problems: list[str]) -> str:
    """How unknown and duplicate fields are refused."""
    return f"strict decoding error: {', '.join(problems)}"


def check_kind(kind: Kind, value: Any) -> None:
    """Raises a 400 unless ``value`` says that it is an object of ``kind``."""
    wanted = f"the object provided is unrecognized (must be of type {kind.kind})"
    if not isinstance(value, dict):
        raise bad_request(f"{wanted}: couldn't get version/kind; json parse error: not an object")
    api_version, name = value.get("apiVersion"), value.get("kind")
    # A built-in kind need not be named: the path says what it is.
    if not name and not kind.is_custom:
        name = value["kind"] = kind.kind
        api_version = value["apiVersion"] = api_version or kind.api_version
    if not isinstance(name, str) or not name:
        raise bad_request(f"{wanted}: Object 'Kind' is missing in '{_summary(value)}'")
    if not isinstance(api_version, str) or not api_version:
        raise bad_request(f"{wanted}: Object 'apiVersion' is missing in '{_summary(value)}'")
    if name != kind.kind:
        raise bad_request(
            f'{name} in version "{api_version.rpartition("/")[2]}" cannot be handled as a {kind.kind}: '
            f"no kind {name!r} is served under this path"
        )
    if api_version != kind.api_version:
        raise bad_request(
            f"the API version in the data ({api_version}) does not match the expected API version ({kind.api_version})"
        )


def _summary(value: Object) -> str:
    """The beginning of a value. Secrets are kept out of messages: their fields are not shown."""
    return msgspec.json.encode(sorted(value)).decode()[:80]


def conform(kind: Kind, value: Object) -> list[str]:
    """Bring ``value``, in place, to the kind's schema; the paths of the fields that had to go.

    Raises :class:`DecodeError` where a type makes it unreadable. What a schema of a custom kind forbids besides is
    found by validation later.
    """
    unknown: list[str] = []
    meta = value.get("metadata")
    if meta is None:
        meta = value["metadata"] = {}
    decode_typed(meta, builtin_schema(_OBJECT_META), unknown, "metadata")
    metadata.tidy(meta)
    if kind.is_custom:
        prune(value, kind.schema, unknown, is_resource=True)
    else:
        known: list[str] = []
        decode_typed(value, kind.schema, known)
        unknown += known
    return unknown
