"""What only a server has: addresses, raw requests, clients that vanish, closing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from runherd.wire.network import NetworkTransport
from runherd.wire.server import Server
from runherd.wire.transport import ConnectError, ConnectionLostError, Request, Response, StreamingResponse
from tests.wire.conftest import soon


async def echo_url(request: Request) -> Response:
    return Response(200, body=f"{request.method} {request.url}".encode())


class Pausing:
    """Answers once :attr:`go_on` is set."""

    def __init__(self) -> None:
        self.called = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.go_on = asyncio.Event()

    async def __call__(self, request: Request) -> Response:
        self.called.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return Response(200, body=b"at last")


async def raw(server: Server, request: bytes) -> bytes:
    """Everything that comes back for ``request``, until the server hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request)
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    return answer


async def test_it_takes_a_free_port_of_loopback() -> None:
    server = Server(echo_url)
    assert server.port == 0
    port = await server.start()
    assert port == server.port != 0
    assert server.url == f"http://127.0.0.1:{port}"
    await server.close()


async def test_it_takes_the_address_it_is_given() -> None:
    first, second = Server(echo_url), Server(echo_url)
    port = await first.start("::1")
    assert first.url == f"http://[::1]:{port}"
    transport = NetworkTransport()
    response = await transport.request(Request("GET", f"{first.url}/x"))
    assert response.body == f"GET {first.url}/x".encode()
    with pytest.raises(OSError, match="address already in use"):
        await second.start("::1", port)
    await transport.close()
    await first.close()
    await second.close()  # never started: nothing to do


@pytest.mark.parametrize(
    ("request_line", "headers", "url"),
    [
        ("GET /a?b HTTP/1.1", "Host: other.test:99\r\n", "http://other.test:99/a?b"),
        ("GET http://third.test/a HTTP/1.1", "Host: other.test\r\n", "http://third.test/a"),
        ("GET /a HTTP/1.0", "", "http://{address}/a"),
    ],
)
async def test_the_url_is_the_clients(request_line: str, headers: str, url: str) -> None:
    server = Server(echo_url)
    await server.start()
    answer = await raw(server, f"{request_line}\r\n{headers}Connection: close\r\n\r\n".encode())
    expected = url.format(address=server.url.removeprefix("http://"))
    assert answer.endswith(f"\r\n\r\nGET {expected}".encode())
    await server.close()


@pytest.mark.parametrize(
    "request_line",
    ["OPTIONS * HTTP/1.1", "CONNECT other.test:443 HTTP/1.1", "GET /ä HTTP/1.1", "GET ftp://h/ HTTP/1.1"],
)
async def test_targets_that_are_no_urls_are_refused(request_line: str) -> None:
    server = Server(echo_url)
    await server.start()
    answer = await raw(server, f"{request_line}\r\nHost: h\r\nConnection: close\r\n\r\n".encode())
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.0 400 "))
    await server.close()


async def test_a_host_that_is_no_host_is_refused() -> None:
    server = Server(echo_url)
    await server.start()
    answer = await raw(server, b"GET / HTTP/1.1\r\nHost: user:pass@h\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    await server.close()


async def test_the_software_is_not_told() -> None:
    server = Server(echo_url)
    await server.start()
    answer = await raw(server, b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    assert b"Server: runherd\r\n" in answer
    assert b"aiohttp" not in answer
    assert b"Python" not in answer
    await server.close()


async def test_a_body_in_chunks_counts_against_the_limit() -> None:
    """The server can't know its length beforehand."""
    server = Server(echo_url, body_limit=10)
    await server.start()
    head = b"POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert (await raw(server, head + b"a\r\n0123456789\r\n0\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    assert (await raw(server, head + b"b\r\n0123456789a\r\n0\r\n\r\n")).startswith(b"HTTP/1.1 413 ")
    await server.close()


async def test_a_client_may_ask_before_it_sends_a_body() -> None:
    server = Server(echo_url)
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
    async with asyncio.timeout(10):
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"body")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")
    writer.close()
    await server.close()


async def test_requests_that_cannot_be_parsed_are_not_quoted(caplog: pytest.LogCaptureFixture) -> None:
    server = Server(echo_url)
    await server.start()
    answer = await raw(server, b"GET / HTTP/1.1\r\nHost: h\r\nAuthorization : Bearer secret\r\n\r\n")
    assert answer.startswith(b"HTTP/1.0 400 ")
    assert "Error handling request from 127.0.0.1" in caplog.text
    assert "secret" not in caplog.text
    await server.close()


async def test_a_client_that_vanishes_cancels_the_handler() -> None:
    pausing = Pausing()
    server = Server(pausing)
    await server.start()
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    await soon(pausing.called)
    writer.transport.abort()
    await soon(pausing.cancelled)
    await server.close()


async def test_a_client_that_vanishes_closes_the_chunks() -> None:
    closed = asyncio.Event()

    async def chunks() -> AsyncIterator[bytes]:
        try:
            yield b"first"
            await asyncio.Event().wait()
        finally:
            closed.set()

    async def handler(request: Request) -> StreamingResponse:
        return StreamingResponse(200, chunks())

    server = Server(handler)
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    await reader.readuntil(b"first")
    writer.transport.abort()
    await soon(closed)
    await server.close()


async def test_a_client_of_http_1_0_gets_a_stream() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"

    async def handler(request: Request) -> StreamingResponse:
        return StreamingResponse(200, chunks())

    server = Server(handler)
    await server.start()
    answer = await raw(server, b"GET / HTTP/1.0\r\n\r\n")
    assert answer.endswith(b"\r\n\r\nab")
    await server.close()


# Closing.


async def test_closing_lets_calls_end() -> None:
    pausing = Pausing()
    server = Server(pausing)
    await server.start()
    transport = NetworkTransport()
    call = asyncio.create_task(transport.request(Request("GET", server.url)))
    await soon(pausing.called)
    closing = asyncio.create_task(server.close())
    await asyncio.sleep(0)
    pausing.go_on.set()
    assert (await call).body == b"at last"
    await closing
    await transport.close()
    late = NetworkTransport()
    with pytest.raises(ConnectError):
        await late.request(Request("GET", server.url))
    await late.close()


async def test_closing_cuts_calls_that_do_not_end() -> None:
    pausing = Pausing()
    server = Server(pausing)
    await server.start()
    transport = NetworkTransport()
    call = asyncio.create_task(transport.request(Request("GET", server.url)))
    await soon(pausing.called)
    await server.close(deadline=0.05)
    assert pausing.cancelled.is_set()
    with pytest.raises(ConnectionLostError):
        await call
    await transport.close()


async def test_closing_cuts_streams_at_once() -> None:
    closed = asyncio.Event()

    async def chunks() -> AsyncIterator[bytes]:
        try:
            yield b"first"
            await asyncio.Event().wait()
        finally:
            closed.set()

    async def handler(request: Request) -> StreamingResponse:
        return StreamingResponse(200, chunks())

    server = Server(handler)
    await server.start()
    transport = NetworkTransport()
    async with transport.stream(Request("GET", server.url)) as stream:
        received = aiter(stream.chunks())
        assert await anext(received) == b"first"
        async with asyncio.timeout(10):
            await server.close(deadline=1000)
        assert closed.is_set()
        with pytest.raises(ConnectionLostError):
            await anext(received)
    await transport.close()


async def test_a_handler_may_close_its_server() -> None:
    async def handler(request: Request) -> Response:
        closing.append(asyncio.create_task(server.close()))
        await asyncio.sleep(0)
        return Response(200, body=b"goodbye")

    closing: list[asyncio.Task[None]] = []
    server = Server(handler)
    await server.start()
    transport = NetworkTransport()
    assert (await transport.request(Request("GET", server.url))).body == b"goodbye"
    async with asyncio.timeout(10):
        await closing[0]
    await transport.close()


async def test_closing_ends_idle_connections() -> None:
    server = Server(echo_url)
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    await reader.readuntil(b"/")
    async with asyncio.timeout(10):
        await server.close(deadline=1000)
        await reader.read()
    writer.close()
    await server.close()
