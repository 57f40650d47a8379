"""A controller: one queue of keys, the watches that fill it, and the workers that reconcile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from random import Random
from typing import Any, Generic, Protocol, TypeVar

import structlog

from runherd.api.resource import ApiObject, Resource
from runherd.runtime.event_handler import (
    EnqueueRequests,
    EventHandler,
    MapFunction,
    request_for_object,
    request_for_owner,
)
from runherd.runtime.metrics import Metrics
from runherd.runtime.predicate import Predicate, resource_version_changed
from runherd.runtime.rate_limiter import RateLimiter
from runherd.runtime.reconciler import Reconciler, Result
from runherd.runtime.request import Request
from runherd.runtime.work_queue import ShutDownError, WorkQueue
from runherd.wire.randomness import uuid4

__all__ = ["Controller", "EventSource", "Reconcile", "current_reconcile"]

log = structlog.get_logger("controller")

T = TypeVar("T", bound=ApiObject)

_NOTHING = Result()


def _checked(result: object) -> Result:
    """What a reconcile returned. Raises ``TypeError`` for what authors without a type checker may return instead."""
    if result is None:
        return _NOTHING
    if isinstance(result, Result):
        return result
    raise TypeError(f"reconcile returned {type(result).__name__}, not a Result or None")


#: Errors that only a bug raises: what a panic is in Go. They are retried like any other, and counted by themselves.
_PANICS = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, RecursionError, TypeError)

#: How many reconciles a worker makes before others get a turn on the event loop, in case none of them waits for it.
_FAIRNESS = 16


class Reconcile:
    """The reconcile that the running task works on; log lines carry what it says."""

    __slots__ = ("_id", "_random", "controller", "request")

    def __init__(self, controller: str, request: Request, random: Random) -> None:
        self.controller = controller
        self.request = request
        self._random = random
        self._id = ""

    @property
    def id(self) -> str:
        """A random UUID, made when first asked for: most reconciles log nothing."""
        if not self._id:
            self._id = str(uuid4(self._random))
        return self._id


#: Set while a reconcile runs, in its task and in those that it starts.
current_reconcile: ContextVar[Reconcile | None] = ContextVar("current_reconcile", default=None)


class EventSource(Protocol):
    """Where a controller's events come from: a :class:`~runherd.runtime.cache.Cache`."""

    def register(self, resource: Resource[T]) -> None:
        """Hold objects of this kind. Called before the source starts."""
        ...

    def add_handler(self, resource: Resource[T], handler: EventHandler[T]) -> None:
        """Tell ``handler`` of every object that is there (as added), and of every change from now on."""
        ...


@dataclass(frozen=True, slots=True)
class _Watch(Generic[T]):
    resource: Resource[T]
    map_function: MapFunction[T]
    predicates: tuple[Predicate[T], ...]

    def start(self, source: EventSource, queue: WorkQueue) -> None:
        source.add_handler(self.resource, EnqueueRequests(queue, self.map_function, self.predicates))


class Controller:
    """Calls ``reconciler`` for every object of one kind that changed, or whose children did.

    ``name`` is the value of the label ``controller`` of its metrics: the kind in lower case, by custom. It has as many
    workers as reconciles may run at once, and no task per key. What a reconcile returns means what
    ``docs/spec/controllers.md 1.2`` says.

    Every watch drops updates that leave the resource version equal (``docs/spec/controllers.md 1.3``).
    """

    def __init__(
        self,
        name: str,
        reconciler: Reconciler,
        *,
        rate_limiter: RateLimiter,
        metrics: Metrics,
        random: Random,
        max_concurrent_reconciles: int = 1,
    ) -> None:
        if max_concurrent_reconciles < 1:
            raise ValueError(f"max_concurrent_reconciles must be at least 1, not {max_concurrent_reconciles}")
        self.name = name
        self.queue = WorkQueue(name, rate_limiter, metrics)
        self._reconciler = reconciler
        self._random = random
        self._max_workers = max_concurrent_reconciles
        self._metrics = metrics.controller(name, max_concurrent_reconciles, lambda: self.queue.processing)
        self._owner: Resource[Any] | None = None
        self._watches: list[_Watch[Any]] = []

    def for_(self, resource: Resource[T], *predicates: Predicate[T]) -> Controller:
        """Reconcile the objects of ``resource``. Comes before :meth:`owns`."""
        if self._owner is not None:
            raise ValueError(f"controller {self.name} is already for {self._owner.kind}")
        self._owner = resource
        return self.watches(resource, request_for_object, *predicates)

    def owns(self, resource: Resource[T], *predicates: Predicate[T]) -> Controller:
        """Reconcile the controller owner of every object of ``resource`` that changes."""
        if self._owner is None:
            raise ValueError(f"controller {self.name}: say what it is for before what that owns")
        return self.watches(resource, request_for_owner(self._owner), *predicates)

    def watches(self, resource: Resource[T], map_function: MapFunction[T], *predicates: Predicate[T]) -> Controller:
        """Reconcile what ``map_function`` makes of every object of ``resource`` that changes."""
        self._watches.append(_Watch(resource, map_function, (resource_version_changed, *predicates)))
        return self

    @property
    def resources(self) -> Sequence[Resource[Any]]:
        """What is watched."""
        return [watch.resource for watch in self._watches]

    def register(self, source: EventSource) -> None:
        """Have ``source`` hold what is watched."""
        for resource in self.resources:
            source.register(resource)

    def start_watches(self, source: EventSource) -> None:
        """Put every object that exists into the queue, and from now on those that change.

        Only when the workers are about to start: a process that waits to become the leader would collect the names of
        all objects that ever were.
        """
        for watch in self._watches:
            watch.start(source, self.queue)

    async def run(self) -> None:
        """Reconcile until :meth:`stop` was called and what runs then is done, or until cancelled.

        Cancelling it cancels the reconciles that run, and returns when all of them have ended.
        """
        log.info("starting workers", controller=self.name, worker_count=self._max_workers)
        try:
            async with asyncio.TaskGroup() as workers:
                for number in range(self._max_workers):
                    workers.create_task(self._work(), name=f"{self.name}-{number}")
        finally:
            self.queue.shut_down()
            log.info("all workers finished", controller=self.name)

    def stop(self) -> None:
        """Start no further reconcile; :meth:`run` returns when those that run are done."""
        self.queue.shut_down()

    async def _work(self) -> None:
        queue = self.queue
        reconciles = 0
        while True:
            try:
                request = await queue.get()
            except ShutDownError:
                return
            try:
                await self._reconcile(request)
            finally:
                queue.done(request)
            reconciles += 1
            if reconciles % _FAIRNESS == 0:
                await asyncio.sleep(0)

    async def _reconcile(self, request: Request) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        current_reconcile.set(Reconcile(self.name, request, self._random))
        try:
            result = _checked(await self._reconciler.reconcile(request))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Something that the reconcile waited for was cancelled by others; the worker itself was not.
            self._failed(request)
        except Exception as error:
            self._failed(request, error)
        else:
            self._succeeded(request, result)
        self._metrics.reconcile_time(loop.time() - started)

    def _succeeded(self, request: Request, result: Result) -> None:
        queue = self.queue
        if result.requeue_after > 0:
            queue.forget(request)
            queue.add_after(request, result.requeue_after)
            self._metrics.requeue_after()
        elif result.requeue:
            queue.add_rate_limited(request)
            self._metrics.requeue()
        else:
            queue.forget(request)
            self._metrics.success()

    def _failed(self, request: Request, error: Exception | None = None) -> None:
        self.queue.add_rate_limited(request)
        self._metrics.error()
        failures = self.queue.requeues(request)
        if isinstance(error, _PANICS):
            self._metrics.panic()
            log.exception("reconciler panicked", error=_described(error), failures=failures)
        else:
            text = "something that it waited for was cancelled" if error is None else _described(error)
            log.error("reconciler error", error=text, failures=failures)


def _described(error: BaseException) -> str:
    """One line for ``error``; the parts of a group one after the other."""
    if isinstance(error, BaseExceptionGroup):
        return f"{error.message}: " + "; ".join(_described(part) for part in error.exceptions)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
