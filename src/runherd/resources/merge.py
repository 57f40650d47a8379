"""Merging of labels and annotations, and the drift that follows from it (``docs/spec/controllers.md`` 8.1, D-4)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from runherd.api.actions import ResourceMeta
from runherd.api.meta import ObjectMeta

__all__ = [
    "annotations_with_override",
    "labels_with_override",
    "merge_annotations",
    "merge_labels",
    "metadata_patch",
]


def merge_labels(
    base: Mapping[str, str], over: Mapping[str, str], excluded_prefixes: tuple[str, ...]
) -> dict[str, str]:
    """``base``, then ``over``, without the keys that start with one of ``excluded_prefixes`` (8.1)."""
    return {key: value for key, value in {**base, **over}.items() if not key.startswith(excluded_prefixes)}


def merge_annotations(base: Mapping[str, str], over: Mapping[str, str]) -> dict[str, str]:
    """``base``, then ``over``. Annotations are never excluded (8.1, D-6)."""
    return {**base, **over}


def labels_with_override(
    override: ResourceMeta | None, computed: Mapping[str, str], excluded_prefixes: tuple[str, ...]
) -> dict[str, str]:
    """``computed`` and what the user adds to it; the user can't change a computed value (8.1, 8.12).

    Without an override nothing is excluded: what a parent carries has passed the filter already.
    """
    if override is None:
        return dict(computed)
    return merge_labels(override.labels, computed, excluded_prefixes)


def annotations_with_override(override: ResourceMeta | None, computed: Mapping[str, str]) -> dict[str, str]:
    """``computed`` and what the user adds to it, as in :func:`labels_with_override`."""
    return merge_annotations(override.annotations if override else {}, computed)


def metadata_patch(
    live: ObjectMeta,
    desired: Mapping[str, Any],
    excluded_prefixes: tuple[str, ...] = (),
    *,
    ignored_annotations: Collection[str] = (),
) -> dict[str, Any]:
    """The merge patch of ``metadata`` that brings ``live`` to ``desired``, a built body's metadata; ``{}``: no drift.

    Keys that only ``live`` has stay, for others write there too (D-4), except excluded labels, which are taken off.
    ``ignored_annotations`` are left to another writer (D-5).
    """
    labels = merge_labels(live.labels, desired.get("labels", {}), excluded_prefixes)
    annotations = {
        key: value for key, value in desired.get("annotations", {}).items() if key not in ignored_annotations
    }
    patches = {
        "labels": _map_patch(live.labels, labels),
        "annotations": _map_patch(live.annotations, merge_annotations(live.annotations, annotations)),
    }
    return {name: patch for name, patch in patches.items() if patch}


def _map_patch(live: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str | None]:
    patch: dict[str, str | None] = {key: value for key, value in wanted.items() if live.get(key) != value}
    patch.update((key, None) for key in live if key not in wanted)
    return patch
