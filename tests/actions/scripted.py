"""A service whose every answer is written down beforehand, and a client in virtual time to call it."""

from __future__ import annotations

import asyncio
import functools
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

import jwt
from multidict import CIMultiDict, CIMultiDictProxy

from runherd.actions import ActionsClient, CallPolicy, Credentials, PersonalAccessToken, RegistrationLimits, UserAgent
from runherd.actions.retry import ONE_ATTEMPT
from runherd.wire.clock import EventLoopClock
from runherd.wire.transport import DEFAULT_TIMEOUTS, Request, Response, ResponseStream, Timeouts
from tests.support.virtual_time import run_in_virtual_time

__all__ = ["SERVICE_URL", "Reply", "Scripted", "Sent", "connect", "error_body", "hang", "reply", "virtual"]

SERVICE_URL = "https://service.example/tenant/123/"

P = ParamSpec("P")
T = TypeVar("T")

Reply = Response | Exception | Callable[[Request], Awaitable[Response]]


def virtual(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Run an async test in virtual time."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return run_in_virtual_time(test(*args, **kwargs))

    return run


def reply(status: int = 200, body: object = None, **headers: str) -> Response:
    """A JSON answer; ``body`` of type ``bytes`` is sent as it is. ``_`` in a header's name stands for ``-``."""
    content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    all_headers = CIMultiDict({"Content-Type": "application/json"})
    all_headers.update({name.replace("_", "-"): value for name, value in headers.items()})
    return Response(status, all_headers, content)


def error_body(name: str, message: str = "it says so", namespace: str = "GitHub.Actions.Runtime.WebApi") -> object:
    """The service's description of an error, 4.2."""
    return {"typeName": f"{namespace}.{name}, {namespace}", "typeKey": name, "message": message, "errorCode": 0}


async def hang(request: Request) -> Response:
    """Never answer."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError("unreachable")


@dataclass(frozen=True)
class Sent:
    """A request, when it came (loop time), and the deadlines that its sender gave it."""

    request: Request
    timeouts: Timeouts
    at: float

    @property
    def method(self) -> str:
        return self.request.method

    @property
    def url(self) -> str:
        return self.request.url

    @property
    def json(self) -> Any:
        return json.loads(self.request.body)

    def header(self, name: str) -> str | None:
        return CIMultiDict(self.request.headers).get(name)


class Streamed:
    """A written answer as a transport hands it over: in pieces."""

    def __init__(self, response: Response) -> None:
        self._body = response.body
        self.status = response.status
        self.headers = CIMultiDictProxy(CIMultiDict(response.headers))

    async def chunks(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._body), 2**16):
            yield self._body[start : start + 2**16]

    async def read(self) -> bytes:
        return self._body


@dataclass
class Scripted:
    """A transport. ``script`` answers calls in their order, ``logins`` those of the login (empty: all succeed)."""

    script: deque[Reply] = field(default_factory=deque)
    logins: deque[Reply] = field(default_factory=deque)
    clock: EventLoopClock = field(default_factory=EventLoopClock)
    admin_token_lifetime: float = 3600.0
    sent: list[Sent] = field(default_factory=list)
    logged_in: list[Sent] = field(default_factory=list)
    closed: bool = False

    def will(self, *replies: Reply) -> None:
        """Answer the next calls like this."""
        self.script.extend(replies)

    def admin_token(self) -> str:
        """A fresh one, of which no two are equal."""
        claims = {"exp": int(self.clock.now().timestamp() + self.admin_token_lifetime), "n": len(self.logged_in)}
        return jwt.encode(claims, "a key of 32 bytes that is made up", algorithm="HS256")

    async def request(self, request: Request, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> Response:
        raise AssertionError("the client reads no answer whole")

    @asynccontextmanager
    async def stream(self, request: Request, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> AsyncIterator[ResponseStream]:
        yield Streamed(await self._answer(request, timeouts))

    async def _answer(self, request: Request, timeouts: Timeouts) -> Response:
        sent = Sent(request, timeouts, asyncio.get_running_loop().time())
        if "/_apis/" in request.url or "queue.example" in request.url:
            self.sent.append(sent)
            return await self._perform(self.script.popleft(), request)
        self.logged_in.append(sent)
        if self.logins:
            return await self._perform(self.logins.popleft(), request)
        return self.login_answer(request)

    def login_answer(self, request: Request) -> Response:
        """What a login is answered with when nothing is wrong."""
        if request.url.endswith("/actions/runner-registration"):
            return reply(200, {"url": SERVICE_URL, "token": self.admin_token()})
        if request.url.endswith("/access_tokens"):
            return reply(201, {"token": "installation-token", "expires_at": "2026-01-01T01:00:00Z"})
        return reply(201, {"token": "registration-token"})

    async def _perform(self, answer: Reply, request: Request) -> Response:
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Response) else await answer(request)

    async def close(self) -> None:
        self.closed = True


def connect(
    transport: Scripted,
    *,
    config_url: str = "https://github.com/octo-org",
    credentials: Credentials | None = None,
    policy: CallPolicy = ONE_ATTEMPT,
    max_calls: int = 16,
    registrations: RegistrationLimits | None = None,
) -> ActionsClient:
    """A client of the scripted service."""
    return ActionsClient.connect(
        config_url,
        credentials or PersonalAccessToken("a-token"),
        transport=transport,
        user_agent=UserAgent("tests"),
        clock=transport.clock,
        policy=policy,
        max_calls=max_calls,
        registrations=registrations,
    )
