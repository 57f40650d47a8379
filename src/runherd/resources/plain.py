"""Specs as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from runherd.api.meta import ApiStruct

__all__ = ["plain"]

# A bound for a process that runs for a year; beyond it, results are correct but no longer shared.
_MAX_CONTENTS = 1024

_encode = msgspec.json.Encoder().encode


def plain(spec: ApiStruct) -> Mapping[str, Any]:
    """``spec`` as plain JSON data, pod templates with every field they have. Shared by all callers: don't change it."""
    return _decoded(_encode(spec))


@lru_cache(_MAX_CONTENTS)
def _decoded(content: bytes) -> Mapping[str, Any]:
    return msgspec.json.decode(content, type=dict[str, Any])
