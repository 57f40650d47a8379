"""Addresses below the URLs that the service hands out (``docs/spec/actions-service.md`` 0, 5.3)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from runherd.actions.decoding import NotAsPromisedError
from runherd.wire.target import Target

__all__ = ["API_VERSION", "message_url", "poll_url", "require_http", "service_url"]

API_VERSION = "6.0-preview"

_Query = Mapping[str, str | int]


def require_http(url: str, what: str) -> None:
    """Raise :class:`NotAsPromisedError` unless ``url`` is one that can be called."""
    try:
        Target.parse(url)
    except ValueError as error:
        raise NotAsPromisedError(f"{what} is {error}") from None


def service_url(base: str, endpoint: str, query: _Query | None = None) -> str:
    """``endpoint`` below the service's URL ``base``, with the base's own query, ``query`` and the API version.

    Slashes are collapsed, a slash at the endpoint's end stays; of equal keys the endpoint's counts; keys are sorted.
    """
    parts = urlsplit(base)
    path = re.sub("/{2,}", "/", f"{parts.path}/{endpoint}")
    return _with_query(base, path, {"api-version": API_VERSION, **(query or {})})


def poll_url(queue: str, last_message_id: int) -> str:
    """Where the message after ``last_message_id`` is got from; 0 stands for the oldest."""
    if last_message_id <= 0:
        return queue
    return _with_query(queue, urlsplit(queue).path, {"lastMessageId": last_message_id})


def message_url(queue: str, message_id: int) -> str:
    """Where the message ``message_id`` is deleted: its id is part of the path, the query stays as it is."""
    parts = urlsplit(queue)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{message_id}"))


def _with_query(url: str, path: str, query: _Query) -> str:
    parts = urlsplit(url)
    pairs: list[tuple[str, str | int]] = [
        (key, value) for key, value in parse_qsl(parts.query, keep_blank_values=True) if key not in query
    ]
    pairs.extend(query.items())
    return urlunsplit(parts._replace(path=path, query=urlencode(sorted(pairs, key=lambda pair: pair[0])), fragment=""))
