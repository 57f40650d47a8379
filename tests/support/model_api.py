"""A small model of a Kubernetes API server, for tests of what reads and writes there.

It has the rules that a cache and its client stand on (versions, history, watches, streaming lists, bookmarks, paging,
410, finalizers, deletion) and none of the others: no validation, no schemas, no selectors. And it misbehaves on demand.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from multidict import CIMultiDict

from runherd.wire.transport import Request, Response, StreamingResponse

__all__ = ["ModelApi"]

Object = dict[str, Any]

_JSON = CIMultiDict({"Content-Type": "application/json"})


class _RefusedError(Exception):
    def __init__(self, code: int, reason: str, message: str = "") -> None:
        self.code = code
        self.status = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
        super().__init__(message)


@dataclass(frozen=True)
class _Target:
    """What a path names: the collection (without its namespace), and what in it."""

    collection: str
    namespace: str
    name: str
    subresource: str

    @classmethod
    def parse(cls, path: str) -> _Target:
        parts = path.strip("/").split("/")
        base = 2 if parts[0] == "api" else 3
        version, rest = "/".join(parts[:base]), parts[base:]
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces":
            namespace, rest = rest[1], rest[2:]
        rest += [""] * (3 - len(rest))
        return cls(f"{version}/{rest[0]}", namespace, rest[1], rest[2])


@dataclass(eq=False)
class _Watch:
    since: int
    lost: bool = False
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    end: bool = False
    cut: bool = False
    bookmark: bool = False


class ModelApi:
    """A handler that is an API server.

    ``hold_watches`` keeps events back until it is false again; ``streaming_lists`` is ``True``, ``False`` (refused, as
    servers do whose feature gate is off) or ``None`` (ignored, as by servers that don't know it). ``refuse_next`` are
    answers, as (method, code, reason), for the next requests of that method. ``requests`` is what was asked for so far.
    """

    def __init__(self) -> None:
        self.version = 1
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.history: list[tuple[int, str, str, Object]] = []
        self.compacted = 0
        self.hold_watches = False
        self.streaming_lists: bool | None = True
        self.refuse_next: list[tuple[str, int, str]] = []
        self.requests: list[str] = []
        #: Seconds that clients are told to wait after a refusal; 0: nothing is said.
        self.retry_after = 0
        #: Seconds until a list, a write and each event of a watch is answered.
        self.delay = 0.0
        self._uids = 0
        self._watches: set[_Watch] = set()
        self._pages: dict[str, tuple[int, list[Object]]] = {}

    # --- What happens at the server, without a client --------------------------------------------------------------

    def put(self, collection: str, object_: Object) -> Object:
        """Create or change ``object_`` (``{"metadata": {"name": ..., "namespace": ...}}``)."""
        key = _key(collection, object_)
        current = self.objects.get(key)
        metadata = {**(current["metadata"] if current else self._new_metadata()), **object_["metadata"]}
        changed = {**(current or {}), **object_, "metadata": metadata}
        return self._store("MODIFIED" if current else "ADDED", collection, changed)

    def remove(self, collection: str, namespace: str, name: str) -> None:
        """Delete an object, whatever holds it."""
        self._store("DELETED", collection, self.objects[collection, namespace, name])

    def compact(self) -> None:
        """Forget all history: older versions are gone, also for open watches that were not told yet."""
        for watch in self._watches:
            watch.lost |= any(version > watch.since for version, *_ in self.history)
            watch.wake.set()
        self.compacted = self.version
        self.history.clear()

    def bookmark(self) -> None:
        """Send a bookmark on every watch."""
        self._each_watch("bookmark")

    def end_watches(self) -> None:
        """End every watch as servers do, after the last whole event."""
        self._each_watch("end")

    def cut_watches(self) -> None:
        """Cut the connection of every watch."""
        self._each_watch("cut")

    def release_watches(self) -> None:
        """Send what was held back."""
        self.hold_watches = False
        for watch in self._watches:
            watch.wake.set()

    @property
    def watching(self) -> int:
        """How many watches are open."""
        return len(self._watches)

    def backup(self) -> ModelApi:
        """A copy of what is stored."""
        return copy.deepcopy(self, {id(self._watches): set(), id(self.requests): []})

    def restore(self, backup: ModelApi) -> None:
        """Go back in time: the server is restarted with what ``backup`` stores, and its history is gone."""
        self.cut_watches()
        self.version, self.objects = backup.version, copy.deepcopy(backup.objects)
        self.history, self.compacted, self._pages = [], 0, {}

    # --- What clients ask for --------------------------------------------------------------------------------------

    async def handle(self, request: Request) -> Response | StreamingResponse:
        url = urlsplit(request.url)
        query = dict(parse_qsl(url.query))
        target = _Target.parse(url.path)
        kind = "WATCH" if query.get("watch") == "true" else request.method
        self.requests.append(f"{kind} {url.path}")
        try:
            self._refuse_on_demand(kind)
            if kind == "WATCH":
                return self._watch(target, query)
            if self.delay:
                answer = self._answer(request, target, query)
                await asyncio.sleep(self.delay)
                return answer
            return self._answer(request, target, query)
        except _RefusedError as refused:
            headers = CIMultiDict(_JSON, **({"Retry-After": str(self.retry_after)} if self.retry_after else {}))
            return Response(refused.code, headers, json.dumps(refused.status).encode())

    def _refuse_on_demand(self, kind: str) -> None:
        for index, (method, code, reason) in enumerate(self.refuse_next):
            if method == kind:
                del self.refuse_next[index]
                raise _RefusedError(code, reason)

    def _answer(self, request: Request, target: _Target, query: dict[str, str]) -> Response:
        body = json.loads(request.body) if request.body else {}
        if request.method == "GET" and not target.name:
            return _ok(self._list(target, query))
        if request.method == "POST":
            return _ok(self._create(target, body))
        current = self.objects.get((target.collection, target.namespace, target.name))
        if current is None:
            raise _RefusedError(404, "NotFound", f"{target.name} not found")
        if request.method == "GET":
            return _ok(current)
        if request.method == "DELETE":
            return _ok(self._delete(target.collection, current, body.get("preconditions", {})))
        changed = body if request.method == "PUT" else _merged(current, body)
        return _ok(self._change(target.collection, current, changed))

    def _list(self, target: _Target, query: dict[str, str]) -> Object:
        token = query.get("continue", "")
        if token:
            version, items = self._pages.pop(token)
            if version < self.compacted:
                raise _RefusedError(410, "Expired")
        else:
            version, items = self.version, self._selected(target)
        limit = int(query.get("limit", 0)) or len(items)
        metadata = {"resourceVersion": str(version)}
        if len(items) > limit:
            metadata["continue"] = f"page{len(self._pages)}-{version}-{len(items)}"
            self._pages[metadata["continue"]] = (version, items[limit:])
        return {"metadata": metadata, "items": items[:limit]}

    def _create(self, target: _Target, body: Object) -> Object:
        metadata = body.setdefault("metadata", {})
        if target.namespace:
            metadata["namespace"] = target.namespace
        if not metadata.get("name"):
            metadata["name"] = f"{metadata['generateName']}{self.version}"
        if _key(target.collection, body) in self.objects:
            raise _RefusedError(409, "AlreadyExists", f"{metadata['name']} already exists")
        metadata.update(self._new_metadata())
        return self._store("ADDED", target.collection, body)

    def _change(self, collection: str, current: Object, changed: Object) -> Object:
        asked = changed["metadata"].get("resourceVersion")
        if asked not in (None, "", current["metadata"]["resourceVersion"]):
            raise _RefusedError(409, "Conflict", "the object has been modified")
        for immutable in ("uid", "creationTimestamp", "deletionTimestamp", "resourceVersion"):
            if immutable in current["metadata"]:
                changed["metadata"][immutable] = current["metadata"][immutable]
        if changed == current:
            return current
        metadata = changed["metadata"]
        if "deletionTimestamp" in metadata and not metadata.get("finalizers"):
            self._store("DELETED", collection, changed)
            return changed  # with the version from before, as the real one answers
        return self._store("MODIFIED", collection, changed)

    def _delete(self, collection: str, current: Object, preconditions: Object) -> Object:
        metadata = current["metadata"]
        for name, value in preconditions.items():
            if metadata[name] != value:
                raise _RefusedError(409, "Conflict", f"precondition failed: {name}")
        if metadata.get("finalizers"):
            if "deletionTimestamp" in metadata:
                return current
            marked = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}
            return self._store("MODIFIED", collection, {**current, "metadata": {**metadata, **marked}})
        self._store("DELETED", collection, current)
        return {"kind": "Status", "status": "Success", "details": {"name": metadata["name"], "uid": metadata["uid"]}}

    # --- Watches ---------------------------------------------------------------------------------------------------

    def _watch(self, target: _Target, query: dict[str, str]) -> StreamingResponse:
        since = int(query.get("resourceVersion") or 0)
        initial = False
        if query.get("sendInitialEvents") == "true":
            if self.streaming_lists is False:
                raise _RefusedError(
                    422, "Invalid", "sendInitialEvents is forbidden for watch unless the gate is enabled"
                )
            initial = self.streaming_lists is True
            since = self.version
        if since and since < self.compacted:
            raise _RefusedError(410, "Expired", "too old resource version")
        end = asyncio.get_running_loop().time() + int(query["timeoutSeconds"])
        return StreamingResponse(200, self._events(target, since, initial, end), _JSON)

    async def _events(self, target: _Target, since: int, initial: bool, end: float) -> AsyncIterator[bytes]:
        watch = _Watch(since)
        self._watches.add(watch)
        try:
            if initial:
                for object_ in self._selected(target):
                    yield _line("ADDED", object_)
                yield _line("BOOKMARK", _bookmark(since, {"k8s.io/initial-events-end": "true"}))
            while True:
                while (change := self._next_change(watch)) is not None:
                    watch.since, type_, collection, object_ = change
                    if _matches(target, collection, object_):
                        if self.delay:
                            await asyncio.sleep(self.delay)
                        yield _line(type_, object_)
                if watch.lost:
                    yield _line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})
                    return
                if watch.bookmark:
                    watch.bookmark = False
                    yield _line("BOOKMARK", _bookmark(watch.since, {}))
                if watch.cut:
                    raise ConnectionResetError
                if watch.end:
                    return
                watch.wake.clear()
                try:
                    async with asyncio.timeout_at(end):
                        await watch.wake.wait()
                except TimeoutError:
                    return
        finally:
            self._watches.discard(watch)

    def _next_change(self, watch: _Watch) -> tuple[int, str, str, Object] | None:
        if self.hold_watches or watch.lost:
            return None
        return next((change for change in self.history if change[0] > watch.since), None)

    def _each_watch(self, what: str) -> None:
        for watch in self._watches:
            setattr(watch, what, True)
            watch.wake.set()

    # --- Storage ---------------------------------------------------------------------------------------------------

    def _new_metadata(self) -> Object:
        self._uids += 1
        return {"uid": f"uid-{self._uids}", "creationTimestamp": "2026-01-01T00:00:00Z"}

    def _store(self, type_: str, collection: str, object_: Object) -> Object:
        self.version += 1
        stored = copy.deepcopy(object_)
        stored["metadata"]["resourceVersion"] = str(self.version)
        if type_ == "DELETED":
            del self.objects[_key(collection, stored)]
        else:
            self.objects[_key(collection, stored)] = stored
        self.history.append((self.version, type_, collection, stored))
        for watch in self._watches:
            watch.wake.set()
        return stored

    def _selected(self, target: _Target) -> list[Object]:
        return [
            object_ for (collection, _, _), object_ in self.objects.items() if _matches(target, collection, object_)
        ]


def _matches(target: _Target, collection: str, object_: Object) -> bool:
    return collection == target.collection and target.namespace in ("", object_["metadata"].get("namespace", ""))


def _key(collection: str, object_: Object) -> tuple[str, str, str]:
    return collection, object_["metadata"].get("namespace", ""), object_["metadata"]["name"]


def _ok(object_: Object) -> Response:
    return Response(200, _JSON, json.dumps(object_).encode())


def _line(type_: str, object_: Object) -> bytes:
    return json.dumps({"type": type_, "object": object_}).encode() + b"\n"


def _bookmark(version: int, annotations: dict[str, str]) -> Object:
    return {"metadata": {"resourceVersion": str(version), "annotations": annotations}}


def _merged(current: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(current) if isinstance(current, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merged(merged.get(name), value)
    return merged
