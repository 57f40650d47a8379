"""What a delete is sent with, and what its answer means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from runherd.api.meta import ApiStruct
from runherd.api.resource import ApiObject, Resource
from runherd.kube.codec import decode_object

__all__ = ["Deleted", "delete_options", "read_deleted"]

T = TypeVar("T", bound=ApiObject)


@dataclass(frozen=True, slots=True)
class Deleted(Generic[T]):
    """What a delete did to an object."""

    #: The object's UID; empty where the server doesn't tell.
    uid: str
    #: The object with its deletion timestamp, if a finalizer or its grace period may hold it still; else it is gone.
    remaining: T | None = None


class _Details(ApiStruct, frozen=True, kw_only=True):
    uid: str = ""


class _Kind(ApiStruct, frozen=True, kw_only=True):
    kind: str = ""
    details: _Details = _Details()


def delete_options(grace_period_seconds: int | None, uid: str, resource_version: str, propagation_policy: str) -> bytes:
    """The body of a delete (``meta/v1`` DeleteOptions), with what is given."""
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if grace_period_seconds is not None:
        options["gracePeriodSeconds"] = grace_period_seconds
    preconditions = {name: value for name, value in (("uid", uid), ("resourceVersion", resource_version)) if value}
    if preconditions:
        options["preconditions"] = preconditions
    if propagation_policy:
        options["propagationPolicy"] = propagation_policy
    return msgspec.json.encode(options)


def read_deleted(resource: Resource[T], response: bytes, what: str) -> Deleted[T]:
    """Reads the answer to a delete: a Status when the object is gone, else the object (gone, too, for some kinds)."""
    status = decode_object(_Kind, response, what)
    if status.kind == "Status":
        return Deleted(status.details.uid)
    object_ = decode_object(resource.type, response, what)
    held = object_.metadata.deletion_timestamp is not None
    return Deleted(object_.metadata.uid, object_ if held else None)
