"""Metadata of built objects, with the reference to the object that they belong to (``docs/spec/controllers.md`` 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runherd.api.resource import ApiObject

__all__ = ["built_metadata", "owner_reference"]


def owner_reference(owner: ApiObject) -> dict[str, Any]:
    """The controller reference to ``owner``."""
    return {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def built_metadata(
    name: str,
    namespace: str,
    *,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    owner: ApiObject | None = None,
    finalizers: Sequence[str] = (),
) -> dict[str, Any]:
    """``metadata`` of an object to be created; what is empty is left out. An ``owner`` is in the same namespace."""
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    if labels:
        metadata["labels"] = labels
    if annotations:
        metadata["annotations"] = annotations
    if owner is not None:
        metadata["ownerReferences"] = [owner_reference(owner)]
    if finalizers:
        metadata["finalizers"] = list(finalizers)
    return metadata
