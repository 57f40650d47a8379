"""The JSON merge patch (RFC 7386) between two values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["merge_patch_between"]


def merge_patch_between(live: Mapping[str, Any], desired: Mapping[str, Any]) -> dict[str, Any]:
    """What turns ``live`` into ``desired``: changed values, ``None`` for those to be removed, lists whole.

    A value of ``None`` in ``desired`` reads as absent, since a merge patch can't say otherwise.
    """
    patch: dict[str, Any] = {}
    for key, value in desired.items():
        current = live.get(key)
        if isinstance(value, Mapping) and isinstance(current, Mapping):
            if inner := merge_patch_between(current, value):
                patch[key] = inner
        elif not _equal(value, current):
            patch[key] = value
    patch.update((key, None) for key, value in live.items() if value is not None and desired.get(key) is None)
    return patch


def _equal(first: Any, second: Any) -> bool:
    """Equality as JSON has it, where neither 1 nor 0 is a boolean."""
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_equal, first, second))
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(_equal(value, second[key]) for key, value in first.items())
    return bool(first == second)
