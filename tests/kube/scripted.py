"""An API server that answers as a test tells it to, and a client of it."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from random import Random
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from multidict import CIMultiDict

from runherd.kube.client import Client
from runherd.kube.limiter import WriteLimiter
from runherd.wire.clock import EventLoopClock
from runherd.wire.in_process import InProcessTransport
from runherd.wire.transport import (
    DEFAULT_TIMEOUTS,
    Request,
    Response,
    ResponseStream,
    StreamingResponse,
    Timeouts,
    TransportError,
)

__all__ = [
    "BASE_URL",
    "Script",
    "answer",
    "client_of",
    "path_of",
    "pod",
    "query_of",
    "refusal",
    "stream_of",
    "watch_line",
]

BASE_URL = "http://kubernetes.test"

Answer = Response | StreamingResponse | TransportError


class Script:
    """A transport that gives the ``answers`` in turn; an error among them is raised. Keeps the requests it got."""

    def __init__(self, *answers: Answer | Callable[[Request], Answer]) -> None:
        self.answers = deque(answers)
        self.requests: list[Request] = []
        #: When each request came, in the loop's time.
        self.timeouts: list[Timeouts] = []
        self._inner = InProcessTransport(self._handle)
        self._next: Response | StreamingResponse | None = None

    async def request(self, request: Request, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> Response:
        self._take(request, timeouts)
        return await self._inner.request(request, timeouts)

    @asynccontextmanager
    async def stream(self, request: Request, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> AsyncIterator[ResponseStream]:
        self._take(request, timeouts)
        async with self._inner.stream(request, timeouts) as stream:
            yield stream

    async def close(self) -> None:
        await self._inner.close()

    def _take(self, request: Request, timeouts: Timeouts) -> None:
        self.requests.append(request)
        self.timeouts.append(timeouts)
        assert self.answers, f"unexpected request: {request}"
        answer = self.answers.popleft()
        if callable(answer):
            answer = answer(request)
        if isinstance(answer, TransportError):
            raise answer
        self._next = answer

    async def _handle(self, request: Request) -> Response | StreamingResponse:
        answer, self._next = self._next, None
        assert answer is not None
        return answer


def client_of(script: Script, *, limiter: WriteLimiter | None = None, **options: Any) -> Client:
    """A client that speaks to ``script``, in the running loop's time."""
    return Client(
        script,
        BASE_URL,
        limiter=limiter or WriteLimiter(),
        clock=EventLoopClock(),
        random=Random(7),
        user_agent="runherd-test",
        **options,
    )


def answer(body: Any, status: int = 200, headers: Iterable[tuple[str, str]] = ()) -> Response:
    """``body`` as JSON; bytes go out as they are."""
    encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Response(status, CIMultiDict([("Content-Type", "application/json"), *headers]), encoded)


def refusal(code: int, reason: str, message: str = "no", *, retry_after: str = "", **details: Any) -> Response:
    """A Status."""
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "reason": reason,
        "message": message,
        "code": code,
        "details": details,
    }
    return answer(status, code, [("Retry-After", retry_after)] if retry_after else [])


def stream_of(*chunks: bytes, end: BaseException | None = None) -> StreamingResponse:
    """A stream of ``chunks``; then it ends, or raises ``end`` on the server's side."""

    async def generate() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk
        if end is not None:
            raise end

    return StreamingResponse(200, generate())


def watch_line(type_: str, object_: dict[str, Any]) -> bytes:
    return json.dumps({"type": type_, "object": object_}).encode() + b"\n"


def pod(name: str, version: str = "1", **more: Any) -> dict[str, Any]:
    """A pod as the server sends it."""
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": version}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, **more}


def path_of(request: Request) -> str:
    return urlsplit(request.url).path


def query_of(request: Request) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(request.url).query, keep_blank_values=True))
