"""Indexes: from a value that a function finds in an object back to the objects that have it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, ValuesView
from typing import Generic, TypeVar

from runherd.api.resource import ApiObject
from runherd.runtime.request import Request

__all__ = ["Index", "IndexFunction", "controller_owner_index", "label_index"]

T = TypeVar("T", bound=ApiObject)

#: The values under which an object is found; none: not at all.
IndexFunction = Callable[[T], Iterable[str]]


def controller_owner_index(api_version: str, *kinds: str) -> IndexFunction[ApiObject]:
    """By the name of the controller owner, if it has just this API version and one of these kinds.

    The name, not the UID: children of a deleted owner are found under a new one of the same name
    (``docs/spec/controllers.md 1.1``).
    """

    def owner_name(object_: ApiObject) -> Iterable[str]:
        owner = object_.metadata.controller_owner()
        if owner is None or owner.api_version != api_version or owner.kind not in kinds:
            return ()
        return (owner.name,)

    return owner_name


def label_index(key: str) -> IndexFunction[ApiObject]:
    """By the value of the label ``key``."""

    def label_value(object_: ApiObject) -> Iterable[str]:
        value = object_.metadata.labels.get(key)
        return () if value is None else (value,)

    return label_value


class Index(Generic[T]):
    """One index over the objects of a store, kept up to date change by change."""

    def __init__(self, function: IndexFunction[T]) -> None:
        self._values_of = function
        self._buckets: dict[tuple[str, str], dict[Request, T]] = {}

    def find(self, namespace: str, value: str) -> ValuesView[T]:
        """The objects in ``namespace`` that have ``value``; a view that the next change invalidates."""
        return self._buckets.get((namespace, value), {}).values()

    def replace(self, key: Request, old: T | None, new: T | None) -> None:
        """The object at ``key`` was ``old`` (``None``: there was none) and is ``new`` (``None``: is gone)."""
        before = set() if old is None else set(self._values_of(old))
        after = set() if new is None else set(self._values_of(new))
        for value in before - after:
            self._remove(key, value)
        if new is not None:
            for value in after:
                self._buckets.setdefault((key.namespace, value), {})[key] = new

    def _remove(self, key: Request, value: str) -> None:
        bucket = self._buckets[key.namespace, value]
        del bucket[key]
        if not bucket:
            del self._buckets[key.namespace, value]
