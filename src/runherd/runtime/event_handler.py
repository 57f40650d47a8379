"""From events on objects to keys in a controller's queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

import structlog

from runherd.api.resource import ApiObject, Resource
from runherd.runtime.predicate import Predicate
from runherd.runtime.request import Request
from runherd.runtime.work_queue import WorkQueue

__all__ = ["EnqueueRequests", "EventHandler", "MapFunction", "request_for_object", "request_for_owner"]

log = structlog.get_logger("controller")

T = TypeVar("T", bound=ApiObject)
T_contra = TypeVar("T_contra", bound=ApiObject, contravariant=True)

#: From an object to the keys to reconcile when something happens to it.
MapFunction = Callable[[T], Iterable[Request]]


class EventHandler(Protocol[T_contra]):
    """Is told of every change of the objects in a cache, after the cache has it.

    The calls are synchronous and quick: a queue that only remembers keys needs no buffer, so no consumer can be too
    slow and no event is dropped for it. Implementations don't raise.
    """

    def on_add(self, object_: T_contra) -> None:
        """``object_`` is new, to the cluster or to us."""
        ...

    def on_update(self, old: T_contra, new: T_contra) -> None:
        """``old`` became ``new``; they are the same object (one UID). Changes in between may have been missed."""
        ...

    def on_delete(self, object_: T_contra) -> None:
        """``object_`` is gone. When its deletion was missed, this is its last known state."""
        ...


def request_for_object(object_: ApiObject) -> Iterable[Request]:
    """The object itself."""
    return (Request.of(object_),)


def request_for_owner(owner: Resource[T]) -> MapFunction[ApiObject]:
    """The owner that an object's controller owner reference names, if it is of the kind ``owner``.

    Group and kind must match, the version not (``docs/spec/controllers.md 1.4``).
    """

    def map_to_owner(object_: ApiObject) -> Iterable[Request]:
        reference = object_.metadata.controller_owner()
        if reference is None or reference.kind != owner.kind:
            return ()
        group, slash, _ = reference.api_version.partition("/")
        if (group if slash else "") != owner.group:
            return ()
        return (Request(object_.metadata.namespace if owner.namespaced else "", reference.name),)

    return map_to_owner


class EnqueueRequests(Generic[T]):
    """Adds what ``map_function`` makes of an object to ``queue``, for events that pass all ``predicates``.

    An update enqueues what the old and the new state map to, so that a child that changes hands is noticed by both
    owners. A predicate that raises lets the event pass, since a reconcile too many does no harm; what a map function
    that raises would have said is lost. Both are bugs, and logged as errors.
    """

    def __init__(self, queue: WorkQueue, map_function: MapFunction[T], predicates: Sequence[Predicate[T]] = ()) -> None:
        self._queue = queue
        self._map = map_function
        self._predicates = predicates

    def on_add(self, object_: T) -> None:
        for predicate in self._predicates:
            try:
                if not predicate.create(object_):
                    return
            except Exception:
                self._report("predicate", "create", object_)
        self._enqueue(object_)

    def on_update(self, old: T, new: T) -> None:
        for predicate in self._predicates:
            try:
                if not predicate.update(old, new):
                    return
            except Exception:
                self._report("predicate", "update", new)
        self._enqueue(old)
        self._enqueue(new)

    def on_delete(self, object_: T) -> None:
        for predicate in self._predicates:
            try:
                if not predicate.delete(object_):
                    return
            except Exception:
                self._report("predicate", "delete", object_)
        self._enqueue(object_)

    def _enqueue(self, object_: T) -> None:
        try:
            for request in self._map(object_):
                self._queue.add(request)
        except Exception:
            self._report("map function", "any", object_)

    def _report(self, what: str, event: str, object_: T) -> None:
        log.exception(
            f"a {what} of a watch failed",
            event_type=event,
            kind=object_.kind,
            namespace=object_.metadata.namespace,
            name=object_.metadata.name,
        )
