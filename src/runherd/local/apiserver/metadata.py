"""``metadata``, which all kinds share: what the server sets in it, and what clients may set and change."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from random import Random
from typing import Any

from runherd.local.apiserver.errors import (
    FieldError,
    forbidden_field,
    invalid_value,
    required,
    too_long,
)
from runherd.local.apiserver.names import (
    NameRule,
    label_value_problems,
    path_segment_problems,
    qualified_name_problems,
)
from runherd.wire.randomness import name_suffix, uuid4

__all__ = [
    "format_time",
    "generated_name",
    "initialize",
    "keep_system_fields",
    "parse_time",
    "tidy",
    "validate",
    "validate_update",
]

Metadata = dict[str, Any]

_MAX_GENERATE_NAME = 58
_MAX_ANNOTATIONS = 256 * 1024
#: Fields that are absent rather than empty.
_OMITTED_EMPTY = (
    "generateName", "namespace", "labels", "annotations", "ownerReferences", "finalizers", "uid", "resourceVersion",
)  # fmt: skip
#: Set by the server alone, or not kept at all: what a client sends in them is dropped.
_NOT_KEPT = ("managedFields", "selfLink")


def format_time(moment: datetime) -> str:
    """A timestamp as objects carry it: RFC 3339, whole seconds, ``Z``."""
    return f"{moment.isoformat(timespec='seconds')[:19]}Z"


def parse_time(text: str) -> datetime:
    """The reverse of :func:`format_time`."""
    return datetime.fromisoformat(text)


def tidy(metadata: Metadata) -> None:
    """Drop what isn't kept and what is empty, as reading into Go's ObjectMeta and writing it again does."""
    for name in _NOT_KEPT:
        metadata.pop(name, None)
    for name in _OMITTED_EMPTY:
        if name in metadata and not metadata[name]:
            del metadata[name]
    for name in ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
        if name in metadata and metadata[name] is None:
            del metadata[name]


def generated_name(prefix: str, random: Random) -> str:
    """A name from a ``generateName``, which is cut so that the name stays within 63 characters."""
    return prefix[:_MAX_GENERATE_NAME] + name_suffix(random)


def initialize(metadata: Metadata, random: Random, now: datetime, *, generation: bool) -> None:
    """Set, for a new object, what only the server sets. A missing name is made from ``generateName``."""
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = generated_name(metadata["generateName"], random)
    metadata["uid"] = str(uuid4(random))
    metadata["creationTimestamp"] = format_time(now)
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "generation", "resourceVersion"):
        metadata.pop(name, None)
    if generation:
        metadata["generation"] = 1


def keep_system_fields(new: Metadata, old: Metadata) -> None:
    """Take over, for an update, what no update may change and clients needn't send."""
    new.setdefault("uid", old["uid"])
    new["creationTimestamp"] = old["creationTimestamp"]
    for name in ("deletionTimestamp", "generation"):
        if name in old:
            new[name] = old[name]
        elif name == "generation":
            new.pop(name, None)
    if "deletionGracePeriodSeconds" in old:
        new.setdefault("deletionGracePeriodSeconds", old["deletionGracePeriodSeconds"])


def validate(metadata: Metadata, name_rule: NameRule) -> list[FieldError]:
    """What is wrong with a new or changed object's metadata by itself."""
    errors: list[FieldError] = []
    name = metadata.get("name", "")
    # A generated name ends in letters, so that a prefix may end in what a name must not end in.
    prefix = metadata.get("generateName", "")
    errors += [invalid_value("metadata.generateName", prefix, text) for text in _prefix_problems(prefix, name_rule)]
    if not name:
        errors.append(required("metadata.name", "name or generateName is required"))
    else:
        problems = name_rule(name) or path_segment_problems(name)
        errors += [invalid_value("metadata.name", name, text) for text in problems]
    for key, value in metadata.get("labels", {}).items():
        errors += [invalid_value("metadata.labels", key, text) for text in qualified_name_problems(key)]
        errors += [invalid_value("metadata.labels", value, text) for text in label_value_problems(value)]
    annotations: dict[str, str] = metadata.get("annotations", {})
    for key in annotations:
        errors += [invalid_value("metadata.annotations", key, text) for text in qualified_name_problems(key.lower())]
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > _MAX_ANNOTATIONS:
        errors.append(too_long("metadata.annotations", _MAX_ANNOTATIONS))
    errors += _owner_errors(metadata.get("ownerReferences", ()))
    for finalizer in metadata.get("finalizers", ()):
        errors += [invalid_value("metadata.finalizers", finalizer, text) for text in qualified_name_problems(finalizer)]
    return errors


def _prefix_problems(prefix: str, name_rule: NameRule) -> list[str]:
    return name_rule(f"{prefix[:_MAX_GENERATE_NAME]}x") if prefix else []


def _owner_errors(references: Sequence[dict[str, Any]]) -> list[FieldError]:
    errors: list[FieldError] = []
    controller = ""
    for reference in references:
        for name, text in (
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ):
            if not reference.get(name):
                errors.append(invalid_value(f"metadata.ownerReferences.{name}", "", text))
        if reference.get("apiVersion") == "v1" and reference.get("kind") == "Event":
            text = "/v1, Kind=Event is disallowed from being an owner"
            errors.append(invalid_value("metadata.ownerReferences", reference, text))
        if reference.get("controller"):
            this = f"{reference.get('kind')}/{reference.get('name')}"
            if controller:
                text = (
                    "Only one reference can have Controller set to true. "
                    f'Found "true" in references for {controller} and {this}'
                )
                errors.append(invalid_value("metadata.ownerReferences", list(references), text))
            controller = controller or this
    return errors


def validate_update(new: Metadata, old: Metadata) -> list[FieldError]:
    """What an update must not change."""
    errors: list[FieldError] = []
    if "deletionTimestamp" in old:
        added = [name for name in new.get("finalizers", ()) if name not in old.get("finalizers", ())]
        if added:
            shown = ", ".join(f'"{name}"' for name in added)
            text = (
                "no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{shown}}}"
            )
            errors.append(forbidden_field("metadata.finalizers", text))
    errors += [
        invalid_value(f"metadata.{name}", new.get(name), "field is immutable")
        for name in ("name", "namespace", "uid", "deletionTimestamp", "deletionGracePeriodSeconds")
        if new.get(name) != old.get(name)
    ]
    return errors
