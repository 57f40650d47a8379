"""The network's own ways to fail, shown by servers that are written for it."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from runherd.wire.network import NetworkTransport
from runherd.wire.transport import (
    ConnectError,
    ConnectionLostError,
    DeadlineExceededError,
    Request,
    Timeouts,
    TransportError,
)
from tests.wire.conftest import Skip, skip_until_done, soon

#: What a server does on each connection.
Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
#: Starts a server with a script; returns its URL.
Listen = Callable[[Script], Awaitable[str]]

SECRETS = {"Authorization": "Bearer secret", "X-Api-Key": "secret"}
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture
async def listen() -> AsyncIterator[Listen]:
    tasks: set[asyncio.Task[None]] = set()
    async with AsyncExitStack() as stack:

        async def listen(script: Script) -> str:
            async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                try:
                    await script(reader, writer)
                except (OSError, EOFError):
                    pass  # the client went away
                finally:
                    writer.close()

            def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                tasks.add(asyncio.create_task(run(reader, writer)))

            server = await asyncio.start_server(accept, "127.0.0.1", 0)
            stack.callback(server.close)
            return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

        yield listen
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def transport() -> AsyncIterator[NetworkTransport]:
    transport = NetworkTransport()
    yield transport
    await transport.close()


async def idle_connections_closed(transport: NetworkTransport) -> None:
    """Wait until the transport's side has heard that the server closed the connections in its pool."""
    for session in transport._sessions.values():
        assert session.connector is not None
        for connections in session.connector._conns.values():
            for protocol, _ in connections:
                if protocol.closed is not None:
                    async with asyncio.timeout(10):
                        await protocol.closed


async def unsent(transport: NetworkTransport) -> asyncio.Transport:
    """Wait until a connection of the transport has bytes on its hands that nobody takes."""
    async with asyncio.timeout(10):
        while True:
            await asyncio.sleep(0)
            for call in transport._calls:
                connection = call.progress.transport
                if connection is not None and connection.get_write_buffer_size() > 0:
                    return connection


async def request_head(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


def reset(writer: asyncio.StreamWriter) -> None:
    """Closing without lingering sends a reset."""
    own: socket.socket = writer.get_extra_info("socket")
    own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    writer.transport.abort()


def secret(url: str, method: str = "POST") -> Request:
    """A request full of what must not show."""
    return Request(method, f"{url}/path?token=secret", SECRETS, b"secret")


def check(error: TransportError, text: str, *, sent: bool) -> None:
    assert str(error).partition(": ")[2] == text
    assert error.request_sent is sent
    seen: BaseException | None = error
    while seen is not None:  # all that a traceback would show
        assert "secret" not in str(seen)
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)


# Connections that end.


async def test_a_connection_that_is_cut_before_the_answer(listen: Listen, transport: NetworkTransport) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_head(reader)

    url = await listen(script)
    with pytest.raises(ConnectionLostError) as raised:
        await transport.request(secret(url))
    assert str(raised.value).startswith(f"POST {url}/path: ")
    check(raised.value, "the server closed the connection without an answer", sent=True)


async def test_a_connection_that_is_reset_before_the_answer(listen: Listen, transport: NetworkTransport) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_head(reader)
        reset(writer)

    url = await listen(script)
    with pytest.raises(ConnectionLostError) as raised:
        await transport.request(secret(url))
    check(raised.value, "the connection was lost: Connection reset by peer", sent=True)


async def test_a_connection_that_is_reset_while_we_send(listen: Listen, transport: NetworkTransport) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_head(reader)
        reset(writer)

    request = secret(await listen(script))
    request = Request(request.method, request.url, request.headers, b"secret" * 2**21)
    with pytest.raises(ConnectionLostError) as raised:
        await transport.request(request)
    assert "secret" not in str(raised.value)
    assert raised.value.request_sent


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
@pytest.mark.parametrize("streaming", [False, True])
async def test_a_connection_that_is_cut_within_the_answer(
    listen: Listen, transport: NetworkTransport, answer: bytes, streaming: bool
) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_head(reader)
        writer.write(answer)
        await writer.drain()

    async def call() -> None:
        if not streaming:
            await transport.request(secret(url))
            return
        async with transport.stream(secret(url)) as stream:
            assert stream.status == 200
            async for _ in stream.chunks():
                pass

    url = await listen(script)
    with pytest.raises(ConnectionLostError) as raised:
        await call()
    check(raised.value, "the connection ended before the response did", sent=True)


async def test_a_body_that_ends_with_its_connection(listen: Listen, transport: NetworkTransport) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_head(reader)
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nall of it")

    response = await transport.request(Request("GET", await listen(script)))
    assert response.body == b"all of it"


@pytest.mark.parametrize("answer", [b"\x15\x03\x01\x00\x02\x02\x46", b"SSH-2.0-server\r\n", b"HTTP/1.1 secret\r\n\r\n"])
async def test_an_answer_that_is_not_http(listen: Listen, transport: NetworkTransport, answer: bytes) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_head(reader)
        writer.write(answer)
        await writer.drain()
        await reader.read()

    with pytest.raises(TransportError) as raised:
        await transport.request(secret(await listen(script)))
    check(raised.value, "the server's answer is not valid HTTP", sent=True)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "POST"])
async def test_no_call_is_repeated_on_its_own(listen: Listen, transport: NetworkTransport, method: str) -> None:
    """The server closes a kept-alive connection when the next request is on its way: the caller decides."""
    heads: list[bytes] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await request_head(reader))
        writer.write(OK)
        heads.append(await request_head(reader))

    url = await listen(script)
    assert (await transport.request(Request("GET", url))).body == b"ok"
    with pytest.raises(ConnectionLostError) as raised:
        await transport.request(Request(method, f"{url}/again"))
    check(raised.value, "the server closed the connection without an answer", sent=True)
    assert len(heads) == 2


async def test_a_connection_that_was_closed_while_idle_is_not_used(listen: Listen, transport: NetworkTransport) -> None:
    connections = 0

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await request_head(reader)
        writer.write(OK)

    url = await listen(script)
    for _ in range(2):
        assert (await transport.request(Request("POST", url))).body == b"ok"
        await idle_connections_closed(transport)
    assert connections == 2


async def test_connections_are_kept_alive_and_shared_out(listen: Listen, transport: NetworkTransport) -> None:
    connections = 0

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while True:
            await request_head(reader)
            writer.write(OK)

    url = await listen(script)
    for _ in range(5):
        await transport.request(Request("GET", url))
        async with transport.stream(Request("GET", url)) as stream:
            assert await stream.read() == b"ok"
    assert connections == 1
    await asyncio.gather(*(transport.request(Request("GET", url)) for _ in range(7)))
    assert 1 < connections <= 7


# Connections that never are.


async def test_a_server_that_is_not_there(listen: Listen, transport: NetworkTransport) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ConnectError) as raised:
        await transport.request(secret(f"http://127.0.0.1:{port}"))
    check(raised.value, f"no connection to 127.0.0.1:{port}: Connection refused", sent=False)


async def test_a_name_that_nobody_knows(transport: NetworkTransport) -> None:
    with pytest.raises(ConnectError, match=r"no connection to nowhere\.invalid:80: ") as raised:
        await transport.request(secret("http://nowhere.invalid"))
    assert not raised.value.request_sent


async def test_plain_http_from_a_server_that_should_speak_tls(listen: Listen, transport: NetworkTransport) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    url = (await listen(script)).replace("http:", "https:")
    with pytest.raises(ConnectError) as raised:
        await transport.request(secret(url))
    check(raised.value, f"no connection to {url.removeprefix('https://')}: WRONG_VERSION_NUMBER", sent=False)


@pytest.mark.parametrize(
    ("timeouts", "text"),
    [
        (Timeouts(connect=1000, total=None), "no connection within 1000 s"),
        (Timeouts(connect=None, total=1000), "not answered within 1000 s"),
    ],
)
async def test_a_handshake_that_never_ends_meets_the_deadline(
    listen: Listen, transport: NetworkTransport, skip: Skip, timeouts: Timeouts, text: str
) -> None:
    begun = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        begun.set()
        await reader.read()

    url = (await listen(script)).replace("http:", "https:")
    call = asyncio.create_task(transport.request(secret(url), timeouts))
    await soon(begun)
    skip(1001)
    with pytest.raises(DeadlineExceededError) as raised:
        await call
    check(raised.value, text, sent=False)


# Slow servers.


@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbeg"])
@pytest.mark.parametrize(
    ("timeouts", "text"),
    [
        (Timeouts(total=1000), "not answered within 1000 s"),
        (Timeouts(total=None, idle=1000), "nothing came for 1000 s"),
    ],
)
async def test_a_server_that_falls_silent_meets_the_deadline(
    listen: Listen, transport: NetworkTransport, skip: Skip, begun: bytes, timeouts: Timeouts, text: str
) -> None:
    asked, ended = asyncio.Event(), asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_head(reader)
        await reader.readexactly(len(b"secret"))
        writer.write(begun)
        asked.set()
        await reader.read()
        ended.set()

    call = asyncio.create_task(transport.request(secret(await listen(script)), timeouts))
    await soon(asked)
    await skip_until_done(skip, 1001, call)
    with pytest.raises(DeadlineExceededError) as raised:
        await call
    check(raised.value, text, sent=True)
    await soon(ended)  # the connection is closed


async def test_a_server_that_keeps_talking_meets_no_idle_deadline(
    listen: Listen, transport: NetworkTransport, skip: Skip
) -> None:
    go_on: asyncio.Queue[None] = asyncio.Queue()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n")
        for _ in range(6):
            await go_on.get()
            writer.write(b".")

    async with transport.stream(Request("GET", await listen(script)), Timeouts(total=None, idle=1000)) as stream:
        chunks = aiter(stream.chunks())
        for _ in range(6):
            skip(600)
            go_on.put_nowait(None)
            assert await anext(chunks) == b"."


async def test_the_total_counts_while_nobody_reads(listen: Listen, transport: NetworkTransport, skip: Skip) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n")
        await reader.read()

    async with transport.stream(Request("GET", await listen(script)), Timeouts(total=1000)) as stream:
        skip(1001)
        await asyncio.sleep(0)
        with pytest.raises(DeadlineExceededError, match="not answered within 1000 s"):
            await stream.read()


# Bodies.


async def test_a_large_body_is_sent_whole(listen: Listen, transport: NetworkTransport) -> None:
    body = bytes(range(256)) * (3 * 2**12)

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await request_head(reader)
        assert f"content-length: {len(body)}\r\n".encode() in head.lower()
        assert await reader.readexactly(len(body)) == body
        writer.write(OK)

    assert (await transport.request(Request("PUT", await listen(script), {}, body))).body == b"ok"


@pytest.mark.parametrize("streaming", [False, True])
async def test_content_codings_are_undone(listen: Listen, transport: NetworkTransport, streaming: bool) -> None:
    body = b"text " * 100_000
    coded = gzip.compress(body)

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert b"accept-encoding: gzip" in (await request_head(reader)).lower()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(coded))
        writer.write(coded)

    request = Request("GET", await listen(script))
    if streaming:
        async with transport.stream(request) as stream:
            headers, received = stream.headers, b"".join([chunk async for chunk in stream.chunks()])
    else:
        response = await transport.request(request)
        headers, received = response.headers, response.body  # type: ignore[assignment]  # both are multidicts
    assert received == body
    assert "Content-Encoding" not in headers
    assert "Content-Length" not in headers


async def test_redirects_are_responses(listen: Listen, transport: NetworkTransport) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_head(reader)
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n")

    response = await transport.request(Request("GET", await listen(script)))
    assert (response.status, response.headers["Location"]) == (302, "/elsewhere")


async def test_a_response_header_may_be_long(listen: Listen, transport: NetworkTransport) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_head(reader)
        writer.write(b"HTTP/1.1 204 No Content\r\nX-Long: " + b"x" * 30_000 + b"\r\n\r\n")

    response = await transport.request(Request("GET", await listen(script)))
    assert len(response.headers["X-Long"]) == 30_000


# Callers.


@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbeg"])
async def test_cancelling_closes_the_connection(listen: Listen, transport: NetworkTransport, begun: bytes) -> None:
    asked, ended = asyncio.Event(), asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_head(reader)
        writer.write(begun)
        await writer.drain()
        asked.set()
        await reader.read()
        ended.set()

    call = asyncio.create_task(transport.request(Request("GET", await listen(script))))
    await soon(asked)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await soon(ended)


async def test_leaving_a_stream_early_closes_its_connection(listen: Listen, transport: NetworkTransport) -> None:
    ended = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbeg")
        await reader.read()
        ended.set()

    async with transport.stream(Request("GET", await listen(script))) as stream:
        assert await anext(aiter(stream.chunks())) == b"beg"
    await soon(ended)


async def test_an_error_of_the_callers_own_passes_through_a_stream(listen: Listen, transport: NetworkTransport) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_head(reader)
        writer.write(OK)

    with pytest.raises(TimeoutError, match="my own"):
        async with transport.stream(Request("GET", await listen(script))):
            raise TimeoutError("my own")


@pytest.mark.parametrize("closes", [True, False])
async def test_nobody_waits_for_a_server_that_does_not_read(closes: bool) -> None:
    class NotReading(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            transport.pause_reading()
            peers.append(transport)

    peers: list[asyncio.Transport] = []
    server = await asyncio.get_running_loop().create_server(NotReading, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    transport = NetworkTransport()
    call = asyncio.create_task(transport.request(Request("PUT", url, {}, bytes(2**26))))
    connection = await unsent(transport)
    async with asyncio.timeout(10):
        if closes:
            await transport.close()
            with pytest.raises(ConnectionLostError, match="the transport is closed"):
                await call
        else:
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await transport.close()
    assert connection.get_write_buffer_size() == 0
    for peer in peers:
        peer.abort()
    server.close()


@pytest.mark.parametrize("header", [("X-Odd", "a\r\nX-Injected: secret"), ("X-Odd\n", "secret")])
async def test_a_header_that_cannot_be_sent(
    listen: Listen, transport: NetworkTransport, header: tuple[str, str]
) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read() == b""

    with pytest.raises(ValueError, match="header") as raised:
        await transport.request(Request("GET", await listen(script), dict([header])))
    assert "secret" not in str(raised.value)


async def test_dead_peers_are_noticed() -> None:
    """Without a word from the peer the kernel asks; that ends calls that have no deadline of their own."""
    from runherd.wire.connectors import _socket

    with _socket((socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", 0))) as made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == 15


async def test_no_session_is_made_before_the_first_call() -> None:
    transport = NetworkTransport()
    assert transport._sessions == {}
    await transport.close()


async def test_a_transport_needs_a_task() -> None:
    asked: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

    def call() -> None:
        coroutine = NetworkTransport().request(Request("GET", "http://127.0.0.1:1/"))
        try:
            coroutine.send(None)
        except RuntimeError as error:
            asked.set_result(error)

    asyncio.get_running_loop().call_soon(call)
    assert "can only be called from a task" in str(await asked)
