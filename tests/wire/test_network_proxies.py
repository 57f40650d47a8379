"""Calls through real proxies (``docs/spec/actions-service.md`` 8.3)."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import trustme

from runherd.wire.network import NetworkTransport
from runherd.wire.proxy import ProxyConfig, ProxyServer
from runherd.wire.server import Server
from runherd.wire.tls import client_context, server_context
from runherd.wire.transport import (
    CertificateError,
    ConnectError,
    DeadlineExceededError,
    ProxyCredentialsError,
    ProxyError,
    Request,
    Response,
    Timeouts,
)
from tests.wire.conftest import Skip, soon
from tests.wire.proxies import HttpProxy, Proxy, Socks5Proxy

AUTHORITY = trustme.CA()
TLS = client_context(roots=AUTHORITY.cert_pem.bytes())
HOSTS = {"service.test": "127.0.0.1"}
CREDENTIALS = ("user", "p%a:s/s@?")

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
try:
    import uvloop
except ImportError:
    pass
else:
    LOOPS["uvloop"] = uvloop.new_event_loop


def server_tls(*names: str) -> ssl.SSLContext:
    leaf = AUTHORITY.issue_cert(*names)
    return server_context(b"".join(pem.bytes() for pem in leaf.cert_chain_pems), leaf.private_key_pem.bytes())


def make_proxy(kind: str, **options: Any) -> Proxy:
    options.setdefault("hosts", HOSTS)
    if kind == "socks5":
        return Socks5Proxy(**options)
    return HttpProxy(tls=server_tls("127.0.0.1") if kind == "https" else None, **options)


class Service:
    """A server behind proxies; keeps the requests that reach it."""

    def __init__(self, scheme: str) -> None:
        self._server = Server(self._answer, tls=server_tls("service.test") if scheme == "https" else None)
        self._scheme = scheme
        self.requests: list[Request] = []

    async def _answer(self, request: Request) -> Response:
        self.requests.append(request)
        return Response(200, body=request.body)

    async def __aenter__(self) -> Service:
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.close()

    @property
    def url(self) -> str:
        return f"{self._scheme}://service.test:{self._server.port}"


def through(proxy: Proxy | str, **options: Any) -> NetworkTransport:
    server = ProxyServer.parse(proxy if isinstance(proxy, str) else proxy.url)
    return NetworkTransport(tls=TLS, proxies=ProxyConfig(http=server, https=server), **options)


@pytest.fixture
async def closing() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("credentials", [None, CREDENTIALS])
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("kind", ["http", "https", "socks5"])
def test_calls_go_through(kind: str, scheme: str, credentials: tuple[str, str] | None, loop: str) -> None:
    async def main() -> None:
        async with Service(scheme) as service, make_proxy(kind, credentials=credentials) as proxy:
            transport = through(proxy)
            body = b"x" * 300_000
            for _ in range(2):
                response = await transport.request(Request("POST", f"{service.url}/a?b=%2F", {"X-Own": "1"}, body))
                assert (response.status, response.body) == (200, body)
            async with transport.stream(Request("GET", f"{service.url}/a")) as stream:
                assert stream.status == 200
            await transport.close()
            for request in service.requests:
                assert request.url.startswith(f"{service.url}/a")
                assert "Proxy-Authorization" not in request.headers
            host = service.url.rpartition("/")[2]
            if kind == "socks5":
                assert proxy.seen == [host]  # one connection for all, to a name that only the proxy can resolve
            elif scheme == "https":
                assert proxy.seen == [f"CONNECT {host}"]
            else:
                url = f"{service.url}/a"
                assert proxy.seen == [f"POST {url}?b=%2F", f"POST {url}?b=%2F", f"GET {url}"]

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(main())


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("kind", ["http", "https", "socks5"])
async def test_wrong_credentials(kind: str, scheme: str) -> None:
    async with Service(scheme) as service, make_proxy(kind, credentials=CREDENTIALS) as proxy:
        for userinfo in ("", "someone:secret@"):
            transport = through(f"{proxy.scheme}://{userinfo}{proxy.address}")
            with pytest.raises(ProxyCredentialsError, match="asks for other credentials") as raised:
                await transport.request(
                    Request("POST", f"{service.url}/path?token=secret", {"Authorization": "secret"})
                )
            await transport.close()
            text = str(raised.value)
            assert text.startswith(f"POST {service.url}/path: ")
            assert proxy.address in text
            assert "secret" not in text
            assert "someone" not in text
            assert not raised.value.request_sent
            if kind != "socks5":
                assert "407" in text
        assert service.requests == []


@pytest.mark.parametrize("status", [403, 502, 503])
async def test_a_proxy_that_will_not_connect_us(closing: AsyncExitStack, status: int) -> None:
    proxy = await closing.enter_async_context(HttpProxy(refusal=status))
    transport = through(proxy)
    closing.push_async_callback(transport.close)
    with pytest.raises(ProxyError, match=rf"the proxy {proxy.address} refused to connect us \(status {status}\)"):
        await transport.request(Request("GET", "https://service.test/"))
    # In the server's place a proxy answers like a server; only 407 is unmistakably its own.
    assert (await transport.request(Request("GET", "http://service.test/"))).status == status


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("kind", ["http", "socks5"])
async def test_a_proxy_that_is_not_there(kind: str, scheme: str) -> None:
    async with make_proxy(kind) as proxy:
        gone = proxy.url
    transport = through(gone.replace("://", "://user:secret@"))
    with pytest.raises(ProxyError) as raised:
        await transport.request(Request("GET", f"{scheme}://service.test/"))
    await transport.close()
    assert str(raised.value).startswith(
        f"GET {scheme}://service.test/: no connection through the proxy {gone.partition('//')[2]}: "
    )


async def test_a_socks_proxy_that_cannot_reach_the_server(closing: AsyncExitStack) -> None:
    async with Service("http") as service:
        gone = service.url
    proxy = await closing.enter_async_context(make_proxy("socks5"))
    transport = through(proxy)
    closing.push_async_callback(transport.close)
    with pytest.raises(ProxyError, match="through the proxy"):
        await transport.request(Request("GET", gone))


async def test_a_proxy_that_says_nothing_meets_the_deadline(closing: AsyncExitStack, skip: Skip) -> None:
    proxy = await closing.enter_async_context(HttpProxy(silent=True))
    transport = through(proxy)
    closing.push_async_callback(transport.close)
    timeouts = Timeouts(connect=1000, total=None)
    call = asyncio.create_task(transport.request(Request("GET", "https://service.test/"), timeouts))
    await soon(proxy.connected)
    skip(1001)
    with pytest.raises(DeadlineExceededError, match=r"no connection within 1000 s") as raised:
        await call
    assert not raised.value.request_sent


async def test_a_proxy_that_hangs_up(closing: AsyncExitStack) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    listener = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    closing.callback(listener.close)
    transport = through(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}")
    closing.push_async_callback(transport.close)
    with pytest.raises(ProxyError, match="through the proxy"):
        await transport.request(Request("GET", "https://service.test/"))


@pytest.mark.parametrize("kind", ["http", "https", "socks5"])
async def test_the_servers_certificate_counts_behind_a_proxy_too(closing: AsyncExitStack, kind: str) -> None:
    service = await closing.enter_async_context(Service("https"))
    hosts = {**HOSTS, "elsewhere.test": "127.0.0.1"}
    proxy = await closing.enter_async_context(make_proxy(kind, hosts=hosts))
    wrong = service.url.replace("service.test", "elsewhere.test")
    transport = through(proxy)
    closing.push_async_callback(transport.close)
    with pytest.raises(CertificateError, match="Hostname mismatch"):
        await transport.request(Request("GET", wrong))
    renamed = through(proxy, server_hostname="service.test")
    closing.push_async_callback(renamed.close)
    assert (await renamed.request(Request("GET", wrong))).status == 200


async def test_an_https_proxys_own_certificate_counts(closing: AsyncExitStack) -> None:
    proxy = await closing.enter_async_context(HttpProxy(tls=server_tls("other.test")))
    transport = through(proxy)
    closing.push_async_callback(transport.close)
    for scheme in ("http", "https"):
        with pytest.raises(CertificateError, match=r"IP address mismatch"):
            await transport.request(Request("GET", f"{scheme}://service.test/"))


async def test_exempt_targets_go_direct(closing: AsyncExitStack) -> None:
    service = await closing.enter_async_context(Service("http"))
    proxy = await closing.enter_async_context(make_proxy("http"))
    server = ProxyServer.parse(proxy.url)
    transport = NetworkTransport(proxies=ProxyConfig(http=server, https=server, no_proxy="exempt.test"))
    closing.push_async_callback(transport.close)
    assert (await transport.request(Request("GET", service.url.replace("service.test", "localhost")))).status == 200
    with pytest.raises(ConnectError, match=r"no connection to exempt\.test"):
        await transport.request(Request("GET", "http://exempt.test:1/"))
    assert proxy.seen == []
    everything = NetworkTransport(proxies=ProxyConfig.for_everything(server))
    closing.push_async_callback(everything.close)
    assert (await everything.request(Request("GET", service.url.replace("service.test", "127.0.0.1")))).status == 200
    assert len(proxy.seen) == 1


async def test_a_cgi_program_gets_an_error(closing: AsyncExitStack) -> None:
    transport = NetworkTransport(proxies=ProxyConfig.from_environment({"HTTP_PROXY": "h", "REQUEST_METHOD": "GET"}))
    closing.push_async_callback(transport.close)
    with pytest.raises(ProxyError, match="REQUEST_METHOD"):
        await transport.request(Request("GET", "http://service.test/"))


async def test_closing_ends_a_call_that_waits_for_the_proxy(closing: AsyncExitStack) -> None:
    proxy = await closing.enter_async_context(HttpProxy(silent=True))
    transport = through(proxy)
    call = asyncio.create_task(transport.request(Request("GET", "https://service.test/")))
    await soon(proxy.connected)
    await transport.close()
    with pytest.raises(Exception, match="the transport is closed") as raised:
        await call
    assert raised.value.request_sent is False  # type: ignore[attr-defined]  # a TransportError
