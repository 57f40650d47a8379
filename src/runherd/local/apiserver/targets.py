"""From a URL to what the request is about."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import parse_qs, unquote, urlsplit

from runherd.local.apiserver.errors import bad_request

__all__ = ["Query", "Target", "fits", "parse_target", "split_url"]


_INTEGER = re.compile("[+-]?[0-9]+")
#: Longer texts are not read: Python refuses to.
_MAX_DIGITS = 4000


@dataclass(frozen=True, slots=True)
class Target:
    """A path below a group version. ``name`` is empty for a collection, ``resource`` for the group version itself."""

    group: str
    version: str
    namespace: str = ""
    resource: str = ""
    name: str = ""
    subresource: str = ""


def fits(number: int, bits: int) -> bool:
    """Whether a signed integer of so many bits can hold the number."""
    return -(1 << bits - 1) <= number < 1 << bits - 1


class Query:
    """A URL's query parameters, read as the API server reads them."""

    def __init__(self, text: str) -> None:
        self._values = parse_qs(text, keep_blank_values=True) if text else {}

    def text(self, name: str) -> str:
        """The parameter's first value, or ``""``."""
        values = self._values.get(name)
        return values[0] if values else ""

    def texts(self, name: str) -> list[str]:
        return self._values.get(name, [])

    def flag(self, name: str) -> bool:
        """Whether it is given, and is neither ``false`` nor ``0``."""
        return name in self._values and self.text(name).lower() not in {"false", "0"}

    def integer(self, name: str) -> int | None:
        """Read as Go's ``ParseInt`` does. Raises a 400 where it is no number of 64 bits."""
        text = self.text(name)
        if not text:
            return None
        if _INTEGER.fullmatch(text) is None:
            raise bad_request(f'{name}: strconv.ParseInt: parsing "{text}": invalid syntax')
        if len(text) > _MAX_DIGITS or not fits(int(text), 64):
            raise bad_request(f'{name}: strconv.ParseInt: parsing "{text[:40]}": value out of range')
        return int(text)

    def has(self, name: str) -> bool:
        return name in self._values


# Collections are asked for again and again.
@lru_cache(maxsize=128)
def split_url(url: str) -> tuple[tuple[str, ...], str]:
    """The decoded segments of a URL's path, and its query."""
    parts = urlsplit(url)
    return tuple(unquote(segment) for segment in parts.path.strip("/").split("/") if segment), parts.query


@lru_cache(maxsize=128)
def parse_target(segments: tuple[str, ...]) -> Target | None:
    """What ``/api/v1/...`` or ``/apis/group/version/...`` names, or None where nothing can be there."""
    if segments[0] == "api" and len(segments) >= 2:
        group, version, rest = "", segments[1], segments[2:]
    elif segments[0] == "apis" and len(segments) >= 3:
        group, version, rest = segments[1], segments[2], segments[3:]
    else:
        return None
    namespace = ""
    if len(rest) >= 3 and rest[0] == "namespaces" and not (group == "" and rest[2] in {"status", "finalize"}):
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3:
        return None
    resource, name, subresource = [*rest, "", "", ""][:3]
    return Target(group, version, namespace, resource, name, subresource)
