"""What each verb does on a resource: from a request to an answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from multidict import CIMultiDict

from runherd.local.apiserver import crds
from runherd.local.apiserver.binding import bind
from runherd.local.apiserver.bodies import check_size, duplicate_fields, parse
from runherd.local.apiserver.decoding import read_object, report_strict
from runherd.local.apiserver.errors import (
    ApiError,
    bad_request,
    invalid,
    invalid_value,
    method_not_allowed,
    not_found,
    status_object,
    unsupported_feature,
    unsupported_media_type,
)
from runherd.local.apiserver.kinds import Kind, Object
from runherd.local.apiserver.lists import ListOptions, Selection, list_page
from runherd.local.apiserver.logs import PodLogs, pod_log
from runherd.local.apiserver.negotiation import Form, Representation, negotiate
from runherd.local.apiserver.options import DeleteOptions, FieldValidation, field_validation, refuse_dry_run
from runherd.local.apiserver.patches import apply_json_patch, apply_merge_patch, apply_strategic_patch
from runherd.local.apiserver.registry import CRD_RESOURCE, Registry
from runherd.local.apiserver.responses import Responses, value_of, value_response
from runherd.local.apiserver.store import Key, Record, Store
from runherd.local.apiserver.tables import render_metadata, render_row
from runherd.local.apiserver.targets import Query, Target
from runherd.local.apiserver.watches import Watches, WatchOptions
from runherd.local.apiserver.writes import Writes, Written, object_of
from runherd.wire.clock import Clock
from runherd.wire.transport import Request, Response, StreamingResponse

__all__ = ["Endpoints"]

_FORMS: frozenset[Form] = frozenset({"Table", "PartialObjectMetadata"})
_JSON_PATCH = "application/json-patch+json"
_MERGE_PATCH = "application/merge-patch+json"
_STRATEGIC_PATCH = "application/strategic-merge-patch+json"
_APPLY_PATCHES = ("application/apply-patch+yaml", "application/apply-patch+cbor")


class Endpoints:
    """Answers requests about objects."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        writes: Writes,
        watches: Watches,
        clock: Clock,
        pod_logs: PodLogs | None,
    ) -> None:
        self._store = store
        self._registry = registry
        self._writes = writes
        self._watches = watches
        self._clock = clock
        self._pod_logs = pod_logs
        self._responses = Responses(clock)

    async def answer(self, request: Request, kind: Kind, target: Target, query: Query) -> Response | StreamingResponse:
        """Raises :class:`ApiError` for what is refused."""
        if kind.namespaced != bool(target.namespace) and (target.name or request.method == "POST"):
            raise ApiError(404, "NotFound", "the server could not find the requested resource", details={})
        if target.subresource:
            return await self._subresource(request, kind, target, query)
        match (request.method, bool(target.name)):
            case ("GET" | "HEAD", True):
                return self._get(request, kind, target, query)
            case ("GET" | "HEAD", False):
                read = self._watch if query.flag("watch") else self._list
                return read(request, kind, target, query)
            case ("POST", False):
                return await self._create(request, kind, target, query)
            case ("PUT", True):
                return await self._update(request, kind, target, query)
            case ("PATCH", True):
                return await self._patch(request, kind, target, query)
            case ("DELETE", True):
                return await self._delete(request, kind, target, query)
            case ("DELETE", False):
                return await self._delete_collection(request, kind, target, query)
        raise method_not_allowed()

    # Reading

    def _get(self, request: Request, kind: Kind, target: Target, query: Query) -> Response:
        representation = negotiate(_accept(request), _FORMS)
        record = self._record(kind, target)
        return self._responses.one(kind, record, representation, query.text("includeObject"))

    def _list(self, request: Request, kind: Kind, target: Target, query: Query) -> Response:
        representation = negotiate(_accept(request), _FORMS)
        selection = Selection.read(kind, target.namespace, query)
        page = list_page(self._store, selection, ListOptions.read(query))
        return self._responses.page(kind, page, representation, query.text("includeObject"))

    def _watch(self, request: Request, kind: Kind, target: Target, query: Query) -> StreamingResponse:
        representation = negotiate(_accept(request), _FORMS)
        selection = Selection.read(kind, target.namespace, query)
        options = WatchOptions.read(query)
        render: Callable[[Record], bytes] | None = None
        if representation.form == "Table":
            render = render_row(kind, self._clock, query.text("includeObject"))
        elif representation.form == "PartialObjectMetadata":
            render = render_metadata
        elif kind.storage_version:
            render = partial(value_of, kind=kind)
        headers = CIMultiDict({"Content-Type": "application/json", "Cache-Control": "no-cache, private"})
        return StreamingResponse(200, self._watches.open(selection, options, render), headers)

    # Writing

    async def _create(self, request: Request, kind: Kind, target: Target, query: Query) -> Response:
        representation = self._writing(request, query)
        definition = self._registry.definition(kind)
        if definition is not None and "deletionTimestamp" in definition["metadata"]:
            error = method_not_allowed()
            error.message = "create not allowed while custom resource definition is terminating"
            raise error
        new, warnings = read_object(kind, request.body, _content_type(request), field_validation(query))
        written = await self._writes.create(kind, target.namespace, new)
        return self._written(kind, written, representation, warnings)

    async def _update(
        self, request: Request, kind: Kind, target: Target, query: Query, subresource: str = ""
    ) -> Response:
        representation = self._writing(request, query)
        new, warnings = read_object(kind, request.body, _content_type(request), field_validation(query))
        written = await self._writes.update(kind, _key(kind, target), new, subresource)
        return self._written(kind, written, representation, warnings)

    async def _patch(
        self, request: Request, kind: Kind, target: Target, query: Query, subresource: str = ""
    ) -> Response:
        representation = self._writing(request, query)
        validation = field_validation(query)
        transform, warnings = _patch_of(request, kind, validation)
        written = await self._writes.patch(kind, _key(kind, target), transform, subresource, validation)
        return self._written(kind, written, representation, warnings)

    def _written(self, kind: Kind, written: Written, representation: Representation, warnings: list[str]) -> Response:
        warnings = [*warnings, *written.warnings]
        if kind.resource == CRD_RESOURCE:
            warnings += crds.warnings(object_of(written.record))
        status = 201 if written.created else 200
        return self._responses.one(kind, written.record, representation, status=status, warnings=warnings)

    def _writing(self, request: Request, query: Query) -> Representation:
        check_size(request.body)
        refuse_dry_run(query)
        return negotiate(_accept(request), _FORMS)

    async def _delete(self, request: Request, kind: Kind, target: Target, query: Query) -> Response:
        check_size(request.body)
        representation = negotiate(_accept(request), _FORMS)
        options = DeleteOptions.read(request.body, _content_type(request), query)
        deleted = await self._writes.delete(kind, _key(kind, target), options)
        if kind.returns_deleted or not deleted.gone:
            return self._responses.one(kind, deleted.record, representation)
        details = {"name": target.name, "group": kind.group, "kind": kind.plural}
        details["uid"] = object_of(deleted.record)["metadata"]["uid"]
        return value_response(
            status_object("Success", 0, details={key: value for key, value in details.items() if value}),
            Representation(representation.media_type),
        )

    async def _delete_collection(self, request: Request, kind: Kind, target: Target, query: Query) -> Response:
        check_size(request.body)
        if "deletecollection" not in kind.verbs or (kind.namespaced and not target.namespace):
            raise method_not_allowed()
        representation = negotiate(_accept(request), _FORMS)
        options = DeleteOptions.read(request.body, _content_type(request), query)
        page = list_page(self._store, Selection.read(kind, target.namespace, query), ListOptions.read(query))
        for record in page.records:
            try:
                await self._writes.delete(kind, record.key, options)
            except ApiError as error:
                # Another has been faster.
                if error.status != 404:
                    raise
        return self._responses.page(kind, page, representation)

    # Subresources

    async def _subresource(
        self, request: Request, kind: Kind, target: Target, query: Query
    ) -> Response | StreamingResponse:
        name = target.subresource
        if kind.resource == "pods" and name in {"exec", "attach", "portforward", "proxy", "eviction", "resize"}:
            raise unsupported_feature(f"pods/{name}")
        if name == "scale" and kind.wants_scale:
            raise unsupported_feature(f"{kind.resource}/scale")
        if name not in kind.subresources:
            raise ApiError(404, "NotFound", "the server could not find the requested resource", details={})
        match (name, request.method):
            case ("status", "GET"):
                return self._get(request, kind, target, query)
            case ("status", "PUT"):
                return await self._update(request, kind, target, query, "status")
            case ("status", "PATCH"):
                return await self._patch(request, kind, target, query, "status")
            case ("log", "GET"):
                return await pod_log(object_of(self._record(kind, target)), query, self._pod_logs)
            case ("binding", "POST"):
                return await self._bind(request, kind, target, query)
            case ("finalize", "PUT"):
                return await self._finalize(request, kind, target, query)
        raise method_not_allowed()

    async def _bind(self, request: Request, kind: Kind, target: Target, query: Query) -> Response:
        representation = self._writing(request, query)
        await bind(self._writes, self._clock, kind, _key(kind, target), request.body, _content_type(request))
        return value_response(status_object("Success", 201), Representation(representation.media_type), 201)

    async def _finalize(self, request: Request, kind: Kind, target: Target, query: Query) -> Response:
        """A namespace's ``spec.finalizers``, which nothing else can change."""
        representation = self._writing(request, query)
        new, warnings = read_object(kind, request.body, _content_type(request), field_validation(query))
        finalizers = new.get("spec", {}).get("finalizers", [])

        def change(namespace: Object) -> None:
            namespace["spec"] = {"finalizers": finalizers} if finalizers else {}

        written = await self._writes.modify(kind, _key(kind, target), change)
        return self._responses.one(kind, written.record, representation, warnings=warnings)

    def _record(self, kind: Kind, target: Target) -> Record:
        record = self._store.get(_key(kind, target))
        if record is None:
            raise not_found(kind.group, kind.plural, target.name)
        return record


def _key(kind: Kind, target: Target) -> Key:
    return Key(kind.resource, target.namespace, target.name)


def _accept(request: Request) -> str:
    return request.headers.get("Accept", "")


def _content_type(request: Request) -> str:
    return request.headers.get("Content-Type", "")


def _patch_of(
    request: Request, kind: Kind, validation: FieldValidation
) -> tuple[Callable[[Object], Object], list[str]]:
    """What a patch does, and warnings. Raises a 400 for a malformed one, a 415 or 501 for one that isn't known."""
    content_type = _content_type(request)
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type in _APPLY_PATCHES:
        raise unsupported_feature("server-side apply")
    accepted = (_JSON_PATCH, _MERGE_PATCH, *(() if kind.is_custom else (_STRATEGIC_PATCH,)))
    if media_type not in accepted:
        raise unsupported_media_type(accepted, media_type)
    try:
        patch: Any = parse(request.body)
    except ValueError as error:
        raise bad_request(f"error decoding patch: {error}") from error
    warnings: list[str] = []
    if validation != "Ignore":
        warnings = [f'duplicate field "{path}"' for path in duplicate_fields(request.body, patch)]
        if warnings and validation == "Strict":
            raise invalid("", "", "", [invalid_value("patch", "<patch>", report_strict(warnings))])
    if media_type == _JSON_PATCH:
        return lambda current: apply_json_patch(current, patch), warnings
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: a merge patch is an object")
    if media_type == _MERGE_PATCH:
        return lambda current: apply_merge_patch(current, patch), warnings
    return lambda current: apply_strategic_patch(current, patch, kind.schema), warnings
