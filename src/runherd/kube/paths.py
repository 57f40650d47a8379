"""Paths and queries of the Kubernetes API, and how requests are named in errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from runherd.api.resource import Resource

__all__ = ["collection_path", "describe", "object_path", "with_query"]

# Nearly all names are DNS names, which need no quoting.
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")


def collection_path(resource: Resource[Any], namespace: str) -> str:
    """Where objects of ``resource`` are listed and created; ``namespace=""`` is all of them, or none.

    Raises :class:`ValueError` for a namespace that is no path segment, or given for a cluster-scoped resource.
    """
    if not namespace:
        return f"{resource.prefix}/{resource.plural}"
    if not resource.namespaced:
        raise ValueError(f"{resource.plural} are not namespaced, but namespace {namespace!r} was given")
    return f"{resource.prefix}/namespaces/{_segment('namespace', namespace)}/{resource.plural}"


def object_path(resource: Resource[Any], namespace: str, name: str, subresource: str = "") -> str:
    """Where the object ``name``, or a subresource of it, is served.

    Raises :class:`ValueError` when the name or the namespace is missing or is no path segment.
    """
    if resource.namespaced and not namespace:
        raise ValueError(f"{resource.plural} are namespaced, but no namespace was given for {name!r}")
    path = f"{collection_path(resource, namespace)}/{_segment('name', name)}"
    return f"{path}/{subresource}" if subresource else path


def with_query(path: str, parameters: Mapping[str, str | int | bool | None]) -> str:
    """``path`` with those ``parameters`` that are neither empty, ``None`` nor false."""
    given = {
        name: "true" if value is True else str(value)
        for name, value in parameters.items()
        if value is not None and value is not False and value != ""
    }
    return f"{path}?{urlencode(given)}" if given else path


def describe(verb: str, resource: Resource[Any], namespace: str, name: str = "", subresource: str = "") -> str:
    """How a request is named in errors: ``patch pods/status default/web``."""
    kind = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    if subresource:
        kind = f"{kind}/{subresource}"
    if namespace:
        return f"{verb} {kind} {namespace}/{name}" if name else f"{verb} {kind} in {namespace}"
    return f"{verb} {kind} {name}" if name else f"{verb} {kind}"


def _segment(what: str, value: str) -> str:
    if _PLAIN.fullmatch(value):
        return value
    # The rule of apimachinery's path.IsValidPathSegmentName: what could change the path's shape is no name.
    if not value or value in {".", ".."} or "/" in value or "%" in value:
        raise ValueError(f"{value!r} can't be the {what} of an object")
    return quote(value, safe=":")
