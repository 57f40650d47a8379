"""Reading the service's JSON as leniently as the service is used to (``docs/spec/actions-service.md`` 0).

Keys match whatever their case, unknown keys are ignored, ``null`` is as good as a missing key, and a byte order mark
in front is dropped. Types are strict: a number is no string, a time has a zone.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from typing import Any, TypeVar

import msgspec

__all__ = ["NotAsPromisedError", "decode", "parse", "to"]

T = TypeVar("T")


class NotAsPromisedError(Exception):
    """The body is not what the call promises. The text says what is wrong, and quotes nothing of the body."""


def parse(body: bytes) -> Any:
    """The JSON value in ``body``, with all keys in lower case and without those that are ``null``."""
    text = body.removeprefix(BOM_UTF8)
    if not text.strip():
        raise NotAsPromisedError("the body is empty")
    try:
        return _folded(msgspec.json.decode(text))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise NotAsPromisedError(f"the body ({len(body)} bytes) is not JSON") from None


def to(type_: type[T], value: Any) -> T:
    """``value``, as :func:`parse` returns it, as a ``type_`` whose fields' encoded names are in lower case."""
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        # The text names types and the place, never a value, since no type of ours is an enumeration or a tagged union.
        raise NotAsPromisedError(f"the body does not hold what it should: {error}") from None


def decode(type_: type[T], body: bytes) -> T:
    """The ``type_`` in ``body``. Raises :class:`NotAsPromisedError`."""
    return to(type_, parse(body))


def _folded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key.lower(): _folded(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_folded(item) for item in value]
    return value
