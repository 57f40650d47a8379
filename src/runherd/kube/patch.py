"""The four kinds of patch that a Kubernetes API server takes.

The body is what the kind of patch prescribes, as Python data, or already encoded as ``bytes``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

__all__ = ["ApplyPatch", "JsonPatch", "MergePatch", "Patch", "StrategicMergePatch"]

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class MergePatch:
    """RFC 7386: what is named is replaced, ``None`` removes, lists are replaced whole."""

    content_type: ClassVar[str] = "application/merge-patch+json"
    body: Mapping[str, Any] | bytes

    def encoded(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else _encode(self.body)


@dataclass(frozen=True, slots=True)
class StrategicMergePatch:
    """Like a merge patch, but lists are merged by the keys that their kind declares. Built-in kinds only."""

    content_type: ClassVar[str] = "application/strategic-merge-patch+json"
    body: Mapping[str, Any] | bytes

    def encoded(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else _encode(self.body)


@dataclass(frozen=True, slots=True)
class JsonPatch:
    """RFC 6902: a list of operations. The server refuses it whole when a ``test`` fails or a path is missing."""

    content_type: ClassVar[str] = "application/json-patch+json"
    body: Sequence[Mapping[str, Any]] | bytes

    def encoded(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else _encode(self.body)


@dataclass(frozen=True, slots=True)
class ApplyPatch:
    """Server-side apply: the fields that the field manager wants to own, with ``apiVersion`` and ``kind``.

    A call that sends it names a ``field_manager``; ``force`` takes fields over from other managers.
    """

    content_type: ClassVar[str] = "application/apply-patch+yaml"
    body: Mapping[str, Any] | bytes

    def encoded(self) -> bytes:
        # JSON is YAML, too.
        return self.body if isinstance(self.body, bytes) else _encode(self.body)


Patch = MergePatch | JsonPatch | StrategicMergePatch | ApplyPatch
