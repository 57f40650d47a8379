"""What all Kubernetes objects share (``meta/v1``): metadata, owner references, conditions and the Status error object.

All structs of this package hold only the fields that this project reads or writes, so that decoding is cheap and
memory follows what is used. They are frozen because cached objects are shared by all their readers; change one with
``msgspec.structs.replace``. ``gc=False`` keeps the garbage collector from walking the cache: none of them can be part
of a reference cycle.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

import msgspec

__all__ = [
    "ApiStruct",
    "Condition",
    "ListMeta",
    "ObjectMeta",
    "OwnerReference",
    "Status",
    "StatusCause",
    "StatusDetails",
    "always",
]

T = TypeVar("T")


def always(value: T) -> T:
    """A field's default that is written out all the same: for ``kind``, and for counts whose zero says something.

    ``value`` must be immutable. (Structs leave out fields that have their default value, as Go's ``omitempty`` does;
    a default that a function makes is exempt from that.)
    """
    field: T = msgspec.field(default_factory=lambda: value)
    return field


class ApiStruct(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False, forbid_unknown_fields=False
):
    """The base of all API structs: camel case on the wire, absent fields read as their zero value, as in Go.

    Each subclass repeats ``frozen=True, kw_only=True``: type checkers ask for the first, the second is not inherited.
    """


class OwnerReference(ApiStruct, frozen=True, kw_only=True):
    """Names the object that an object belongs to; ``controller`` marks the one that manages it."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(ApiStruct, frozen=True, kw_only=True):
    """An object's ``metadata``."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[OwnerReference] = []
    finalizers: list[str] = []

    def controller_owner(self) -> OwnerReference | None:
        """The owner reference whose ``controller`` is true, if there is one."""
        for reference in self.owner_references:
            if reference.controller:
                return reference
        return None


class ListMeta(ApiStruct, frozen=True, kw_only=True):
    """A list's ``metadata``."""

    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")
    remaining_item_count: int | None = None


class Condition(ApiStruct, frozen=True, kw_only=True):
    """One entry of a ``status.conditions`` list."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    observed_generation: int = 0


class StatusCause(ApiStruct, frozen=True, kw_only=True):
    """One reason for a refusal, with the field that it is about."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(ApiStruct, frozen=True, kw_only=True):
    """What a :class:`Status` is about, and when to try again."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: list[StatusCause] = []
    retry_after_seconds: int = 0


class Status(ApiStruct, frozen=True, kw_only=True):
    """The object with which a Kubernetes API server answers when there is nothing else to answer: mostly errors."""

    api_version: str = "v1"
    kind: str = "Status"
    metadata: dict[str, Any] = {}
    status: str = ""
    message: str = ""
    reason: str = ""
    details: StatusDetails | None = None
    code: int = 0
