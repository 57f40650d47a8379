from __future__ import annotations

import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread

import pytest
import trustme

from runherd.wire import tls
from runherd.wire.network import NetworkTransport
from runherd.wire.server import Server
from runherd.wire.tls import client_context, load_certificate, server_context
from runherd.wire.transport import CertificateError, ConnectError, Request, Response
from tests.wire.certificates import issue

AUTHORITY = trustme.CA()
INTERMEDIATE = AUTHORITY.create_child_ca()
OTHER_AUTHORITY = trustme.CA()


def pem_of(authority: trustme.CA) -> bytes:
    return authority.cert_pem.bytes()


def context_of(leaf: trustme.LeafCert, *, whole_chain: bool = True) -> ssl.SSLContext:
    chain = [blob.bytes() for blob in leaf.cert_chain_pems]
    return server_context(b"".join(chain if whole_chain else chain[:1]), leaf.private_key_pem.bytes())


#: Serves https with a context; returns a URL on localhost.
Serve = Callable[[ssl.SSLContext], Awaitable[str]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    async with AsyncExitStack() as stack:

        async def serve(context: ssl.SSLContext) -> str:
            async def handler(request: Request) -> Response:
                return Response(200, body=b"over TLS")

            server = Server(handler, tls=context)
            await server.start()
            stack.push_async_callback(server.close)
            assert server.url == f"https://127.0.0.1:{server.port}"
            return f"https://localhost:{server.port}/path?token=secret"

        yield serve


async def call(url: str, context: ssl.SSLContext, server_hostname: str | None = None) -> Response:
    transport = NetworkTransport(tls=context, server_hostname=server_hostname)
    try:
        return await transport.request(Request("GET", url))
    finally:
        await transport.close()


async def refusal(url: str, context: ssl.SSLContext, server_hostname: str | None = None) -> str:
    with pytest.raises(CertificateError) as raised:
        await call(url, context, server_hostname)
    assert not raised.value.request_sent
    text = str(raised.value)
    assert "secret" not in text
    prefix = f"GET {url.partition('?')[0]}: "
    assert text.startswith(prefix)
    return text.removeprefix(prefix)


# Which certificates are accepted (docs/spec/actions-service.md 8.2).


@pytest.mark.parametrize("system_roots", [True, False])
async def test_an_authority_among_the_roots(serve: Serve, system_roots: bool) -> None:
    url = await serve(context_of(AUTHORITY.issue_cert("localhost")))
    response = await call(url, client_context(roots=pem_of(AUTHORITY), system_roots=system_roots))
    assert response.body == b"over TLS"


async def test_an_intermediate_may_be_the_anchor(serve: Serve) -> None:
    url = await serve(context_of(INTERMEDIATE.issue_cert("localhost"), whole_chain=False))
    assert (await call(url, client_context(roots=pem_of(INTERMEDIATE)))).status == 200
    assert "issuer certificate" in await refusal(url, client_context(roots=pem_of(AUTHORITY)))


async def test_the_server_may_send_the_intermediate(serve: Serve) -> None:
    url = await serve(context_of(INTERMEDIATE.issue_cert("localhost")))
    assert (await call(url, client_context(roots=pem_of(AUTHORITY)))).status == 200


async def test_a_leaf_may_be_the_anchor(serve: Serve) -> None:
    leaf = AUTHORITY.issue_cert("localhost")
    url = await serve(context_of(leaf))
    assert (await call(url, client_context(roots=leaf.cert_chain_pems[0].bytes()))).status == 200


async def test_a_self_signed_certificate_among_the_roots(serve: Serve) -> None:
    identity = issue("whatever", dns_names=("localhost",))
    url = await serve(server_context(identity.pem, identity.key))
    assert "self-signed" in await refusal(url, client_context(roots=pem_of(AUTHORITY)))
    assert (await call(url, client_context(roots=identity.pem))).status == 200


async def test_an_unknown_authority(serve: Serve) -> None:
    url = await serve(context_of(AUTHORITY.issue_cert("localhost")))
    for context in (client_context(), client_context(roots=pem_of(OTHER_AUTHORITY))):
        assert "the server's certificate was not accepted" in await refusal(url, context)


async def test_an_authority_as_old_ones_are_made(serve: Serve) -> None:
    """Without the key identifiers and key usages that Python 3.13 and newer insist on unless told not to."""
    authority = issue("an old authority", is_authority=True)
    identity = issue("localhost", issuer=authority, dns_names=("localhost",))
    url = await serve(server_context(identity.pem, identity.key))
    context = client_context(roots=authority.pem)
    assert (await call(url, context)).status == 200
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT


async def test_an_expired_certificate(serve: Serve) -> None:
    expired = datetime.now(UTC) - timedelta(minutes=1)
    leaf = AUTHORITY.issue_cert("localhost", not_before=expired - timedelta(days=1), not_after=expired)
    url = await serve(context_of(leaf))
    assert "certificate has expired" in await refusal(url, client_context(roots=pem_of(AUTHORITY)))


async def test_a_certificate_for_another_name(serve: Serve) -> None:
    url = await serve(context_of(AUTHORITY.issue_cert("elsewhere.test")))
    context = client_context(roots=pem_of(AUTHORITY))
    assert "Hostname mismatch" in await refusal(url, context)
    assert (await call(url, context, server_hostname="elsewhere.test")).status == 200
    assert "Hostname mismatch" in await refusal(url, context, server_hostname="other.test")


async def test_a_common_name_is_no_name(serve: Serve) -> None:
    authority = issue("authority", is_authority=True)
    identity = issue("localhost", issuer=authority)
    url = await serve(server_context(identity.pem, identity.key))
    assert "Hostname mismatch" in await refusal(url, client_context(roots=authority.pem))


async def test_no_verification(serve: Serve) -> None:
    expired = datetime.now(UTC) - timedelta(minutes=1)
    leaf = AUTHORITY.issue_cert("elsewhere.test", not_before=expired - timedelta(days=1), not_after=expired)
    url = await serve(context_of(leaf))
    assert (await call(url, client_context(verify=False))).status == 200


def test_system_roots_are_there_unless_unwanted() -> None:
    assert client_context().verify_mode is ssl.CERT_REQUIRED
    assert client_context(roots=pem_of(AUTHORITY), system_roots=False).cert_store_stats()["x509"] == 1
    assert client_context(roots=pem_of(AUTHORITY)).cert_store_stats()["x509"] >= 1


def test_system_roots_where_openssl_looks_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(pem_of(AUTHORITY) + pem_of(OTHER_AUTHORITY))
    nowhere = ssl.get_default_verify_paths()._replace(cafile=None, capath=None)  # type: ignore[arg-type]  # as it is
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: nowhere)
    monkeypatch.setattr(tls, "_SYSTEM_BUNDLES", (str(tmp_path / "missing"), str(bundle)))
    assert client_context().cert_store_stats()["x509"] == 2


# What PEM data may look like.


def test_what_is_around_and_between_certificates_is_skipped() -> None:
    broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    bundle = (
        "# ä comment\n".encode() + broken + pem_of(AUTHORITY).replace(b"\n", b"\r\n") + b"junk" + pem_of(INTERMEDIATE)
    )
    context = client_context(roots=bundle, system_roots=False)
    assert context.cert_store_stats()["x509"] == 2


@pytest.mark.parametrize(
    "roots",
    [
        b"",
        b"not PEM",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        pem_of(AUTHORITY).replace(b"CERTIFICATE", b"PUBLIC KEY"),
        pem_of(AUTHORITY)[:-30],
    ],
)
def test_roots_without_a_certificate(roots: bytes) -> None:
    with pytest.raises(ValueError, match="no certificate in the PEM data"):
        client_context(roots=roots)


def test_a_certificate_that_cannot_be_used() -> None:
    identity, other = issue("one"), issue("other")
    for certificate, key, reason in (
        (b"", identity.key, "lacks one of the two"),
        (identity.pem, b"", "lacks one of the two"),
        (identity.pem, other.key, "KEY_VALUES_MISMATCH"),
        (identity.pem, b"secret", "lacks one of the two"),
        (identity.pem, identity.encrypted_key(b"secret"), "encrypted"),
    ):
        with pytest.raises(ValueError, match=reason) as raised:
            server_context(certificate, key)
        assert "secret" not in str(raised.value)


def test_certificate_and_key_may_come_as_one() -> None:
    identity = issue("one")
    client_context(certificate=identity.pem + identity.key)
    client_context(certificate=identity.pem.rstrip(), key=identity.key)


def test_keys_are_not_left_anywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    identity = issue("one")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    client_context(certificate=identity.pem, key=identity.key)
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors
    assert list(tmp_path.iterdir()) == []

    seen: list[int] = []
    load = ssl.SSLContext.load_cert_chain

    def looking(context: ssl.SSLContext, path: str, password: Callable[[], str]) -> None:
        seen.append(Path(path).stat().st_mode & 0o777)
        seen.append(Path(path).parent.stat().st_mode & 0o777)
        load(context, path, password=password)

    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", looking)
    client_context(certificate=identity.pem, key=identity.key)
    assert seen == [0o600, 0o700]
    assert list(tmp_path.iterdir()) == []


# Certificates of ours.


def demanding(authority: trustme.CA) -> ssl.SSLContext:
    context = context_of(AUTHORITY.issue_cert("localhost"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=pem_of(authority).decode())
    return context


@contextmanager
def alerting(context: ssl.SSLContext) -> Iterator[str]:
    """A server for one connection that says why it ends a handshake, as Go's do and asyncio's doesn't."""

    def serve() -> None:
        plain, _ = listener.accept()
        with plain.dup() as below:
            try:
                with context.wrap_socket(plain, server_side=True) as connection:
                    connection.recv(2**16)
                    connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
            except ssl.SSLError:
                # Closing before the client's request is read would reset the connection, and the alert would be lost.
                below.shutdown(socket.SHUT_WR)
                while below.recv(2**16):
                    continue

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        thread = Thread(target=serve)
        thread.start()
        yield f"https://localhost:{listener.getsockname()[1]}/path?token=secret"
        thread.join()


async def test_a_client_certificate_is_shown(serve: Serve) -> None:
    url = await serve(demanding(AUTHORITY))
    client = AUTHORITY.issue_cert("client@example.com")
    context = client_context(
        roots=pem_of(AUTHORITY),
        certificate=client.cert_chain_pems[0].bytes(),
        key=client.private_key_pem.bytes(),
    )
    assert (await call(url, context)).status == 200


@pytest.mark.parametrize(
    ("version", "shown", "error"),
    [
        (ssl.TLSVersion.TLSv1_2, True, CertificateError),
        (ssl.TLSVersion.TLSv1_3, True, CertificateError),
        (ssl.TLSVersion.TLSv1_3, False, CertificateError),
        # TLS 1.2 has no word for a certificate that is missing.
        (ssl.TLSVersion.TLSv1_2, False, ConnectError),
    ],
)
async def test_a_client_certificate_is_refused(version: ssl.TLSVersion, shown: bool, error: type[ConnectError]) -> None:
    demands = demanding(OTHER_AUTHORITY)
    demands.maximum_version = version
    client = AUTHORITY.issue_cert("client@example.com")
    context = client_context(
        roots=pem_of(AUTHORITY),
        certificate=client.private_key_and_cert_chain_pem.bytes() if shown else None,
    )
    with alerting(demands) as url, pytest.raises(ConnectError, match="ALERT") as raised:
        await call(url, context)
    assert type(raised.value) is error
    assert not raised.value.request_sent
    assert "secret" not in str(raised.value)


async def test_a_client_certificate_may_be_replaced() -> None:
    refused, accepted = (
        client_context(
            roots=pem_of(AUTHORITY),
            certificate=authority.issue_cert("client@example.com").private_key_and_cert_chain_pem.bytes(),
        )
        for authority in (AUTHORITY, OTHER_AUTHORITY)
    )
    transport = NetworkTransport(tls=refused)
    with alerting(demanding(OTHER_AUTHORITY)) as url, pytest.raises(CertificateError):
        await transport.request(Request("GET", url))
    transport.set_tls(accepted)
    with alerting(demanding(OTHER_AUTHORITY)) as url:
        assert (await transport.request(Request("GET", url))).status == 204
    await transport.close()


async def test_a_server_certificate_may_be_replaced(serve: Serve) -> None:
    context = context_of(AUTHORITY.issue_cert("localhost"))
    url = await serve(context)
    new = OTHER_AUTHORITY.issue_cert("localhost")
    old_roots, new_roots = client_context(roots=pem_of(AUTHORITY)), client_context(roots=pem_of(OTHER_AUTHORITY))
    kept = NetworkTransport(tls=old_roots)
    await kept.request(Request("GET", url))
    load_certificate(context, new.cert_chain_pems[0].bytes(), new.private_key_pem.bytes())
    assert (await call(url, new_roots)).status == 200
    await refusal(url, old_roots)
    assert (await kept.request(Request("GET", url))).status == 200  # over the connection that is open
    await kept.close()
    with pytest.raises(ValueError, match="KEY_VALUES_MISMATCH"):
        load_certificate(context, new.cert_chain_pems[0].bytes(), issue("other").key)
