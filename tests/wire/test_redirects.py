from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from multidict import CIMultiDict

from runherd.wire.in_process import InProcessTransport
from runherd.wire.redirects import RedirectError, RedirectingTransport
from runherd.wire.transport import DeadlineExceededError, Request, Response, Timeouts
from tests.support.virtual_time import run_in_virtual_time

HEADERS = {"Authorization": "Bearer t", "Cookie": "c", "Content-Type": "a/b", "X-Other": "x", "Host": "elsewhere"}


class Site:
    """Answers each URL as told, with 200 where nothing is told; keeps the requests."""

    def __init__(self, redirects: dict[str, tuple[int, str | None]]) -> None:
        self._redirects = redirects
        self.requests: list[Request] = []

    async def __call__(self, request: Request) -> Response:
        self.requests.append(request)
        status, location = self._redirects.get(request.url, (200, None))
        return Response(status, CIMultiDict({"Location": location} if location is not None else {}), b"body")

    @property
    def visited(self) -> list[str]:
        return [f"{request.method} {request.url} {request.body.decode()}".strip() for request in self.requests]


def follow(site: Site, limit: int = 10) -> RedirectingTransport:
    return RedirectingTransport(InProcessTransport(site), limit=limit)


@pytest.mark.parametrize(
    ("method", "status", "second"),
    [
        ("GET", 301, "GET http://a/2"),
        ("GET", 302, "GET http://a/2"),
        ("HEAD", 303, "HEAD http://a/2"),
        ("POST", 301, "GET http://a/2"),
        ("POST", 302, "GET http://a/2"),
        ("PATCH", 303, "GET http://a/2"),
        ("DELETE", 302, "GET http://a/2"),
        ("POST", 307, "POST http://a/2 sent"),
        ("PATCH", 308, "PATCH http://a/2 sent"),
    ],
)
async def test_methods_and_bodies(method: str, status: int, second: str) -> None:
    site = Site({"http://a/1": (status, "/2")})
    body = b"" if method in ("GET", "HEAD") else b"sent"
    response = await follow(site).request(Request(method, "http://a/1", HEADERS, body))
    assert response.status == 200
    assert site.visited[1:] == [second]
    assert site.requests[1].headers["X-Other"] == "x"
    assert site.requests[1].headers["Host"] == "a"
    keeps_body = second.endswith("sent")
    assert (site.requests[1].headers.get("Content-Type") == "a/b") is keeps_body


@pytest.mark.parametrize(
    ("location", "keeps_credentials"),
    [
        ("/2", True),
        ("2?q", True),
        ("//example.com/2", True),
        ("https://example.com/2", True),
        ("http://example.com:8080/2", True),
        ("http://sub.example.com/2", True),
        ("http://notexample.com/2", False),
        ("http://example.org/2", False),
        ("http://com/2", False),
        ("http://10.0.0.1/2", False),
    ],
)
async def test_credentials_stay_within_the_first_domain(location: str, keeps_credentials: bool) -> None:
    site = Site({"http://example.com/1": (302, location)})
    await follow(site).request(Request("GET", "http://example.com/1", HEADERS))
    assert len(site.requests) == 2
    for name in ("Authorization", "Cookie"):
        assert (name in site.requests[1].headers) is keeps_credentials


async def test_credentials_once_dropped_stay_dropped() -> None:
    site = Site({"http://a/1": (302, "http://b/2"), "http://b/2": (302, "http://a/3")})
    await follow(site).request(Request("GET", "http://a/1", HEADERS))
    assert site.visited == ["GET http://a/1", "GET http://b/2", "GET http://a/3"]
    assert "Authorization" not in site.requests[2].headers


@pytest.mark.parametrize(("status", "location"), [(302, None), (302, ""), (300, "/2"), (304, "/2"), (200, "/2")])
async def test_what_is_not_a_redirect_is_the_response(status: int, location: str | None) -> None:
    site = Site({"http://a/1": (status, location)})
    assert (await follow(site).request(Request("GET", "http://a/1"))).status == status
    assert len(site.requests) == 1


async def test_a_loop_ends() -> None:
    """Ten requests, as with Go's default."""
    site = Site({"http://a/1": (302, "/1")})
    with pytest.raises(RedirectError, match="redirected too often") as raised:
        await follow(site).request(Request("GET", "http://a/1"))
    assert raised.value.request_sent
    assert len(site.requests) == 10


@pytest.mark.parametrize("location", ["ftp://a/", "mailto:a@b", "http://u:secret@a/", "http://a:0/?secret", "http://"])
async def test_a_location_that_cannot_be_called(location: str) -> None:
    site = Site({"http://a/1?secret": (302, location)})
    with pytest.raises(RedirectError) as raised:
        await follow(site).request(Request("GET", "http://a/1?secret"))
    assert "secret" not in str(raised.value)


async def test_streams_follow_too() -> None:
    site = Site({"http://a/1": (307, "/2"), "http://a/2": (302, "/3")})
    async with follow(site).stream(Request("POST", "http://a/1", {}, b"sent")) as stream:
        assert stream.status == 200
        assert await stream.read() == b"body"
    assert site.visited == ["POST http://a/1 sent", "POST http://a/2 sent", "GET http://a/3"]


def test_the_deadline_holds_for_the_whole_chain() -> None:
    async def slow(request: Request) -> Response:
        await asyncio.sleep(4)
        return Response(302, CIMultiDict({"Location": "/"}))

    async def main() -> float:
        with pytest.raises(DeadlineExceededError):
            await RedirectingTransport(InProcessTransport(slow)).request(
                Request("GET", "http://a/"), Timeouts(total=10)
            )
        return asyncio.get_running_loop().time()

    assert run_in_virtual_time(main()) == 10


async def test_closing_closes_what_is_below() -> None:
    site: Callable[..., object] = Site({})
    below = InProcessTransport(site)  # type: ignore[arg-type]  # a Site is a handler
    await RedirectingTransport(below).close()
    with pytest.raises(Exception, match="closed"):
        await below.request(Request("GET", "http://a/"))
