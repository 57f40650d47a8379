"""What happens around a :data:`~runherd.wire.transport.Handler`, whether a network is between it and its client or not.

The server and the in-process transport both go through here; that is how they come to the same bytes and status codes.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

from multidict import CIMultiDict, CIMultiDictProxy

from runherd.wire.target import describe
from runherd.wire.transport import Handler, Request, Response, StreamingResponse

__all__ = ["TEXT", "answer", "close_chunks"]

log = logging.getLogger(__name__)

#: Headers of the few answers that we make ourselves.
TEXT = CIMultiDictProxy(CIMultiDict({"Content-Type": "text/plain; charset=utf-8"}))


async def answer(handler: Handler, request: Request) -> Response | StreamingResponse:
    """Call ``handler`` and complete what it answers: headers that HTTP wants are there, bodies it forbids are not.

    A handler that raises is logged, and answered for with 500 and a text that says nothing of the error.
    """
    try:
        response = await handler(request)
    except Exception:
        log.exception("the handler failed on %s", describe(request))
        return _completed(Response(500, TEXT, b"500 Internal Server Error\n"), request.method)
    if isinstance(response, StreamingResponse):
        if _has_body(request.method, response.status):
            headers = CIMultiDict(response.headers)
            headers.popall("Content-Length", None)
            headers.setdefault("Content-Type", "application/octet-stream")
            return StreamingResponse(response.status, response.chunks, headers)
        await close_chunks(response.chunks)
        response = Response(response.status, response.headers)
    return _completed(response, request.method)


def _has_body(method: str, status: int) -> bool:
    return method != "HEAD" and status not in (204, 304)


def _completed(response: Response, method: str) -> Response:
    headers = CIMultiDict(response.headers)
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
