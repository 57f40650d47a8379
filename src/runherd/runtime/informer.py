"""Keeps a store equal to what the API server has, by list and watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from random import Random
from typing import Generic, TypeVar

import structlog

from runherd.api.resource import ApiObject, Resource
from runherd.kube.client import Client
from runherd.kube.errors import (
    ApiError,
    BadRequestError,
    DecodeError,
    GoneError,
    InvalidError,
    MethodNotAllowedError,
    NotAcceptableError,
)
from runherd.kube.watch import WatchEvent
from runherd.runtime.request import Request
from runherd.runtime.store import Store
from runherd.wire.retry import Backoff
from runherd.wire.transport import TransportError

__all__ = ["Informer", "InformerOptions"]

log = structlog.get_logger("informer")

T = TypeVar("T", bound=ApiObject)

#: How many events are taken before others get a turn on the event loop, in case all of them are here already.
_FAIRNESS = 100

#: How a server says that it has no streaming lists.
_NO_STREAMING_LIST = (BadRequestError, InvalidError, MethodNotAllowedError, NotAcceptableError)


_BACKOFF = Backoff(initial=0.25, limit=15.0, jitter=1.0)


@dataclass(frozen=True, slots=True)
class InformerOptions:
    """How an informer behaves when something fails.

    ``backoff`` gives the waits between attempts; an event of the watch, or a minute of it, starts it anew.
    ``initial_silence`` is how many seconds nothing may come of a streaming list, before the server is taken for one
    that ignores what it doesn't know, and is asked for a list.
    """

    backoff: Backoff = _BACKOFF
    initial_silence: float = 30.0


class _WentBackError(Exception):
    """The server is at an older resource version than it was: its store was restored from a backup."""


class Informer(Generic[T]):
    """Follows the objects of one kind, in ``namespace`` or (``""``) in all.

    First comes a list: as a stream of events where the server offers that, else in pages. The watch that follows is
    resumed at the last event or bookmark after it ends or is cut, so nothing is missed, and made anew from a list when
    the server no longer knows what happened since (410). What was deleted meanwhile is delivered as deleted then.

    Events go from the connection to the store and its handlers in one step. There is no buffer that could overflow: a
    process that is too slow lets the connection fill, until the server ends the watch, which is then resumed.

    A server whose store was restored from a backup accepts a watch from a version that it has yet to reach, and says
    nothing until it has. So each watch that is resumed begins with a look at the server's present version (one page of
    one object); if that is behind, everything is listed anew.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource[T],
        namespace: str,
        *,
        random: Random,
        transform: Callable[[T], T] | None = None,
        options: InformerOptions | None = None,
    ) -> None:
        self.resource = resource
        self.namespace = namespace
        self.store: Store[T] = Store(transform)
        #: Set once the store has been filled. From then on it lags, but is never empty again.
        self.synced = asyncio.Event()
        #: What last went wrong; ``None`` while all is well.
        self.last_error: Exception | None = None
        self._client = client
        self._random = random
        self._options = options or InformerOptions()
        self._streaming = True
        self._listed = False
        self._resuming = False
        self._failures = 0
        self._watching_since = 0.0

    async def run(self) -> None:
        """List and watch until cancelled, whatever fails."""
        loop = asyncio.get_running_loop()
        while True:
            self._watching_since = loop.time()
            try:
                await self._follow()
            except _WentBackError as error:
                self._listed = False
                await self._failed(error)
            except (ApiError, DecodeError, TransportError) as error:
                if not _is_passing(error):
                    self._listed = False
                await self._failed(error)
            else:
                if loop.time() - self._watching_since < 1.0:
                    # Ended by a server that is about to go, or that ends every watch at once.
                    await self._failed(None)

    async def _follow(self) -> None:
        """List if need be, then watch until the watch ends."""
        if self._listed:
            if self._resuming:
                await self._compare_versions()
            version = str(self.store.position)
            async with self._client.watch(self.resource, self.namespace, resource_version=version) as events:
                await self._watch(events)
        elif not self._streaming or not await self._streaming_list():
            await self._list()
            await self._follow()

    async def _list(self) -> None:
        at_least = self.store.latest
        listed = await self._client.list(self.resource, self.namespace)
        self._replace(listed.items, listed.resource_version, at_least)

    async def _streaming_list(self) -> bool:
        """List and watch on one stream; whether the server could do that."""
        at_least = self.store.latest
        loop = asyncio.get_running_loop()
        objects: dict[Request, T] = {}
        listed = False
        try:
            async with (
                asyncio.timeout(self._options.initial_silence) as silence,
                self._client.watch(self.resource, self.namespace, send_initial_events=True) as events,
            ):
                async for event in events:
                    if event.initial_events_end:
                        silence.reschedule(None)
                        self._replace(list(objects.values()), event.resource_version, at_least)
                        listed = True
                        await self._watch(events)
                        return True
                    silence.reschedule(loop.time() + self._options.initial_silence)
                    if event.type in ("ADDED", "MODIFIED"):
                        objects[Request.of(event.object)] = event.object
                    elif event.type == "DELETED":
                        objects.pop(Request.of(event.object), None)
                return True  # ended before it was complete: the next attempt begins from the start
        except TimeoutError:
            self._streaming = False
        except _NO_STREAMING_LIST:
            if listed:
                raise
            self._streaming = False
        log.debug("the server offers no streaming list", **self._described())
        return False

    def _replace(self, objects: list[T], resource_version: str, at_least: int) -> None:
        if int(resource_version) < at_least:
            log.warning(
                "the server's store is older than before, probably restored from a backup; starting over",
                resource_version=resource_version,
                seen=at_least,
                **self._described(),
            )
        self.store.replace(objects, resource_version, at_least)
        self._listed = True
        self._resuming = False
        self.last_error = None
        self.synced.set()

    async def _watch(self, events: AsyncIterator[WatchEvent[T]]) -> None:
        self._resuming = True
        self._watching_since = asyncio.get_running_loop().time()
        store = self.store
        count = 0
        async for event in events:
            if int(event.resource_version) < store.position:
                raise _WentBackError(f"an event of version {event.resource_version} after one of {store.position}")
            if event.type == "DELETED":
                store.observe_deleted(event.object)
            elif event.type == "BOOKMARK":
                store.observe_version(event.resource_version)
            else:
                store.observe(event.object)
            self._failures = 0
            self.last_error = None
            count += 1
            if count % _FAIRNESS == 0:
                await asyncio.sleep(0)

    async def _compare_versions(self) -> None:
        """Raises :class:`_WentBackError` when the server's present version is behind the store's."""
        async with aclosing(self._client.pages(self.resource, self.namespace, page_size=1)) as pages:
            async for page in pages:
                if int(page.resource_version) < self.store.position:
                    raise _WentBackError(f"the server is at {page.resource_version}, not {self.store.position}")
                return

    async def _failed(self, error: Exception | None) -> None:
        """Wait before the next attempt."""
        if asyncio.get_running_loop().time() - self._watching_since > 60.0:
            self._failures = 0
        if error is not None:
            self.last_error = error
        wait = self._options.backoff.delay(self._failures, self._random)
        self._failures += 1
        if isinstance(error, ApiError) and error.retry_after is not None:
            wait = max(wait, error.retry_after)
        if error is not None:
            # Single cuts are everyday business; who can't list or watch for long should be heard of.
            everyday = isinstance(error, GoneError) or (_is_passing(error) and self._failures <= 3)
            (log.info if everyday else log.error)(
                "list and watch interrupted",
                error=f"{type(error).__name__}: {error}",
                attempt=self._failures,
                retry_in=round(wait, 3),
                **self._described(),
            )
        await asyncio.sleep(wait)

    def _described(self) -> dict[str, str]:
        return {"kind": self.resource.kind, "namespace": self.namespace}


def _is_passing(error: Exception) -> bool:
    """Whether the watch may be resumed where it was after ``error``; else everything is listed anew."""
    return isinstance(error, TransportError) or (
        isinstance(error, ApiError) and (error.code >= 500 or error.code == 429)
    )
