"""The part of JSONPath that printer columns and selectable fields use: ``.spec.a``, ``[0]``, ``['a.b']``, ``[*]``,
and filters that compare a field with a text, as in ``.status.conditions[?(@.type=="Ready")].status``."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

__all__ = ["JsonPathError", "compile_path", "simple_path"]

_STEP = re.compile(
    r"\.(?!\*)(?P<field>(?:[^.\[\]'\"\\\s]|\\.)+)"
    r"|\[(?P<index>-?\d+)\]"
    r"|\[(?P<all>\*)\]|(?P<dot_all>\.\*)"
    r"|\[(?P<quote>['\"])(?P<quoted>.*?)(?P=quote)\]"
    r"|\[\?\(\s*@(?P<filter_path>(?:\.[^.\[\]'\"\s=!]+)+)\s*(?P<operator>==|!=)\s*(?P<value>\"[^\"]*\"|'[^']*'|[^\s)]+)\s*\)\]"
)

_Step = Callable[[Any], list[Any]]


class JsonPathError(ValueError):
    """A path is malformed, or uses what isn't understood here."""


def compile_path(path: str) -> Callable[[Any], list[Any]]:
    """A function from a value to what ``path`` finds in it. Raises :class:`JsonPathError`."""
    steps: list[_Step] = []
    position = 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            raise JsonPathError(f"can't understand {path[position:]!r} in the JSON path {path!r}")
        steps.append(_step(match))
        position = match.end()

    def find(value: Any) -> list[Any]:
        found = [value]
        for step in steps:
            found = [each for item in found for each in step(item)]
        return found

    return find


def simple_path(path: str) -> list[str]:
    """The fields of a path that consists of fields only. Raises :class:`JsonPathError`."""
    if re.fullmatch(r"(\.[A-Za-z0-9_-]+)+", path) is None:
        raise JsonPathError(f"is an invalid path: {path!r} must be a simple path such as .spec.field")
    return path.removeprefix(".").split(".")


def _step(match: re.Match[str]) -> _Step:
    if match["index"] is not None:
        return _at_index(int(match["index"]))
    if match["all"] or match["dot_all"]:
        return _items
    if match["filter_path"]:
        return _filtered(match)
    field = match["quoted"] if match["quoted"] is not None else re.sub(r"\\(.)", r"\1", match["field"])
    return lambda value: [value[field]] if isinstance(value, dict) and field in value else []


def _at_index(index: int) -> _Step:
    def step(value: Any) -> list[Any]:
        if isinstance(value, list) and -len(value) <= index < len(value):
            return [value[index]]
        return []

    return step


def _items(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    return list(value.values()) if isinstance(value, dict) else []


def _filtered(match: re.Match[str]) -> _Step:
    find = compile_path(match["filter_path"])
    wanted = match["value"].strip("'\"")
    negated = match["operator"] == "!="

    def shown(value: Any) -> str:
        return str(value).lower() if isinstance(value, bool) else str(value)

    def step(value: Any) -> list[Any]:
        return [item for item in _items(value) if (found := find(item)) and (shown(found[0]) == wanted) is not negated]

    return step
