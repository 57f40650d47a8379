"""Answers: objects and lists as bytes, in the form and media type that the client asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import yaml
from multidict import CIMultiDict

from runherd.local.apiserver.errors import ApiError
from runherd.local.apiserver.kinds import Kind
from runherd.local.apiserver.lists import Page
from runherd.local.apiserver.negotiation import JSON, YAML, Representation
from runherd.local.apiserver.store import Record
from runherd.local.apiserver.tables import partial_metadata, table
from runherd.local.apiserver.writes import object_of
from runherd.wire.clock import Clock
from runherd.wire.transport import Response

__all__ = ["Responses", "failure", "plain_text", "value_of", "value_response"]

_JSON_HEADERS = CIMultiDict({"Content-Type": JSON, "Cache-Control": "no-cache, private"})
_UNPRINTABLE = str.maketrans(dict.fromkeys(map(chr, range(32))))


def value_of(record: Record, kind: Kind) -> bytes:
    """A record's object in the kind's version."""
    if not kind.storage_version:
        return record.value
    # Stored objects begin with their apiVersion (see decoding.encode), so that another is a matter of the first bytes.
    stored = b'{"apiVersion":"%b"' % kind.stored_api_version.encode()
    return b'{"apiVersion":"%b"%b' % (kind.api_version.encode(), record.value[len(stored) :])


def _items_of(records: Iterable[Record], kind: Kind) -> Iterable[bytes]:
    """The items of a list. Those of built-in kinds don't say what they are: the list does."""
    if kind.is_custom:
        return (value_of(record, kind) for record in records)
    stored = b'{"apiVersion":"%b","kind":"%b",' % (kind.stored_api_version.encode(), kind.kind.encode())
    return (b"{" + record.value[len(stored) :] for record in records)


def _response(
    status: int,
    body: bytes,
    representation: Representation,
    warnings: Iterable[str] = (),
    headers: Mapping[str, str] = {},
) -> Response:
    if representation.media_type == YAML:
        body = yaml.dump(msgspec.json.decode(body), Dumper=yaml.CSafeDumper, sort_keys=False).encode()
    sent = _JSON_HEADERS.copy()
    sent["Content-Type"] = representation.content_type
    sent.extend(headers)
    for warning in warnings:
        text = warning.translate(_UNPRINTABLE).replace("\\", "\\\\").replace('"', '\\"')
        sent.add("Warning", f'299 - "{text}"')
    return Response(status, sent, body)


def value_response(value: Any, representation: Representation | None = None, status: int = 200) -> Response:
    """Any JSON value."""
    return _response(status, msgspec.json.encode(value), representation or Representation())


def plain_text(text: str, status: int = 200) -> Response:
    return Response(
        status,
        CIMultiDict({"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"}),
        text.encode(),
    )


def failure(error: ApiError, representation: Representation | None = None) -> Response:
    """A refusal."""
    return _response(
        error.status, msgspec.json.encode(error.to_object()), representation or Representation(), headers=error.headers
    )


class Responses:
    """Objects and lists as answers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def one(
        self,
        kind: Kind,
        record: Record,
        representation: Representation,
        include: str = "",
        status: int = 200,
        warnings: Sequence[str] = (),
    ) -> Response:
        """One object; ``include`` is what ``includeObject`` asks for, of tables."""
        match representation.form:
            case "Table":
                metadata = {"resourceVersion": str(record.revision)}
                body = msgspec.json.encode(table(kind, [record], metadata, self._clock, include))
            case "PartialObjectMetadata":
                body = msgspec.json.encode(partial_metadata(object_of(record)))
            case _:
                body = value_of(record, kind)
        return _response(status, body, representation, warnings)

    def page(self, kind: Kind, page: Page, representation: Representation, include: str = "") -> Response:
        """One page of a list."""
        metadata: dict[str, Any] = {"resourceVersion": str(page.revision)}
        # Lists of custom kinds have the field in any case.
        if page.continue_token or kind.is_custom:
            metadata["continue"] = page.continue_token
        if page.remaining:
            metadata["remainingItemCount"] = page.remaining
        match representation.form:
            case "Table":
                body = msgspec.json.encode(table(kind, page.records, metadata, self._clock, include))
            case "PartialObjectMetadata":
                items = [partial_metadata(object_of(record)) for record in page.records]
                head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
                body = msgspec.json.encode({**head, "items": items})
            case _:
                head = {"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": metadata}
                items_text = b",".join(_items_of(page.records, kind))
                body = b'%b,"items":[%b]}' % (msgspec.json.encode(head)[:-1], items_text)
        return _response(200, body, representation)
