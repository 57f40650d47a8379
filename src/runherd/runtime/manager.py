"""Starts, watches over and stops everything that makes up an operator."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import structlog

from runherd.kube.client import Client
from runherd.runtime.cache import Cache
from runherd.runtime.client import CachedClient
from runherd.runtime.controller import Controller
from runherd.runtime.leader_election import LeaderElector
from runherd.runtime.probes import Checks
from runherd.runtime.write_gate import LeadershipLostError

__all__ = ["Manager", "ManagerOptions", "Runnable", "RunnableError", "Stoppable"]

log = structlog.get_logger("manager")

R = TypeVar("R")


class Runnable(Protocol):
    """Something that runs as long as the manager does."""

    async def run(self) -> None:
        """Run until cancelled. To end before that, with or without an exception, takes the process down."""
        ...


@runtime_checkable
class Stoppable(Protocol):
    """A runnable that, asked to stop, first finishes what it has begun."""

    def stop(self) -> None:
        """Begin nothing new; ``run`` returns when what was begun is done. It may still be cancelled before that."""
        ...


class RunnableError(Exception):
    """Something that must run as long as the process has ended by itself; the cause, if any, is chained."""


class _StopRequestedError(Exception):
    """:meth:`Manager.stop` was called."""


@dataclass(frozen=True, slots=True)
class ManagerOptions:
    """Durations in seconds.

    ``graceful_shutdown_timeout`` is how long what runs may take to finish after :meth:`Manager.stop`. It leaves room
    for the rest of the shut-down in the 10 s that the Helm chart gives a pod (``docs/spec/controllers.md 12``).

    ``freeze_after_sync`` tells the garbage collector once, when the cache has been filled, to leave all objects that
    exist then alone for ever. Of use in a process that runs one manager until it ends.
    """

    cache_sync_timeout: float = 120.0
    graceful_shutdown_timeout: float = 7.0
    freeze_after_sync: bool = False


class Manager:
    """Runs a cache, controllers on it, and whatever else is added, all or nothing.

    The order is controller-runtime's: what needs no leadership and the cache first, then (once the cache is filled) the
    election, then controllers and everything that only a leader does. Without an ``elector`` every process leads.

    Whatever ends before its time ends the manager with an error; there is no process that is only half alive.
    """

    def __init__(
        self,
        client: Client,
        cache: Cache,
        *,
        elector: LeaderElector | None = None,
        options: ManagerOptions | None = None,
    ) -> None:
        self.cache = cache
        #: What reconcilers write with.
        self.client = CachedClient(client, cache)
        #: The checks behind ``/healthz`` and ``/readyz`` (:func:`runherd.runtime.probes.probes_handler`).
        self.healthz = Checks()
        self.readyz = Checks()
        self._elector = elector
        self._options = options or ManagerOptions()
        self._controllers: list[Controller] = []
        self._runnables: list[tuple[str, Runnable, bool]] = []
        self._tasks: dict[asyncio.Task[None], str] = {}
        self._stop_requested = asyncio.Event()

    def add_controller(self, controller: Controller) -> None:
        """Have ``controller`` run while we lead, on objects in the cache."""
        controller.register(self.cache)
        self._controllers.append(controller)

    def add(self, name: str, runnable: Runnable, *, needs_leader_election: bool = True) -> None:
        """Have ``runnable`` run while we lead, or (without ``needs_leader_election``) from start to end."""
        self._runnables.append((name, runnable, needs_leader_election))

    def stop(self) -> None:
        """Ask :meth:`run` to finish and return, as for SIGTERM. May be called at any time and again."""
        self._stop_requested.set()

    async def run(self) -> None:
        """Run everything; returns after :meth:`stop`, when all has stopped and the lease is released.

        Raises :class:`RunnableError` when something ended by itself, :class:`~runherd.runtime.cache.CacheSyncError`
        when the cache could not be filled, and :class:`~runherd.runtime.write_gate.LeadershipLostError`. Even then
        everything has stopped when it raises.
        """
        before: list[asyncio.Task[None]] = []
        leading: list[tuple[asyncio.Task[None], Runnable]] = []
        renewing: asyncio.Task[None] | None = None
        try:
            before.append(self._start("cache", self.cache.run()))
            before += [self._start(name, run.run()) for name, run, leads in self._runnables if not leads]
            await self._until_done(self.cache.wait_for_sync(self._options.cache_sync_timeout))
            if self._options.freeze_after_sync:
                gc.collect()
                gc.freeze()
            if self._elector is not None:
                await self._until_done(self._elector.acquire())
                renewing = self._start("leader election", self._elector.renew())
            for controller in self._controllers:
                controller.start_watches(self.cache)
                leading.append((self._start(f"controller {controller.name}", controller.run()), controller))
            leading += [(self._start(name, run.run()), run) for name, run, leads in self._runnables if leads]
            await self._until_done(asyncio.Event().wait())
        except _StopRequestedError:
            log.info("stopping")
        finally:
            await self._shut_down(before, leading, renewing)

    def _start(self, name: str, main: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(main, name=name)
        self._tasks[task] = name
        return task

    async def _until_done(self, step: Coroutine[Any, Any, R]) -> R:
        """The result of ``step``; raises when before it something ended, or :meth:`stop` was called."""
        work = asyncio.create_task(step)
        stop = asyncio.create_task(self._stop_requested.wait())
        try:
            await asyncio.wait([work, stop, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
            for task, name in self._tasks.items():
                if task.done():
                    self._raise_end_of(task, name)
            if stop.done():
                raise _StopRequestedError
            return work.result()
        finally:
            work.cancel()
            stop.cancel()
            await asyncio.wait([work, stop])

    @staticmethod
    def _raise_end_of(task: asyncio.Task[None], name: str) -> None:
        cause = None if task.cancelled() else task.exception()
        if isinstance(cause, LeadershipLostError):
            raise cause
        log.error("ended before its time", runnable=name, exc_info=cause)
        raise RunnableError(f"{name} ended, though it should run as long as the process") from cause

    async def _shut_down(
        self,
        before: list[asyncio.Task[None]],
        leading: list[tuple[asyncio.Task[None], Runnable]],
        renewing: asyncio.Task[None] | None,
    ) -> None:
        """Stop what leads, in its own time if we still lead; then the rest; then release the lease."""
        for task, runnable in leading:
            if isinstance(runnable, Stoppable):
                runnable.stop()
            else:
                task.cancel()
        await self._finish([task for task, _ in leading], renewing)
        if renewing is not None:
            renewing.cancel()
            await asyncio.wait([renewing])
        if self._elector is not None:
            await self._elector.release()
        for task in before:
            task.cancel()
        if before:
            await asyncio.wait(before)
        for task, name in self._tasks.items():
            if not task.cancelled() and (error := task.exception()) is not None:
                log.info("ended with an error", runnable=name, error=f"{type(error).__name__}: {error}")
        log.info("stopped")

    async def _finish(self, tasks: list[asyncio.Task[None]], renewing: asyncio.Task[None] | None) -> None:
        """Let ``tasks`` end by themselves for a while, but no longer than we lead; then cancel them."""
        deadline = asyncio.get_running_loop().time() + self._options.graceful_shutdown_timeout
        pending = {task for task in tasks if not task.done()}
        while pending and (renewing is None or not renewing.done()):
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                break
            watched = pending if renewing is None else {*pending, renewing}
            await asyncio.wait(watched, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            pending = {task for task in pending if not task.done()}
        if pending:
            names = sorted(self._tasks[task] for task in pending)
            log.warning("cancelling what did not finish in time", runnables=names)
            for task in pending:
                task.cancel()
            await asyncio.wait(pending)
