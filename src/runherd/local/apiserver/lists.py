"""Lists: which objects, of which moment, and in pages."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from runherd.local.apiserver.errors import (
    FieldError,
    bad_request,
    expired,
    forbidden_field,
    invalid,
    not_supported,
    too_large_resource_version,
)
from runherd.local.apiserver.kinds import Kind
from runherd.local.apiserver.options import parse_resource_version
from runherd.local.apiserver.selectors import Predicate, parse_field_selector, parse_label_selector
from runherd.local.apiserver.store import CompactedError, Key, Record, Store
from runherd.local.apiserver.targets import Query, fits

__all__ = ["Attributes", "ListOptions", "Page", "Selection", "list_page"]


class _Labels(msgspec.Struct, gc=False):
    labels: dict[str, str] = {}


class _Labelled(msgspec.Struct, gc=False):
    metadata: _Labels


_labelled = msgspec.json.Decoder(_Labelled)


#: What a selector sees of a field that isn't there.
_ABSENT = {"spec.hostNetwork": "false", "spec.unschedulable": "false"}


class Attributes:
    """What selectors look at, decoded from a record once and kept with it."""

    __slots__ = ("fields", "labels")

    def __init__(self, record: Record, kind: Kind) -> None:
        self.labels: Mapping[str, str] = _labelled.decode(record.value).metadata.labels
        self.fields: dict[str, str] = {
            "metadata.name": record.key.name,
            "metadata.namespace": record.key.namespace,
        }
        if kind.selectable:
            value = msgspec.json.decode(record.value)
            for label, path in kind.selectable.items():
                self.fields[label] = _text_at(value, path) or _ABSENT.get(label, "")

    @classmethod
    def of(cls, record: Record, kind: Kind) -> Attributes:
        attributes = record.attributes
        if not isinstance(attributes, cls):
            attributes = record.attributes = cls(record, kind)
        return attributes


def _text_at(value: Any, path: Sequence[str]) -> str:
    for step in path:
        if not isinstance(value, dict):
            return ""
        value = value.get(step)
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


@dataclass(frozen=True)
class Selection:
    """Which of a kind's objects a list, watch or deletecollection is about."""

    kind: Kind
    namespace: str = ""
    labels: Predicate | None = None
    fields: Predicate | None = None

    @classmethod
    def read(cls, kind: Kind, namespace: str, query: Query) -> Selection:
        """Raises a 400 for selectors that can't be understood."""
        supported = frozenset({"metadata.name", *kind.selectable})
        if kind.namespaced:
            supported |= {"metadata.namespace"}
        labels = parse_label_selector(query.text("labelSelector"))
        return cls(kind, namespace, labels, parse_field_selector(query.text("fieldSelector"), supported))

    @property
    def is_filtered(self) -> bool:
        """Whether objects are left out by what they contain."""
        return self.labels is not None or self.fields is not None

    def covers(self, key: Key) -> bool:
        return not self.namespace or key.namespace == self.namespace

    def matches(self, record: Record) -> bool:
        """Whether a record of the right place passes the selectors."""
        if self.labels is None and self.fields is None:
            return True
        attributes = Attributes.of(record, self.kind)
        return (self.labels is None or self.labels(attributes.labels)) and (
            self.fields is None or self.fields(attributes.fields)
        )


@dataclass(frozen=True)
class ListOptions:
    """The parameters of lists and watches that say which moment is meant. ``limit`` 0 means no limit."""

    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    match: str = ""

    @classmethod
    def read(cls, query: Query) -> ListOptions:
        """Raises a 400 or 422 for what contradicts itself."""
        options = cls(
            limit=max(query.integer("limit") or 0, 0),
            continue_token=query.text("continue"),
            resource_version=query.text("resourceVersion"),
            match=query.text("resourceVersionMatch"),
        )
        errors = list(options._errors(query))
        if errors:
            raise invalid("meta.k8s.io", "ListOptions", "", errors)
        return options

    def _errors(self, query: Query) -> Iterator[FieldError]:
        field = "resourceVersionMatch"
        if self.match:
            if not self.resource_version:
                yield forbidden_field(field, "resourceVersionMatch is forbidden unless resourceVersion is provided")
            if self.continue_token:
                yield forbidden_field(field, "resourceVersionMatch is forbidden when continue is provided")
            if self.match not in {"Exact", "NotOlderThan"}:
                yield not_supported(field, self.match, ["Exact", "NotOlderThan", ""])
            if self.match == "Exact" and self.resource_version == "0":
                yield forbidden_field(field, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
        if query.has("sendInitialEvents"):
            yield forbidden_field("sendInitialEvents", "sendInitialEvents is forbidden for list")


@dataclass(frozen=True)
class Page:
    """One page of a list."""

    records: Sequence[Record]
    revision: int
    continue_token: str = ""
    remaining: int | None = None


class _Token(msgspec.Struct):
    rv: int
    start: str
    v: str = "meta.k8s.io/v1"


#: The revision in a token that goes on at the present state, because the one it began with is no longer known.
_ANY_REVISION = -1


def list_page(store: Store, selection: Selection, options: ListOptions) -> Page:
    """The objects that are selected. Raises a 410 for a moment no longer known, a 504 for one not yet reached."""
    after, revision = "", None
    if options.continue_token:
        token = _read_token(options, store.revision)
        after = token.start
        revision = token.rv if token.rv != _ANY_REVISION else None
    else:
        revision = _exact_revision(options, store.revision)
    resource = selection.kind.resource
    try:
        found = store.list(resource, selection.namespace, after, revision)
    except CompactedError as error:
        raise _expired(options, after) from error
    at = revision if revision is not None else store.revision
    selected = (record for record in found if selection.matches(record))
    if not options.limit:
        return Page(list(selected), at)
    records = list(islice(selected, options.limit))
    if next(selected, None) is None:
        return Page(records, at)
    last = records[-1].key.path
    # As on the real server, what remains is only counted where nothing is filtered.
    remaining = None if selection.is_filtered else store.count(resource, selection.namespace, last)
    return Page(records, at, _write_token(at, last), remaining)


def _exact_revision(options: ListOptions, current: int) -> int | None:
    """The revision that the list must show, or None where the present state will do."""
    requested = parse_resource_version(options.resource_version)
    if requested > current:
        raise too_large_resource_version(requested, current)
    # A limit without a rule means, for a revision that isn't 0, exactly it.
    exact = options.match == "Exact" or (not options.match and options.limit > 0)
    return requested if exact and requested else None


def _write_token(revision: int, start: str) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(_Token(revision, start))).decode().rstrip("=")


def _read_token(options: ListOptions, current: int) -> _Token:
    """Raises a 400 for what is none of ours, a 504 for one of a moment not yet reached."""
    if options.resource_version and options.resource_version != "0":
        raise bad_request("specifying resource version is not allowed when using continue")
    text = options.continue_token
    try:
        token = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=_Token)
    except (ValueError, binascii.Error, msgspec.DecodeError) as error:
        raise bad_request(f"continue key is not valid: {error}") from error
    if not (token.rv > 0 or token.rv == _ANY_REVISION) or not fits(token.rv, 64):
        raise bad_request(f"continue key is not valid: incorrect encoded start resourceVersion {token.rv}")
    if token.rv > current:
        raise too_large_resource_version(token.rv, current)
    return token


def _expired(options: ListOptions, after: str) -> Exception:
    if not options.continue_token:
        return expired(f"The resourceVersion for the provided list is too old: {options.resource_version}.")
    return expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list "
        "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "
        "results. Continuing with the provided token results in an inconsistent list - objects that were created, "
        "modified, or deleted between the time the first chunk was returned and now may show up in the list.",
        continue_token=_write_token(_ANY_REVISION, after),
    )
