"""Tables, and objects cut down to their metadata: the forms in which kubectl and metadata clients ask for objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from runherd.local.apiserver.columns import age_at
from runherd.local.apiserver.kinds import Column, Kind, Object
from runherd.local.apiserver.store import Record
from runherd.local.apiserver.writes import object_of
from runherd.wire.clock import Clock

__all__ = ["partial_metadata", "render_metadata", "render_row", "table"]

_META_VERSION = "meta.k8s.io/v1"
#: What accompanies each row (``includeObject``): nothing, metadata, or all of the object.
_WITH_OBJECT = {"None", "Metadata", "Object"}


def table(
    kind: Kind, records: Sequence[Record], list_metadata: Object, clock: Clock, include: str, *, headers: bool = True
) -> Object:
    """The ``Table`` with a row for each record. ``include`` is what ``includeObject`` asks for."""
    age = age_at(clock.now())
    return {
        "kind": "Table",
        "apiVersion": _META_VERSION,
        "metadata": list_metadata,
        "columnDefinitions": [_definition(column) for column in kind.columns] if headers else [],
        "rows": [_row(kind, object_of(record), age, include) for record in records],
    }


def _definition(column: Column) -> Object:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }


def _row(kind: Kind, value: Object, age: Callable[[str | None], str], include: str) -> Object:
    row: Object = {"cells": [column.cell(value, age) for column in kind.columns]}
    if include == "Object":
        row["object"] = {**value, "apiVersion": kind.api_version}
    elif include != "None":
        row["object"] = partial_metadata(value)
    return row


def partial_metadata(value: Object) -> Object:
    """An object with nothing but its metadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": _META_VERSION, "metadata": value["metadata"]}


def render_row(kind: Kind, clock: Clock, include: str) -> Callable[[Record], bytes]:
    """For watches: the table with the one row of a record. Only a watch's first table has column definitions."""
    first = True

    def render(record: Record) -> bytes:
        nonlocal first
        metadata: dict[str, Any] = {"resourceVersion": str(record.revision)}
        shown = table(kind, [record], metadata, clock, include, headers=first)
        first = False
        return msgspec.json.encode(shown)

    return render


def render_metadata(record: Record) -> bytes:
    """For watches: a record cut down to its metadata."""
    return msgspec.json.encode(partial_metadata(object_of(record)))
