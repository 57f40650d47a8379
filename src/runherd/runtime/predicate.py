"""Filters on events: which changes of an object are worth a reconcile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from runherd.api.resource import ApiObject

__all__ = ["Predicate", "changed", "resource_version_changed"]

T = TypeVar("T", bound=ApiObject)
T_contra = TypeVar("T_contra", bound=ApiObject, contravariant=True)


def _always(*_: ApiObject) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Predicate(Generic[T_contra]):
    """One function per kind of event that says whether the event passes; what is not given passes all.

    A predicate may only drop events that change nothing its reconciler reads. One that raises is logged, and the event
    passes.
    """

    create: Callable[[T_contra], bool] = _always
    update: Callable[[T_contra, T_contra], bool] = _always
    delete: Callable[[T_contra], bool] = _always


def changed(projection: Callable[[T], Any]) -> Predicate[T]:
    """Drops updates that leave ``projection`` of the object equal; creates and deletes pass."""
    return Predicate(update=lambda old, new: projection(old) != projection(new))


#: The filter that every controller has (``docs/spec/controllers.md 1.3``).
resource_version_changed: Predicate[ApiObject] = changed(lambda object_: object_.metadata.resource_version)
