"""The embedded API server: a handler that answers as kube-apiserver does, on a store of its own."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random

from multidict import CIMultiDict

from runherd.local.apiserver import discovery, openapi
from runherd.local.apiserver.bodies import MAX_BODY_SIZE, request_too_large
from runherd.local.apiserver.endpoints import Endpoints
from runherd.local.apiserver.errors import ApiError, bad_request, method_not_allowed
from runherd.local.apiserver.expiry import EventExpiry
from runherd.local.apiserver.garbage import GarbageCollector
from runherd.local.apiserver.kinds import Object
from runherd.local.apiserver.logs import PodLogs
from runherd.local.apiserver.namespaces import DefinitionCleaner, NamespaceCleaner
from runherd.local.apiserver.negotiation import Form, negotiate
from runherd.local.apiserver.registry import Registry
from runherd.local.apiserver.responses import failure, plain_text, value_response
from runherd.local.apiserver.store import Key, Store, StoreError, StoreFullError
from runherd.local.apiserver.targets import Query, Target, parse_target, split_url
from runherd.local.apiserver.watches import Watches
from runherd.local.apiserver.writes import Writes
from runherd.wire.clock import Clock, SystemClock
from runherd.wire.transport import Request, Response, StreamingResponse

__all__ = ["KUBERNETES_VERSION", "ApiServer"]

#: The version of Kubernetes whose behaviour this server has.
KUBERNETES_VERSION = "v1.36.0"
_SYSTEM_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_HEALTH_PATHS = ("healthz", "livez", "readyz")
_AGGREGATED: frozenset[Form] = frozenset({"APIGroupDiscoveryList"})


class ApiServer:
    """Holds objects and answers requests about them; :meth:`handle` is a ``wire`` handler.

    With a ``token``, requests must bear it; for health and version they need not, but then must bear no other. Raises
    ``ValueError`` for an empty token. ``pod_logs`` is asked for the logs of pods,
    ``snapshot`` for the bytes of a backup, which is read at ``/runherd/backup`` (``SqliteJournal.snapshot``).
    Events are deleted ``event_lifetime`` seconds after their last write.
    """

    def __init__(
        self,
        store: Store,
        *,
        random: Random,
        clock: Clock | None = None,
        token: str | None = None,
        pod_logs: PodLogs | None = None,
        snapshot: Callable[[], Awaitable[AsyncIterator[bytes]]] | None = None,
        event_lifetime: float = 3600.0,
    ) -> None:
        if token is not None and not token.strip():
            raise ValueError("the token is empty: everybody would have it")
        clock = clock or SystemClock()
        self._store = store
        self._token = token
        self._snapshot = snapshot
        self._registry = Registry(store, clock)
        self._writes = Writes(store, clock, random)
        self._watches = Watches(store, random)
        self._endpoints = Endpoints(store, self._registry, self._writes, self._watches, clock, pod_logs)
        self._garbage = GarbageCollector(store, self._registry, self._writes)
        self._namespaces = NamespaceCleaner(store, self._registry, self._writes)
        self._definitions = DefinitionCleaner(store, self._registry, self._writes)
        self._expiry = EventExpiry(store, self._registry, self._writes, event_lifetime)
        self._chores = (self._garbage, self._namespaces, self._definitions, self._expiry)
        self._is_ready = False

    #: Larger bodies are refused unread, with :meth:`too_large`.
    body_limit = MAX_BODY_SIZE

    @staticmethod
    def too_large(request: Request) -> Response:
        """The answer to a request whose body is larger than ``body_limit``."""
        return failure(request_too_large())

    async def start(self) -> None:
        """Open the store and begin to work. Raises :class:`StoreError` when the store can't be used."""
        await self._store.open()
        self._registry.load()
        for resource in self._store.resources():
            for record in self._store.list(resource):
                self._garbage.load(record)
        self._namespaces.load()
        self._definitions.load()
        self._expiry.load()
        for chore in self._chores:
            self._store.observe(chore.observe)
            chore.start()
        await self._create_system_namespaces()
        self._is_ready = True

    async def close(self) -> None:
        """End all watches, finish the writes under way and close the store."""
        self._is_ready = False
        self._watches.close()
        for chore in self._chores:
            await chore.close()
        await self._store.close()

    async def handle(self, request: Request) -> Response | StreamingResponse:
        """Answer a request. Never raises; what goes wrong is told by a Status object."""
        try:
            return await self._answer(request)
        except ApiError as error:
            return failure(error)
        except RecursionError:
            return failure(bad_request("the object is nested too deeply: exceeded max depth"))
        except StoreFullError as error:
            return failure(ApiError(507, "InsufficientStorage", f"the write was not carried out: {error}"))
        except StoreError as error:
            return failure(ApiError(503, "ServiceUnavailable", f"the write was not carried out: {error}"))

    async def _answer(self, request: Request) -> Response | StreamingResponse:
        segments, query_text = split_url(request.url)
        if not segments:
            return self._root(request)
        is_public = segments[0] in _HEALTH_PATHS or segments == ("version",)
        if not is_public or "Authorization" in request.headers:
            self._authenticate(request)
        if segments[0] in _HEALTH_PATHS:
            return self._health()
        if is_public:
            return value_response(_version())
        if segments[0] == "openapi":
            return self._openapi(request, segments)
        if segments == ("runherd", "backup"):
            return await self._backup(request)
        target = parse_target(segments)
        if target is not None and target.resource:
            kind = self._registry.get(target.group, target.version, target.resource)
            if kind is None:
                return self._unknown(target)
            return await self._endpoints.answer(request, kind, target, Query(query_text))
        return self._discovery(request, segments)

    def _authenticate(self, request: Request) -> None:
        if self._token is None:
            return
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._token.encode()):
            raise ApiError(401, "Unauthorized", "Unauthorized")

    def _unknown(self, target: Target) -> Response:
        """Built-in groups say so in their own words; everything else is nobody's."""
        if any(not kind.is_custom for kind in self._registry.in_version(target.group, target.version)):
            raise ApiError(404, "NotFound", "the server could not find the requested resource", details={})
        return plain_text("404 page not found\n", 404)

    def _root(self, request: Request) -> Response:
        self._authenticate(request)
        groups = [
            f"/apis/{group}/{version}" if group else f"/api/{version}"
            for group, versions in self._registry.groups().items()
            for version in versions
        ]
        return value_response({"paths": sorted({*groups, "/api", "/apis", "/openapi/v3", "/version", "/healthz"})})

    def _health(self) -> Response:
        return plain_text("ok") if self._is_ready else plain_text("the server is starting or stopping\n", 500)

    def _discovery(self, request: Request, segments: tuple[str, ...]) -> Response:
        if request.method not in {"GET", "HEAD"}:
            raise method_not_allowed()
        accept = request.headers.get("Accept", "")
        found: Object | None = None
        match segments:
            case ["api" | "apis" as root]:
                representation = negotiate(accept, _AGGREGATED)
                if representation.form == "APIGroupDiscoveryList":
                    return value_response(discovery.aggregated(self._registry, core=root == "api"), representation)
                found = discovery.api_versions() if root == "api" else discovery.group_list(self._registry)
            case ["api", version]:
                found = discovery.resource_list(self._registry, "", version)
            case ["apis", group]:
                found = discovery.group(self._registry, group)
            case ["apis", group, version]:
                found = discovery.resource_list(self._registry, group, version)
        if found is None:
            return plain_text("404 page not found\n", 404)
        return value_response(found, negotiate(accept))

    def _openapi(self, request: Request, segments: tuple[str, ...]) -> Response:
        if request.method not in {"GET", "HEAD"}:
            raise method_not_allowed()
        found: Object | None = None
        match segments[1:]:
            case ["v2"]:
                return Response(200, CIMultiDict({"Content-Type": openapi.V2_MEDIA_TYPE}), openapi.V2_DOCUMENT)
            case ["v3"]:
                found = openapi.index(self._registry)
            case ["v3", "api", version]:
                found = openapi.document(self._registry, "", version)
            case ["v3", "apis", group, version]:
                found = openapi.document(self._registry, group, version)
        if found is None:
            return plain_text("404 page not found\n", 404)
        return value_response(found, negotiate(request.headers.get("Accept", "")))

    async def _backup(self, request: Request) -> StreamingResponse:
        if request.method != "GET":
            raise method_not_allowed()
        if self._snapshot is None:
            raise ApiError(404, "NotFound", "this server keeps its objects in memory: there is nothing to back up")
        try:
            chunks = await self._snapshot()
        except StoreError as error:
            raise ApiError(503, "ServiceUnavailable", str(error)) from None
        headers = CIMultiDict({"Content-Type": "application/octet-stream", "Cache-Control": "no-store"})
        return StreamingResponse(200, chunks, headers)

    async def _create_system_namespaces(self) -> None:
        kind = self._registry.get("", "v1", "namespaces")
        if kind is None:
            return
        for name in _SYSTEM_NAMESPACES:
            if self._store.get(Key("namespaces", "", name)) is None:
                namespace: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
                await self._writes.create(kind, "", namespace)


def _version() -> Object:
    major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"{KUBERNETES_VERSION}+runherd",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": "",
        "compiler": "",
        "platform": "",
    }
