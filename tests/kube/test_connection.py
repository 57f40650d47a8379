"""From a configuration to requests over TLS: what the server gets to see."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import pytest

from runherd.api.core import PODS
from runherd.kube.client import Client
from runherd.kube.config import ClientConfig
from runherd.kube.connection import connect, open_transport
from runherd.kube.errors import ConfigError, UnauthorizedError
from runherd.kube.exec_plugin import ExecConfig
from runherd.kube.limiter import WriteLimiter
from runherd.wire.clock import SystemClock
from runherd.wire.proxy import ProxyServer
from runherd.wire.server import Server
from runherd.wire.tls import server_context
from runherd.wire.transport import CertificateError, ProxyError, Request, Response, TransportError
from tests.kube.kubeconfigs import authority, pair
from tests.kube.scripted import answer, pod, refusal


@dataclass
class ApiServer:
    """A TLS server that knows tokens and client certificates."""

    url: str = ""
    tokens: set[str] = field(default_factory=set)
    requests: list[Request] = field(default_factory=list)
    tls: ssl.SSLContext = field(default_factory=lambda: _tls("127.0.0.1"))

    async def handle(self, request: Request) -> Response:
        self.requests.append(request)
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.tokens and token not in self.tokens:
            return refusal(401, "Unauthorized")
        return answer(pod("web"))


def _tls(name: str) -> ssl.SSLContext:
    certificate = authority().server(name)
    return server_context(certificate.certificate, certificate.key)


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    api = ApiServer()
    listening = Server(api.handle, tls=api.tls)
    await listening.start()
    api.url = listening.url
    yield api
    await listening.close()


@pytest.fixture
async def open_client() -> AsyncIterator[Callable[[ClientConfig], Client]]:
    clients = []

    def open_one(config: ClientConfig) -> Client:
        clients.append(
            connect(config, limiter=WriteLimiter(), clock=SystemClock(), random=Random(0), user_agent="runherd/test")
        )
        return clients[-1]

    yield open_one
    for client in clients:
        await client.close()


def config_for(server: ApiServer) -> ClientConfig:
    return ClientConfig(server=server.url, certificate_authority=authority().certificate)


Open = Callable[[ClientConfig], Client]


async def get(client: Client) -> None:
    assert (await client.get(PODS, "web", "default")).metadata.name == "web"


async def get_once(config: ClientConfig) -> None:
    """Without the client's repeats."""
    transport = open_transport(config, clock=SystemClock())
    try:
        response = await transport.request(Request("GET", f"{config.server}/api/v1/namespaces/default/pods/web"))
    finally:
        await transport.close()
    assert response.status == 200


async def test_token_and_user_agent(server: ApiServer, open_client: Open) -> None:
    server.tokens = {"t1"}
    await get(open_client(replace(config_for(server), token="t1")))
    (request,) = server.requests
    assert request.headers["User-Agent"] == "runherd/test"
    assert request.headers["Authorization"] == "Bearer t1"
    with pytest.raises(UnauthorizedError):
        await get(open_client(replace(config_for(server), token="t2")))


async def test_a_token_file_that_rotates(server: ApiServer, open_client: Open, tmp_path: Path) -> None:
    server.tokens = {"t1"}
    (tmp_path / "token").write_text("t1")
    client = open_client(replace(config_for(server), token_file=tmp_path / "token"))
    await get(client)
    (tmp_path / "token").write_text("t2")
    server.tokens = {"t2"}
    await get(client)
    assert [request.headers["Authorization"] for request in server.requests] == ["Bearer t1"] * 2 + ["Bearer t2"]


async def test_a_server_that_nobody_vouches_for_is_refused(server: ApiServer, open_client: Open) -> None:
    with pytest.raises(CertificateError):
        await get(open_client(replace(config_for(server), certificate_authority=authority("two").certificate)))
    with pytest.raises(CertificateError):
        await get(open_client(replace(config_for(server), certificate_authority=None)))
    assert server.requests == []
    await get(open_client(ClientConfig(server=server.url, insecure_skip_tls_verify=True)))


async def test_tls_server_name(open_client: Open) -> None:
    api = ApiServer(tls=_tls("inner.test"))
    listening = Server(api.handle, tls=api.tls)
    await listening.start()
    api.url = listening.url
    try:
        with pytest.raises(CertificateError):
            await get(open_client(config_for(api)))
        await get(open_client(replace(config_for(api), tls_server_name="inner.test")))
    finally:
        await listening.close()


async def test_a_client_certificate_is_shown(server: ApiServer, open_client: Open) -> None:
    server.tls.verify_mode = ssl.CERT_REQUIRED
    server.tls.load_verify_locations(cadata=authority().certificate.decode())
    config = config_for(server)
    with pytest.raises(TransportError):
        await get_once(config)
    await get_once(replace(config, client_certificate=pair().certificate, client_key=pair().key))


async def test_the_certificate_is_the_one_that_the_files_hold_now(server: ApiServer, tmp_path: Path) -> None:
    server.tls.verify_mode = ssl.CERT_REQUIRED
    server.tls.load_verify_locations(cadata=authority().certificate.decode())
    stranger = authority("two").client("me")
    (tmp_path / "tls.crt").write_bytes(pair().certificate)
    (tmp_path / "tls.key").write_bytes(pair().key)
    loaded_earlier = replace(config_for(server), client_certificate=stranger.certificate, client_key=stranger.key)
    with pytest.raises(TransportError):
        await get_once(loaded_earlier)
    await get_once(
        replace(loaded_earlier, client_certificate_file=tmp_path / "tls.crt", client_key_file=tmp_path / "tls.key")
    )


async def test_a_plugin_is_not_asked_where_the_kubeconfig_gives_a_token(server: ApiServer, open_client: Open) -> None:
    plugin = ExecConfig("no-such-plugin", "client.authentication.k8s.io/v1")
    await get(open_client(replace(config_for(server), exec=plugin, token="t1")))
    assert server.requests[0].headers["Authorization"] == "Bearer t1"


async def test_the_proxy_of_the_configuration_is_used_also_for_loopback(server: ApiServer) -> None:
    nowhere = ProxyServer("http", "127.0.0.1", 1)
    with pytest.raises(ProxyError):
        await get_once(replace(config_for(server), proxy=nowhere))
    assert server.requests == []


async def test_compression_can_be_switched_off(server: ApiServer, open_client: Open) -> None:
    await get(open_client(config_for(server)))
    await get(open_client(replace(config_for(server), disable_compression=True)))
    first, second = (request.headers.get("Accept-Encoding", "") for request in server.requests)
    assert "gzip" in first
    assert second == "identity"


def test_certificates_that_can_not_be_used_are_refused_at_once() -> None:
    config = ClientConfig(server="https://api.test", certificate_authority=b"nothing")
    with pytest.raises(ConfigError, match=r"https://api\.test can't be reached as configured: no certificate"):
        connect(config, limiter=None, clock=SystemClock(), random=Random(0))
