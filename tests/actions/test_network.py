"""``docs/spec/actions-service.md`` 8.2, 8.3: real proxies and real certificate chains, on loopback."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
import trustme

from runherd.actions import (
    RETRYING,
    ActionsClient,
    ClientCache,
    ClientSettings,
    PersonalAccessToken,
    ServiceUnreachableError,
    UserAgent,
)
from runherd.simulator.simulator import Simulator
from runherd.wire.clock import SystemClock
from runherd.wire.proxy import ProxyConfig, ProxyServer
from runherd.wire.server import Server
from runherd.wire.tls import server_context
from runherd.wire.transport import CertificateError, ProxyError
from tests.wire.proxies import HttpProxy, Proxy, Socks5Proxy

AUTHORITY = trustme.CA()
INTERMEDIATE = AUTHORITY.create_child_ca()
#: Known to the proxies alone: loopback itself is never proxied.
NAME = "ghes.test"
HOSTS = {NAME: "127.0.0.1"}
CREDENTIALS = ("user@corp", "p:a/s s")


def context(leaf: trustme.LeafCert) -> ssl.SSLContext:
    chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
    return server_context(chain, leaf.private_key_pem.bytes())


def pem(authority: trustme.CA) -> bytes:
    return authority.cert_pem.bytes()


@asynccontextmanager
async def service(tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server(Simulator(clock=SystemClock(), random=Random(1), personal_tokens=["a-token"]), tls=tls)
    await server.start()
    try:
        yield server
    finally:
        await server.close()


@pytest.fixture
async def cache() -> AsyncIterator[ClientCache]:
    cache = ClientCache(user_agent=UserAgent("tests"), clock=SystemClock())
    yield cache
    await cache.close()


def client(
    cache: ClientCache,
    server: Server,
    host: str = "localhost",
    proxies: ProxyConfig | None = None,
    roots: bytes | None = None,
) -> ActionsClient:
    scheme = "https" if server.url.startswith("https") else "http"
    url = f"{scheme}://{host}:{server.port}/octo-org"
    return cache.get(ClientSettings(url, "runners", PersonalAccessToken("a-token"), proxies=proxies, roots=roots))


async def works(client: ActionsClient) -> bool:
    return (await client.get_runner_group_by_name("Default")).id == 1


@pytest.mark.parametrize("anchor", [AUTHORITY, INTERMEDIATE], ids=["root", "intermediate"])
async def test_anchors(cache: ClientCache, anchor: trustme.CA) -> None:
    async with service(context(INTERMEDIATE.issue_cert("localhost"))) as server:
        assert await works(client(cache, server, roots=pem(anchor)))


async def test_a_bundle_with_more_than_one_certificate(cache: ClientCache) -> None:
    async with service(context(INTERMEDIATE.issue_cert("localhost"))) as server:
        assert await works(client(cache, server, roots=b"# ours\n" + pem(trustme.CA()) + pem(AUTHORITY)))


YESTERDAY = datetime.now(UTC) - timedelta(days=1)


@pytest.mark.parametrize(
    ("leaf", "roots", "reason"),
    [
        (AUTHORITY.issue_cert("localhost", not_after=YESTERDAY), pem(AUTHORITY), "expired"),
        (AUTHORITY.issue_cert("other.example"), pem(AUTHORITY), "localhost"),
        (AUTHORITY.issue_cert("localhost"), pem(trustme.CA()), "issuer"),
        (AUTHORITY.issue_cert("localhost"), None, "issuer"),
    ],
    ids=["expired", "wrong name", "other authority", "no authority"],
)
async def test_certificates_that_are_refused_at_once(
    cache: ClientCache, leaf: trustme.LeafCert, roots: bytes | None, reason: str
) -> None:
    async with service(context(leaf)) as server:
        with pytest.raises(ServiceUnreachableError, match=reason) as caught:
            await works(client(cache, server, roots=roots).with_policy(RETRYING))
    assert isinstance(caught.value.__cause__, CertificateError)
    assert (caught.value.retryable, caught.value.request_sent, caught.value.attempts) == (False, False, 1)


@asynccontextmanager
async def proxies(proxy: Proxy) -> AsyncIterator[ProxyConfig]:
    async with proxy:
        parsed = ProxyServer.parse(proxy.url)
        yield ProxyConfig(http=parsed, https=parsed)


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("kind", ["http", "https", "socks5"])
@pytest.mark.parametrize("credentials", [None, CREDENTIALS], ids=["open", "credentials"])
async def test_proxies(cache: ClientCache, kind: str, tls: bool, credentials: tuple[str, str] | None) -> None:
    proxy: Proxy
    if kind == "socks5":
        proxy = Socks5Proxy(hosts=HOSTS, credentials=credentials)
    else:
        proxy_tls = context(AUTHORITY.issue_cert("127.0.0.1")) if kind == "https" else None
        proxy = HttpProxy(hosts=HOSTS, credentials=credentials, tls=proxy_tls)
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(service(context(AUTHORITY.issue_cert(NAME)) if tls else None))
        config = await stack.enter_async_context(proxies(proxy))
        assert await works(client(cache, server, NAME, config, pem(AUTHORITY)))
        assert proxy.seen
        assert all(f"{NAME}:{server.port}" in seen for seen in proxy.seen)


@pytest.mark.parametrize("kind", [HttpProxy, Socks5Proxy])
async def test_wrong_proxy_credentials_are_told_and_not_shown(
    cache: ClientCache, kind: type[HttpProxy | Socks5Proxy]
) -> None:
    async with service() as server, proxies(kind(hosts=HOSTS, credentials=CREDENTIALS)) as config:
        assert config.http is not None
        wrong = replace(config, http=replace(config.http, password="not-the-password"))
        with pytest.raises(ServiceUnreachableError, match="asks for other credentials") as caught:
            await works(client(cache, server, NAME, wrong))
        assert not caught.value.retryable
        assert "not-the-password" not in str(caught.value)


async def test_a_proxy_that_is_not_there(cache: ClientCache) -> None:
    async with service() as server, HttpProxy() as proxy:
        gone = ProxyServer.parse(proxy.url)
    with pytest.raises(ServiceUnreachableError) as caught:
        await works(client(cache, server, NAME, ProxyConfig(http=gone)))
    assert isinstance(caught.value.__cause__, ProxyError)
    assert (caught.value.retryable, caught.value.request_sent) == (True, False)


async def test_exempt_targets_go_without_the_proxy(cache: ClientCache) -> None:
    proxy = HttpProxy(hosts=HOSTS)
    async with service() as server, proxies(proxy) as config:
        assert await works(client(cache, server, "127.0.0.1", config))
        with pytest.raises(ServiceUnreachableError, match=NAME):
            await works(client(cache, server, NAME, replace(config, no_proxy=f".example,{NAME}")))
        assert proxy.seen == []


async def test_a_changed_proxy_takes_effect(cache: ClientCache) -> None:
    first, second = HttpProxy(hosts=HOSTS), HttpProxy(hosts=HOSTS)
    async with service() as server, proxies(first) as one, proxies(second) as other:
        assert await works(client(cache, server, NAME, one))
        assert await works(client(cache, server, NAME, other))
        assert first.seen
        assert second.seen
