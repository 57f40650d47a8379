"""One call as endpoints see it, and the answers that they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
from multidict import CIMultiDict, CIMultiDictProxy

from runherd.simulator.errors import bad_request
from runherd.wire.transport import Request, Response

__all__ = ["JSON", "NO_CONTENT", "Call", "json_response"]

T = TypeVar("T")

JSON = CIMultiDictProxy(CIMultiDict({"Content-Type": "application/json; charset=utf-8"}))
NO_CONTENT = Response(204)


def json_response(content: object, status: int = 200) -> Response:
    """An answer whose body is ``content`` as JSON."""
    return Response(status, JSON, msgspec.json.encode(content))


@dataclass(slots=True)
class Call:
    """A request, taken apart."""

    method: str
    #: Scheme and authority: ``http://127.0.0.1:8080``.
    base: str
    host: str
    segments: list[str]
    query: dict[str, str]
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)

    @classmethod
    def of(cls, request: Request) -> Call:
        parts = urlsplit(request.url)
        return cls(
            method=request.method,
            base=f"{parts.scheme}://{parts.netloc}",
            host=parts.hostname or "",
            segments=[unquote(segment) for segment in parts.path.split("/") if segment],
            query=dict(parse_qsl(parts.query, keep_blank_values=True)) if parts.query else {},
            headers=request.headers,
            body=request.body,
        )

    def authorization(self, scheme: str = "Bearer") -> str:
        """The credentials of the ``Authorization`` header, if they are of that scheme; else an empty string."""
        given, _, credentials = self.headers.get("Authorization", "").partition(" ")
        return credentials.strip() if given.lower() == scheme.lower() else ""

    def decode(self, kind: type[T]) -> T:
        """The JSON body. Raises 400."""
        try:
            return msgspec.json.decode(self.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise bad_request(f"The request's body can't be read: {error}") from None

    def integer(self, name: str, default: int) -> int:
        """A query parameter. Raises 400."""
        return integer(self.query.get(name, str(default)), name)


def integer(text: str, what: str) -> int:
    """``text`` as a number. Raises 400."""
    try:
        return int(text)
    except ValueError:
        raise bad_request(f"{what} {text!r} is not a number.") from None
