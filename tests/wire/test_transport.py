"""What holds for every transport: the same calls over the network and in process, with the same outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest
from multidict import CIMultiDict

from runherd.wire.transport import (
    ConnectionLostError,
    DeadlineExceededError,
    Request,
    Response,
    StreamingResponse,
    Timeouts,
)
from tests.wire.conftest import Connect, Skip, following, skip_until_done, soon

JSON = CIMultiDict({"Content-Type": "application/json"})

#: Headers that only a real connection has.
OF_THE_CONNECTION = {"connection", "date", "transfer-encoding"}


def visible(headers: object) -> dict[str, str]:
    assert hasattr(headers, "items")
    return {name.lower(): value for name, value in headers.items() if name.lower() not in OF_THE_CONNECTION}


class Recorder:
    """Answers ``response``, keeps the requests."""

    def __init__(self, response: Response | None = None) -> None:
        self.requests: list[Request] = []
        self._response = response or Response(200)

    async def __call__(self, request: Request) -> Response:
        self.requests.append(request)
        return self._response


class Endless:
    """Answers with a body that goes on until it is closed."""

    def __init__(self, chunk: bytes = b"event\n", pause: bool = True) -> None:
        self._chunk = chunk
        self._pause = pause
        self.sent = 0
        self.began = asyncio.Event()
        self.closed = asyncio.Event()

    async def __call__(self, request: Request) -> StreamingResponse:
        return StreamingResponse(200, self._chunks(), JSON)

    async def _chunks(self) -> AsyncIterator[bytes]:
        try:
            while True:
                self.sent += len(self._chunk)
                self.began.set()
                yield self._chunk
                if self._pause:
                    await asyncio.Event().wait()
        finally:
            self.closed.set()


class Hanging:
    """Never answers."""

    def __init__(self) -> None:
        self.called = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def __call__(self, request: Request) -> Response:
        self.called.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        raise AssertionError("nothing sets the event")


# Requests and responses, byte for byte.


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_a_request_arrives_as_it_was_sent(connect: Connect, method: str) -> None:
    recorder = Recorder()
    transport, url = await connect(recorder)
    path = "/apis/a.b%2Fc/x+y/~z?labelSelector=a%3Db%2Cc+d&watch=1"
    await transport.request(Request(method, url + path, {"Authorization": "Bearer t", "x-odd": "ä; b"}, b"\0body\r\n"))
    (received,) = recorder.requests
    assert received.method == method
    assert received.url == url + path
    assert received.body == b"\0body\r\n"
    assert received.headers["authorization"] == "Bearer t"
    assert received.headers["X-Odd"] == "ä; b"
    assert received.headers["Host"] == url.removeprefix("http://")
    assert received.headers["Content-Length"] == "7"


@pytest.mark.parametrize(
    ("method", "headers", "expected"),
    [
        ("GET", {}, {"accept": "*/*", "user-agent": "runherd"}),
        ("GET", {"accept": "a/b", "USER-AGENT": "u"}, {"accept": "a/b", "user-agent": "u"}),
        ("HEAD", {}, {"accept": "*/*", "user-agent": "runherd"}),
        ("DELETE", {}, {"accept": "*/*", "user-agent": "runherd", "content-length": "0"}),
        (
            "POST",
            {},
            {
                "accept": "*/*",
                "user-agent": "runherd",
                "content-length": "0",
                "content-type": "application/octet-stream",
            },
        ),
    ],
)
async def test_a_request_without_a_body_has_these_headers(
    connect: Connect, method: str, headers: dict[str, str], expected: dict[str, str]
) -> None:
    recorder = Recorder()
    transport, url = await connect(recorder)
    await transport.request(Request(method, url, headers))
    received = visible(recorder.requests[0].headers)
    received.pop("accept-encoding", None)  # what aiohttp can undo, and in process there is nothing to undo
    assert received == {"host": url.removeprefix("http://"), **expected}


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        ("", "/"),
        ("/", "/"),
        ("?a=b", "/?a=b"),
        ("/a/../b//c/.", "/a/../b//c/."),
        ("/a?b=c?d#fragment", "/a?b=c?d"),
        ("/a;b,c:d@e!$&'()*=", "/a;b,c:d@e!$&'()*="),
        ("/%zz?q=%", "/%zz?q=%"),
    ],
)
async def test_the_path_is_neither_decoded_nor_tidied(connect: Connect, sent: str, received: str) -> None:
    recorder = Recorder()
    transport, url = await connect(recorder)
    await transport.request(Request("GET", url + sent))
    assert recorder.requests[0].url == url + received


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/only/a/path?token=secret",
        "ftp://127.0.0.1/?token=secret",
        "http://user:secret@127.0.0.1/",
        "http:///path?token=secret",
        "http://127.0.0.1:0/?token=secret",
        "http://127.0.0.1:65536/?token=secret",
        "http://127.0.0.1/a b?token=secret",
        "http://127.0.0.1/?token=secret\r\nX-Injected: 1",
        "http://127.0.0.1/ä?token=secret",
        "http://[::1/?token=secret",
    ],
)
async def test_a_url_that_cannot_be_called_is_an_error_that_does_not_show_it(connect: Connect, url: str) -> None:
    transport, _ = await connect(Recorder())
    with pytest.raises(ValueError, match=r"URL|port") as raised:
        await transport.request(Request("GET", url))
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("method", "response", "body", "headers"),
    [
        ("GET", Response(200), b"", {"content-length": "0"}),
        (
            "GET",
            Response(201, JSON, b"{}"),
            b"{}",
            {"content-length": "2", "content-type": "application/json"},
        ),
        ("GET", Response(200, body=b"x"), b"x", {"content-length": "1", "content-type": "application/octet-stream"}),
        ("GET", Response(200, CIMultiDict({"Content-Length": "7"}), b"x"), b"x", {"content-length": "1"}),
        ("GET", Response(404, CIMultiDict({"Server": "s"}), b""), b"", {"server": "s"}),
        ("GET", Response(499, body=b"odd"), b"odd", {}),
        ("GET", Response(204, JSON, b"dropped"), b"", {"content-type": "application/json"}),
        ("GET", Response(304, CIMultiDict({"ETag": '"1"'}), b"dropped"), b"", {"etag": '"1"'}),
        ("HEAD", Response(200, JSON, b"dropped"), b"", {"content-length": "7", "content-type": "application/json"}),
        ("HEAD", Response(200, CIMultiDict({"Content-Length": "7"})), b"", {"content-length": "7"}),
        ("HEAD", Response(404), b"", {}),
        ("DELETE", Response(200, body=b"\0" * 100_000), b"\0" * 100_000, {"content-length": "100000"}),
    ],
)
async def test_a_response_arrives_as_http_has_it(
    connect: Connect, method: str, response: Response, body: bytes, headers: dict[str, str]
) -> None:
    transport, url = await connect(Recorder(response))
    received = await transport.request(Request(method, url))
    assert received.status == response.status
    assert received.body == body
    assert visible(received.headers).items() >= headers.items()
    assert received.headers["Server"] in ("runherd", "s")
    if response.status == 204:
        assert "content-length" not in received.headers


async def test_headers_may_come_more_than_once(connect: Connect) -> None:
    sent = CIMultiDict([("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("Warning", "299")])
    transport, url = await connect(Recorder(Response(200, sent)))
    received = await transport.request(Request("GET", url))
    assert received.headers.getall("set-cookie") == ["a=1", "b=2"]
    again = await transport.request(Request("GET", url))
    assert again.status == 200


async def test_cookies_are_not_kept(connect: Connect) -> None:
    recorder = Recorder(Response(200, CIMultiDict({"Set-Cookie": "a=1; Path=/"})))
    transport, url = await connect(recorder)
    url = url.replace("127.0.0.1", "localhost")  # aiohttp's cookie jar would ignore addresses by itself
    await transport.request(Request("GET", url))
    await transport.request(Request("GET", url))
    assert "Cookie" not in recorder.requests[1].headers


async def test_large_bodies_go_both_ways(connect: Connect) -> None:
    async def echo(request: Request) -> Response:
        return Response(200, body=request.body)

    transport, url = await connect(echo)
    body = bytes(range(256)) * (2**14)
    assert len(body) == 2**22
    assert (await transport.request(Request("PUT", url, {}, body))).body == body


async def test_a_body_over_the_limit_does_not_reach_the_handler(connect: Connect) -> None:
    recorder = Recorder()

    def refuse(request: Request) -> Response:
        return Response(413, JSON, f"{request.method} {request.url} {len(request.body)}".encode())

    transport, url = await connect(recorder, body_limit=1000, too_large=refuse)
    assert (await transport.request(Request("POST", f"{url}/x", {}, b"x" * 1000))).status == 200
    refused = await transport.request(Request("POST", f"{url}/x", {}, b"x" * 1001))
    assert refused.status == 413
    assert refused.headers["Content-Type"] == "application/json"
    assert refused.body == f"POST {url}/x 0".encode()
    assert len(recorder.requests) == 1


async def test_a_body_over_the_limit_is_refused_in_plain_text_by_default(connect: Connect) -> None:
    transport, url = await connect(Recorder(), body_limit=10)
    refused = await transport.request(Request("POST", url, {}, b"x" * 11))
    assert (refused.status, refused.body) == (413, b"413 Request Entity Too Large\n")


async def test_a_handler_that_fails_is_logged_and_answered_for(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(request: Request) -> Response:
        raise KeyError("why")

    transport, url = await connect(fail)
    response = await transport.request(Request("GET", f"{url}/path?token=secret", {"Authorization": "secret"}))
    assert (response.status, response.body) == (500, b"500 Internal Server Error\n")
    assert visible(response.headers) == {
        "content-length": "26",
        "content-type": "text/plain; charset=utf-8",
        "server": "runherd",
    }
    (record,) = (record for record in caplog.records if record.levelno >= logging.ERROR)
    assert record.getMessage() == f"the handler failed on GET {url}/path"
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], KeyError)


async def test_a_timeout_of_the_handlers_own_is_a_failure_like_any_other(connect: Connect) -> None:
    async def fail(request: Request) -> Response:
        raise TimeoutError

    transport, url = await connect(fail)
    assert (await transport.request(Request("GET", url))).status == 500


async def test_many_calls_at_once_get_their_own_answers(connect: Connect) -> None:
    async def echo(request: Request) -> Response:
        await asyncio.sleep(0)
        return Response(200, body=request.url.rpartition("/")[2].encode() + request.body)

    transport, url = await connect(echo)
    requests = [Request("POST", f"{url}/{number}", {}, b"!" * number) for number in range(300)]
    responses = await asyncio.gather(*map(transport.request, requests))
    assert [response.body for response in responses] == [b"%d%s" % (n, b"!" * n) for n in range(300)]


# Streams.


async def chunks_of(parts: list[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_a_stream_has_its_head_before_its_body(connect: Connect) -> None:
    go_on = asyncio.Event()

    async def parts() -> AsyncIterator[bytes]:
        await go_on.wait()
        yield b"body"

    async def handler(request: Request) -> StreamingResponse:
        return StreamingResponse(202, parts(), JSON)

    transport, url = await connect(handler)
    async with transport.stream(Request("GET", url)) as stream:
        assert stream.status == 202
        assert visible(stream.headers) == {"content-type": "application/json", "server": "runherd"}
        go_on.set()
        assert [chunk async for chunk in stream.chunks()] == [b"body"]


@pytest.mark.parametrize("size", [1, 2**16, 5 * 2**20])
async def test_a_stream_carries_lines_of_any_length(connect: Connect, size: int) -> None:
    lines = [b"%d" % number * size + b"\n" for number in range(3)]

    async def handler(request: Request) -> StreamingResponse:
        return StreamingResponse(200, chunks_of(lines))

    transport, url = await connect(handler)
    async with transport.stream(Request("GET", url)) as stream:
        received = b"".join([chunk async for chunk in stream.chunks()])
    assert received == b"".join(lines)


async def test_an_empty_chunk_does_not_end_a_stream(connect: Connect) -> None:
    async def handler(request: Request) -> StreamingResponse:
        return StreamingResponse(200, chunks_of([b"a", b"", b"b"]))

    transport, url = await connect(handler)
    assert (await transport.request(Request("GET", url))).body == b"ab"


async def test_a_stream_may_be_answered_with_a_whole_response(connect: Connect) -> None:
    transport, url = await connect(Recorder(Response(410, JSON, b'{"reason":"Expired"}')))
    async with transport.stream(Request("GET", url)) as stream:
        assert stream.status == 410
        assert await stream.read() == b'{"reason":"Expired"}'


async def test_read_gives_the_rest_of_a_stream(connect: Connect) -> None:
    async def handler(request: Request) -> StreamingResponse:
        return StreamingResponse(200, chunks_of([b"a" * 10, b"b" * 2**18]))

    transport, url = await connect(handler)
    async with transport.stream(Request("GET", url)) as stream:
        first = await anext(aiter(stream.chunks()))
        assert first + await stream.read() == b"a" * 10 + b"b" * 2**18


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)])
async def test_a_stream_without_a_body_is_closed_at_once(connect: Connect, method: str, status: int) -> None:
    closed = asyncio.Event()

    class Chunks:
        def __aiter__(self) -> Chunks:
            return self

        async def __anext__(self) -> bytes:
            raise AssertionError("nobody reads this")

        async def aclose(self) -> None:
            closed.set()

    async def handler(request: Request) -> StreamingResponse:
        return StreamingResponse(status, Chunks())

    transport, url = await connect(handler)
    response = await transport.request(Request(method, url))
    assert (response.status, response.body) == (status, b"")
    assert closed.is_set()


async def test_leaving_a_stream_closes_its_chunks(connect: Connect) -> None:
    endless = Endless()
    transport, url = await connect(endless)
    async with transport.stream(Request("GET", url)) as stream:
        assert await anext(aiter(stream.chunks())) == b"event\n"
    await soon(endless.closed)


async def test_leaving_a_stream_unread_closes_its_chunks(connect: Connect) -> None:
    endless = Endless()
    transport, url = await connect(endless)
    async with transport.stream(Request("GET", url)):
        pass
    await soon(endless.closed)


async def test_a_client_that_does_not_read_slows_the_handler_down(connect: Connect) -> None:
    endless = Endless(chunk=b"x" * 2**16, pause=False)
    transport, url = await connect(endless)
    async with transport.stream(Request("GET", url)) as stream:
        chunks = aiter(stream.chunks())
        received = len(await anext(chunks))
        sent = -1
        while sent != endless.sent:  # until it has come to a stop
            sent = endless.sent
            for _ in range(100):
                await asyncio.sleep(0)
        assert sent < received + 2**25
        while received < 2**26:
            received += len(await anext(chunks))
        assert endless.sent > sent
    await soon(endless.closed)


async def test_a_handler_that_fails_within_its_answer_cuts_the_connection(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"first"
        await read.wait()
        raise KeyError("why")

    async def handler(request: Request) -> StreamingResponse:
        return StreamingResponse(200, parts())

    read = asyncio.Event()
    transport, url = await connect(handler)
    async with transport.stream(Request("GET", f"{url}/path?token=secret")) as stream:
        chunks = aiter(stream.chunks())
        assert await anext(chunks) == b"first"
        read.set()
        with pytest.raises(ConnectionLostError) as raised:
            await anext(chunks)
    assert raised.value.request_sent
    assert str(raised.value) == f"GET {url}/path: the connection ended before the response did"
    assert f"the handler failed within its answer to GET {url}/path" in caplog.messages
    with pytest.raises(ConnectionLostError):
        await transport.request(Request("GET", url))


# Ends: deadlines, cancellation, closing.


async def test_cancelling_a_call_cancels_its_handler(connect: Connect) -> None:
    hanging = Hanging()
    transport, url = await connect(hanging)
    call = asyncio.create_task(transport.request(Request("GET", url)))
    await soon(hanging.called)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await soon(hanging.cancelled)


DEADLINES = pytest.mark.parametrize(
    ("timeouts", "text"),
    [
        (Timeouts(total=1000), "not answered within 1000 s"),
        (Timeouts(total=None, idle=1000), "nothing came for 1000 s"),
        (Timeouts(total=1000, idle=5000), "not answered within 1000 s"),
        (Timeouts(total=5000, idle=1000), "nothing came for 1000 s"),
    ],
)


@DEADLINES
async def test_a_deadline_before_the_answer_cancels_the_handler(
    connect: Connect, skip: Skip, timeouts: Timeouts, text: str
) -> None:
    hanging = Hanging()
    transport, url = await connect(hanging)
    call = asyncio.create_task(transport.request(Request("GET", f"{url}/path?token=secret"), timeouts))
    await soon(hanging.called)
    skip(999)
    await asyncio.sleep(0)
    assert not call.done()
    skip(2)
    with pytest.raises(DeadlineExceededError) as raised:
        await call
    assert str(raised.value) == f"GET {url}/path: {text}"
    assert raised.value.request_sent
    assert call.cancelling() == 0
    await soon(hanging.cancelled)


@DEADLINES
async def test_a_deadline_within_the_answer_closes_its_chunks(
    connect: Connect, skip: Skip, timeouts: Timeouts, text: str
) -> None:
    endless = Endless()
    transport, url = await connect(endless)
    async with transport.stream(Request("GET", url), timeouts) as stream:
        chunks = aiter(stream.chunks())
        assert await anext(chunks) == b"event\n"
        waiting = asyncio.create_task(following(chunks))
        await asyncio.sleep(0)
        skip(1001)
        with pytest.raises(DeadlineExceededError) as raised:
            await waiting
    assert str(raised.value) == f"GET {url}/: {text}"
    await soon(endless.closed)


@pytest.mark.parametrize("timeouts", [Timeouts(total=1000), Timeouts(total=None, idle=1000)])
async def test_a_deadline_holds_for_a_body_that_is_read_whole(connect: Connect, skip: Skip, timeouts: Timeouts) -> None:
    endless = Endless()
    transport, url = await connect(endless)
    call = asyncio.create_task(transport.request(Request("GET", url), timeouts))
    await soon(endless.began)
    await skip_until_done(skip, 1001, call)
    with pytest.raises(DeadlineExceededError):
        await call
    await soon(endless.closed)


async def test_no_deadline_is_no_deadline(connect: Connect) -> None:
    transport, url = await connect(Recorder())
    assert (await transport.request(Request("GET", url), Timeouts(None, None, None))).status == 200


async def test_a_deadline_that_has_passed_before_the_call_is_a_deadline(connect: Connect) -> None:
    transport, url = await connect(Hanging())
    with pytest.raises(DeadlineExceededError):
        await transport.request(Request("GET", url), Timeouts(total=0))


async def test_closing_ends_the_calls_in_flight_and_all_later_ones(connect: Connect) -> None:
    hanging = Hanging()
    transport, url = await connect(hanging)
    call = asyncio.create_task(transport.request(Request("POST", f"{url}/a?token=secret")))
    await soon(hanging.called)
    await transport.close()
    with pytest.raises(ConnectionLostError) as raised:
        await call
    assert raised.value.request_sent
    assert str(raised.value) == f"POST {url}/a: the transport is closed"
    assert call.cancelling() == 0
    await soon(hanging.cancelled)
    with pytest.raises(ConnectionLostError) as refused:
        await transport.request(Request("GET", url))
    assert not refused.value.request_sent
    with pytest.raises(ConnectionLostError):
        async with transport.stream(Request("GET", url)):
            pass
    await transport.close()


async def test_closing_ends_the_streams_that_are_open(connect: Connect) -> None:
    endless = Endless()
    transport, url = await connect(endless)
    async with transport.stream(Request("GET", url)) as stream:
        chunks = aiter(stream.chunks())
        await anext(chunks)
        waiting = asyncio.create_task(following(chunks))
        await asyncio.sleep(0)
        await transport.close()
        with pytest.raises(ConnectionLostError, match="the transport is closed"):
            await waiting
    await soon(endless.closed)


async def test_closing_ends_a_body_that_is_being_read_whole(connect: Connect) -> None:
    endless = Endless()
    transport, url = await connect(endless)
    call = asyncio.create_task(transport.request(Request("GET", url)))
    await soon(endless.began)
    await transport.close()
    with pytest.raises(ConnectionLostError, match="the transport is closed"):
        await call
    await soon(endless.closed)


async def test_a_caller_that_is_cancelled_while_the_transport_closes_is_cancelled(connect: Connect) -> None:
    hanging = Hanging()
    transport, url = await connect(hanging)
    call = asyncio.create_task(transport.request(Request("GET", url)))
    await soon(hanging.called)
    call.cancel()
    await transport.close()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_neither_requests_nor_responses_show_secrets() -> None:
    headers = CIMultiDict({"Authorization": "secret"})
    for shown in (
        Request("GET", "http://h/", headers, b"secret"),
        Response(200, headers, b"secret"),
        StreamingResponse(200, chunks_of([b"secret"]), headers),
    ):
        assert "secret" not in repr(shown)
