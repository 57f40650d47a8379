"""What happens around a :data:`~runherd.wire.transport.Handler`, whether a network is between it and its client or not.

The server and the in-process transport both go through here; that is how they come to the same bytes and status codes.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable

from multidict import CIMultiDict, CIMultiDictProxy

from runherd.wire.target import describe
from runherd.wire.transport import Handler, Request, Response, StreamingResponse

__all__ = ["DEFAULT_BODY_LIMIT", "Answering", "close_chunks", "too_large"]

#: Bytes of a request's body that are accepted unless a server says otherwise.
DEFAULT_BODY_LIMIT = 2**22

log = logging.getLogger(__name__)

_TEXT = CIMultiDictProxy(CIMultiDict({"Content-Type": "text/plain; charset=utf-8"}))


def too_large(request: Request) -> Response:
    """The answer to a request whose body is larger than what is accepted, where the service has no form of its own."""
    return Response(413, _TEXT, b"413 Request Entity Too Large\n")


class Answering:
    """A handler with the parts of HTTP around it that aren't its own affair.

    A handler that raises is logged, and answered for with 500 and a text that says nothing of the error. A body larger
    than ``body_limit`` bytes never reaches the handler: ``refuse`` makes the answer, from the request without its body.
    What is answered gets the headers that HTTP wants and loses the body that HTTP forbids (HEAD, 204, 304).
    """

    def __init__(self, handler: Handler, body_limit: int, refuse: Callable[[Request], Response]) -> None:
        self._handler = handler
        self._refuse = refuse
        self.body_limit = body_limit

    async def answer(self, request: Request) -> Response | StreamingResponse:
        """Call the handler."""
        if len(request.body) > self.body_limit:
            return self.refuse(request)
        try:
            response = await self._handler(request)
            if not isinstance(response, StreamingResponse):
                return _completed(response, request.method)
            if _has_body(request.method, response.status):
                headers = CIMultiDict(response.headers)
                headers.popall("Content-Length", None)
                headers.setdefault("Content-Type", "application/octet-stream")
                headers.setdefault("Server", "runherd")
                return StreamingResponse(response.status, response.chunks, headers)
            await close_chunks(response.chunks)
            return _completed(Response(response.status, response.headers), request.method)
        except Exception:
            log.exception("the handler failed on %s", describe(request))
            return _completed(Response(500, _TEXT, b"500 Internal Server Error\n"), request.method)

    def refuse(self, request: Request) -> Response:
        """Answer a request whose body is too large."""
        return _completed(self._refuse(Request(request.method, request.url, request.headers)), request.method)


def _has_body(method: str, status: int) -> bool:
    return method != "HEAD" and status not in (204, 304)


def _completed(response: Response, method: str) -> Response:
    headers = CIMultiDict(response.headers)
    headers.setdefault("Server", "runherd")
    if _has_body(method, response.status):
        headers["Content-Length"] = str(len(response.body))
        if response.body:
            headers.setdefault("Content-Type", "application/octet-stream")
        return Response(response.status, headers, response.body)
    if response.status == 204:
        headers.popall("Content-Length", None)
    elif response.body:
        headers["Content-Length"] = str(len(response.body))
    return Response(response.status, headers)


async def close_chunks(chunks: AsyncIterator[bytes]) -> None:
    """Close a handler's iterator where it can be closed (generators can)."""
    aclose = getattr(chunks, "aclose", None)
    if aclose is not None:
        await aclose()
