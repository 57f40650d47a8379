"""A typed client of the Kubernetes API."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, Generic, TypeVar

from runherd.api.meta import ApiStruct
from runherd.api.resource import ApiObject, Resource
from runherd.kube.codec import decode_list, decode_object, encode_object, identity_of
from runherd.kube.deletion import Deleted, delete_options, read_deleted
from runherd.kube.errors import GoneError, NotFoundError
from runherd.kube.limiter import Priority, WriteLimiter
from runherd.kube.patch import ApplyPatch, Patch
from runherd.kube.paths import collection_path, describe, object_path, with_query
from runherd.kube.rest import Call, RequestObserver, RestClient
from runherd.kube.retry import Repeat, RetryPolicy
from runherd.kube.watch import WatchEvent, WatchOptions, read_events
from runherd.wire.clock import Clock
from runherd.wire.transport import Timeouts, Transport

__all__ = ["Client", "ObjectList", "ServerVersion"]

T = TypeVar("T", bound=ApiObject)
R = TypeVar("R")

#: What is sent: a struct, plain data, or bytes that are encoded already.
Body = ApiObject | Mapping[str, Any] | bytes

#: A list may be large, and the server's own deadline for it is 60 s.
_LIST_TIMEOUTS = Timeouts(connect=10.0, total=60.0)

#: The longest silence within output that is there already, in seconds.
_LOG_SILENCE = 60.0


@dataclass(frozen=True, slots=True)
class ObjectList(Generic[T]):
    """The objects of a list, or of one page of it, all as they were at ``resource_version``."""

    items: list[T]
    resource_version: str
    #: Where the next page begins; empty on the last page and for a whole list.
    continue_token: str = ""


class ServerVersion(ApiStruct, frozen=True, kw_only=True):
    """What the server says that it is."""

    major: str = ""
    minor: str = ""
    git_version: str = ""
    platform: str = ""


class Client:
    """Reads and writes the objects of one API server; safe to use from many tasks.

    ``transport`` carries the requests and the credentials; ``base_url`` is the server's address. All writes pass
    ``limiter``; ``None`` means no limit, for a client that serves leader election only. ``headers`` go with every
    request. Deadlines: ``timeouts`` for single objects, 60 s for a page of a list, ``watch_options`` for watches.

    Every call may raise :class:`~runherd.kube.errors.ApiError`, :class:`~runherd.kube.errors.DecodeError` or
    :class:`~runherd.wire.transport.TransportError`; what is repeated before that is in :mod:`runherd.kube.retry`.

    What is written is typed (``create(PODS, pod)``), plain data, or encoded bytes; what comes back has the type of the
    resource, which may hold fewer fields than were sent. ``owner`` and ``priority`` order the write in the limiter.
    """

    def __init__(
        self,
        transport: Transport,
        base_url: str,
        *,
        limiter: WriteLimiter | None,
        clock: Clock,
        random: Random,
        user_agent: str = "runherd",
        observer: RequestObserver | None = None,
        retry: RetryPolicy | None = None,
        timeouts: Timeouts | None = None,
        watch_options: WatchOptions | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._transport = transport
        self._rest = RestClient(
            transport,
            base_url,
            limiter=limiter,
            clock=clock,
            random=random,
            user_agent=user_agent,
            observer=observer,
            retry=retry,
            headers=headers,
        )
        self._random = random
        self._timeouts = timeouts or Timeouts()
        self._watch_options = watch_options or WatchOptions()

    async def close(self) -> None:
        """Close the transport, and with it what is still under way."""
        await self._transport.close()

    async def server_version(self) -> ServerVersion:
        """Which version of Kubernetes the server runs."""
        what = "read the server's version"
        body = await self._rest.read(Call("GET", "/version", what), self._timeouts)
        return decode_object(ServerVersion, body, what)

    # --- Reading ---------------------------------------------------------------------------------------------------

    async def get(self, resource: Resource[T], name: str, namespace: str = "", *, resource_version: str = "") -> T:
        """The object ``name``. ``resource_version="0"`` takes it from the server's cache, however old that is."""
        path = object_path(resource, namespace, name)
        if resource_version:
            path = with_query(path, {"resourceVersion": resource_version})
        what = describe("get", resource, namespace, name)
        return decode_object(resource.type, await self._rest.read(Call("GET", path, what), self._timeouts), what)

    async def get_subresource(
        self, resource: Resource[Any], name: str, subresource: str, type_: type[R], namespace: str = ""
    ) -> R:
        """A subresource that is an object of its own kind, for example ``scale``."""
        what = describe("get", resource, namespace, name, subresource)
        call = Call("GET", object_path(resource, namespace, name, subresource), what)
        return decode_object(type_, await self._rest.read(call, self._timeouts), what)

    async def list(
        self,
        resource: Resource[T],
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        page_size: int = 500,
        resource_version: str = "",
        resource_version_match: str = "",
    ) -> ObjectList[T]:
        """All objects, as they were at one moment: the list's resource version. ``namespace=""``: of all namespaces.

        Read in pages of ``page_size`` (0: in one). When the server forgets that moment between two pages (410), the
        list is read again, in one piece, which can't expire.
        """
        items: list[T] = []
        version = ""
        try:
            async for page in self.pages(
                resource,
                namespace,
                label_selector=label_selector,
                field_selector=field_selector,
                page_size=page_size,
                resource_version=resource_version,
                resource_version_match=resource_version_match,
            ):
                items.extend(page.items)
                version = page.resource_version
        except GoneError:
            if not version or resource_version_match == "Exact":
                raise  # it is the version that the caller asked for that is gone
            return await self.list(
                resource, namespace, label_selector=label_selector, field_selector=field_selector, page_size=0
            )
        return ObjectList(items, version)

    async def pages(
        self,
        resource: Resource[T],
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        page_size: int = 500,
        resource_version: str = "",
        resource_version_match: str = "",
    ) -> AsyncGenerator[ObjectList[T], None]:
        """The pages of a list, all of the same moment, read as they are asked for.

        Raises :class:`~runherd.kube.errors.GoneError` when the server forgets that moment before the last page: what
        has been handed out is then only a part, and the caller starts again.
        """
        base = collection_path(resource, namespace)
        what = describe("list", resource, namespace)
        selection: dict[str, str | int] = {
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "limit": page_size or "",
        }
        query = {
            **selection,
            "resourceVersion": resource_version,
            "resourceVersionMatch": resource_version_match,
        }
        while True:
            call = Call("GET", with_query(base, query), what)
            page = decode_list(resource, await self._rest.read(call, _LIST_TIMEOUTS), what)
            token = page.metadata.continue_
            yield ObjectList(page.items or [], page.metadata.resource_version, token)
            if not token:
                return
            # A continue token already says at which resource version; the server refuses both together.
            query = {**selection, "continue": token}

    @asynccontextmanager
    async def watch(
        self,
        resource: Resource[T],
        namespace: str = "",
        *,
        resource_version: str = "",
        label_selector: str = "",
        field_selector: str = "",
        send_initial_events: bool = False,
        timeout_seconds: int | None = None,
    ) -> AsyncIterator[AsyncIterator[WatchEvent[T]]]:
        """What happens after ``resource_version``, with bookmarks. ``namespace=""``: in all namespaces.

        Inside the context the watch has begun; the iterator yields :class:`~runherd.kube.watch.WatchEvent`, and ends
        when the server ends the watch, after ``timeout_seconds`` (by default a random time, see
        :class:`~runherd.kube.watch.WatchOptions`). Then, and after a lost connection, go on from the last event's
        ``resource_version``. A version that is too old raises :class:`~runherd.kube.errors.GoneError`, from entering
        the context or from the iterator: list again.

        ``send_initial_events`` asks for a streaming list (``docs``: WatchList): all objects come as ``ADDED`` first,
        then a bookmark with ``initial_events_end``. A server that can't answers with
        :class:`~runherd.kube.errors.InvalidError`.
        """
        options = self._watch_options
        seconds = timeout_seconds or int(self._random.uniform(options.shortest, options.longest))
        query: dict[str, str | int | bool] = {
            "watch": True,
            "allowWatchBookmarks": True,
            "resourceVersion": resource_version,
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "timeoutSeconds": seconds,
            "sendInitialEvents": send_initial_events,
            "resourceVersionMatch": "NotOlderThan" if send_initial_events else "",
        }
        what = describe("watch", resource, namespace)
        call = Call("GET", with_query(collection_path(resource, namespace), query), what)
        timeouts = Timeouts(connect=self._timeouts.connect, total=seconds + options.grace)
        async with (
            self._rest.stream(call, timeouts, options.open_within) as stream,
            aclosing(read_events(stream.chunks(), resource.type, what, options.silence)) as events,
        ):
            yield events

    @asynccontextmanager
    async def logs(
        self,
        namespace: str,
        pod: str,
        *,
        container: str = "",
        follow: bool = False,
        previous: bool = False,
        tail_lines: int | None = None,
        since_seconds: int | None = None,
        limit_bytes: int | None = None,
        timestamps: bool = False,
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The output of a container, in pieces of any size as they arrive; with ``follow`` until it ends."""
        query: dict[str, str | int | bool | None] = {
            "container": container,
            "follow": follow,
            "previous": previous,
            "tailLines": tail_lines,
            "sinceSeconds": since_seconds,
            "limitBytes": limit_bytes,
            "timestamps": timestamps,
        }
        path = with_query(object_path(_PODS, namespace, pod, "log"), query)
        call = Call("GET", path, describe("read", _PODS, namespace, pod, "log"), accept="*/*")
        # A container may be silent for as long as it likes, but what it has said already comes at once.
        timeouts = Timeouts(connect=self._timeouts.connect, total=None, idle=None if follow else _LOG_SILENCE)
        async with self._rest.stream(call, timeouts, self._watch_options.open_within) as stream:
            yield stream.chunks()

    # --- Writing ---------------------------------------------------------------------------------------------------

    async def create(
        self,
        resource: Resource[T],
        object_: Body,
        namespace: str = "",
        *,
        owner: str = "",
        priority: Priority = Priority.CREATE,
        field_validation: str = "",
        field_manager: str = "",
    ) -> T:
        """Create an object, in ``namespace`` or the one its metadata name. What came of it is returned."""
        identity = identity_of(object_)
        namespace = namespace or identity.namespace
        if resource.namespaced and not namespace:
            raise ValueError(f"{resource.plural} are namespaced, but no namespace was given for {identity.name!r}")
        path = _with_options(collection_path(resource, namespace), field_validation, field_manager)
        call = Call(
            "POST",
            path,
            describe("create", resource, namespace, identity.name or identity.generate_name + "*"),
            encode_object(object_),
            repeat=Repeat.WHEN_ASKED if identity.name else Repeat.NEVER,
        )
        return decode_object(resource.type, await self._rest.write(call, self._timeouts, owner, priority), call.what)

    async def create_subresource(
        self,
        resource: Resource[Any],
        name: str,
        subresource: str,
        body: Body,
        type_: type[R],
        namespace: str = "",
        *,
        owner: str = "",
        priority: Priority = Priority.CREATE,
    ) -> R:
        """POST to a subresource: ``token`` of a service account, ``binding`` and ``eviction`` of a pod.

        ``type_`` is what the server answers with.
        """
        what = describe("create", resource, namespace, name, subresource)
        path = object_path(resource, namespace, name, subresource)
        call = Call("POST", path, what, encode_object(body), repeat=Repeat.WHEN_ASKED)
        return decode_object(type_, await self._rest.write(call, self._timeouts, owner, priority), what)

    async def update(
        self,
        resource: Resource[T],
        object_: Body,
        namespace: str = "",
        *,
        subresource: str = "",
        owner: str = "",
        priority: Priority | None = None,
        field_validation: str = "",
        field_manager: str = "",
    ) -> T:
        """Replace an object, or with ``subresource="status"`` its status, as a whole.

        What ``object_`` doesn't have is deleted, so send no struct that knows only some of the kind's fields. A
        resource version in its metadata that is not the current one raises
        :class:`~runherd.kube.errors.ConflictError`.
        """
        identity = identity_of(object_)
        namespace = namespace or identity.namespace
        path = object_path(resource, namespace, identity.name, subresource)
        path = _with_options(path, field_validation, field_manager)
        what = describe("update", resource, namespace, identity.name, subresource)
        call = Call("PUT", path, what, encode_object(object_), repeat=Repeat.WHEN_ASKED)
        response = await self._rest.write(call, self._timeouts, owner, _update_priority(priority, subresource))
        return decode_object(resource.type, response, what)

    async def update_subresource(
        self,
        resource: Resource[Any],
        name: str,
        subresource: str,
        body: Body,
        type_: type[R],
        namespace: str = "",
        *,
        owner: str = "",
        priority: Priority = Priority.UPDATE,
    ) -> R:
        """Replace a subresource that is an object of its own kind, for example ``scale``."""
        what = describe("update", resource, namespace, name, subresource)
        path = object_path(resource, namespace, name, subresource)
        call = Call("PUT", path, what, encode_object(body), repeat=Repeat.WHEN_ASKED)
        return decode_object(type_, await self._rest.write(call, self._timeouts, owner, priority), what)

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        namespace: str = "",
        *,
        patch: Patch,
        subresource: str = "",
        owner: str = "",
        priority: Priority | None = None,
        field_validation: str = "",
        field_manager: str = "",
        force: bool = False,
    ) -> T:
        """Change what ``patch`` names. A resource version in a merge patch's metadata makes it conditional.

        Server-side apply needs a ``field_manager``; ``force`` takes fields over from others.
        """
        if isinstance(patch, ApplyPatch) and not field_manager:
            raise ValueError("server-side apply needs a field manager")
        path = object_path(resource, namespace, name, subresource)
        path = _with_options(path, field_validation, field_manager, force)
        what = describe("patch", resource, namespace, name, subresource)
        call = Call("PATCH", path, what, patch.encoded(), patch.content_type, repeat=Repeat.WHEN_ASKED)
        response = await self._rest.write(call, self._timeouts, owner, _update_priority(priority, subresource))
        return decode_object(resource.type, response, what)

    async def delete(
        self,
        resource: Resource[T],
        name: str,
        namespace: str = "",
        *,
        grace_period_seconds: int | None = None,
        uid: str = "",
        resource_version: str = "",
        propagation_policy: str = "",
        owner: str = "",
        priority: Priority = Priority.DELETE,
    ) -> Deleted[T]:
        """Delete an object, or mark it for deletion where finalizers or a grace period hold it.

        ``uid`` and ``resource_version`` are preconditions; another value on the server raises
        :class:`~runherd.kube.errors.ConflictError`. With ``uid`` the call is repeated after a lost answer, and an
        object that is gone by then counts as deleted. ``propagation_policy`` is ``Foreground``, ``Background`` or
        ``Orphan``; by default the kind's own.
        """
        what = describe("delete", resource, namespace, name)
        body = delete_options(grace_period_seconds, uid, resource_version, propagation_policy)
        repeat = Repeat.ALWAYS if uid else Repeat.WHEN_ASKED
        call = Call("DELETE", object_path(resource, namespace, name), what, body, repeat=repeat)
        try:
            response = await self._rest.write(call, self._timeouts, owner, priority)
        except NotFoundError as error:
            if not uid or error.attempts == 1:
                raise
            return Deleted(uid)
        return read_deleted(resource, response, what)


_PODS: Resource[Any] = Resource("", "v1", "pods", "Pod", namespaced=True, type=object)


def _update_priority(given: Priority | None, subresource: str) -> Priority:
    if given is not None:
        return given
    return Priority.STATUS if subresource == "status" else Priority.UPDATE


def _with_options(path: str, field_validation: str, field_manager: str, force: bool = False) -> str:
    if not (field_validation or field_manager or force):
        return path
    return with_query(path, {"fieldValidation": field_validation, "fieldManager": field_manager, "force": force})
