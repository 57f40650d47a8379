from __future__ import annotations

import asyncio
import base64
import stat
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from runherd.local.apiserver.credentials import (
    Authority,
    ServingCertificate,
    load_credentials,
    write_kubeconfig,
)
from runherd.local.apiserver.server import ApiServer
from runherd.local.apiserver.store import Store
from runherd.wire.clock import EventLoopClock, SystemClock
from runherd.wire.network import NetworkTransport
from runherd.wire.server import Server
from runherd.wire.tls import client_context
from runherd.wire.transport import CertificateError, Request
from tests.support.virtual_time import run_in_virtual_time


class SettableClock:
    def __init__(self, moment: datetime) -> None:
        self.moment = moment

    def now(self) -> datetime:
        return self.moment


async def _status(server: Server, authority: Authority, token: str | None, path: str = "/api/v1/pods") -> int:
    transport = NetworkTransport(tls=client_context(roots=authority.certificate, system_roots=False))
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    try:
        return (await transport.request(Request("GET", f"{server.url}{path}", headers))).status
    finally:
        await transport.close()


async def test_only_the_token_opens_and_only_the_authority_is_trusted() -> None:
    authority = Authority.create(SystemClock())
    certificate = ServingCertificate(authority, SystemClock(), "127.0.0.1")
    api = ApiServer(Store(), random=Random(0), token="right")
    await api.start()
    server = Server(api.handle, tls=certificate.context)
    await server.start()
    try:
        assert await _status(server, authority, "right") == 200
        for token in ("wrong", "", "rightright", None, "ü"):
            assert await _status(server, authority, token) == 401
        for path in ("/api", "/apis", "/openapi/v3", "/", "/nothing", "/runherd/backup"):
            assert await _status(server, authority, None, path) == 401
        for path in ("/healthz", "/readyz", "/livez", "/version"):
            assert await _status(server, authority, None, path) == 200
            assert await _status(server, authority, "right", path) == 200
            for token in ("wrong", ""):
                assert await _status(server, authority, token, path) == 401
        with pytest.raises(CertificateError):
            await _status(server, Authority.create(SystemClock()), "right")
    finally:
        await server.close()
        await api.close()


async def test_new_connections_get_the_renewed_certificate() -> None:
    clock = SettableClock(SystemClock().now())
    authority = Authority.create(clock)
    certificate = ServingCertificate(authority, clock, "localhost")
    api = ApiServer(Store(), random=Random(0))
    await api.start()
    server = Server(api.handle, tls=certificate.context)
    port = await server.start()
    context = client_context(roots=authority.certificate, system_roots=False)

    async def shown() -> int:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        encoded = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        return x509.load_der_x509_certificate(encoded).serial_number

    try:
        first = await shown()
        assert not certificate.renew_if_due()
        assert await shown() == first
        clock.moment += timedelta(days=61)
        # The new certificate begins in what this machine takes for the future, so the check of times is not ours.
        context.check_hostname = False
        context.verify_mode = context.verify_mode.CERT_NONE
        assert certificate.renew_if_due()
        assert await shown() != first
    finally:
        await server.close()
        await api.close()


def test_a_year_goes_by_without_an_expired_certificate() -> None:
    async def main() -> None:
        clock = EventLoopClock()
        authority = Authority.create(clock)
        issued: list[x509.Certificate] = []
        issue = authority.issue

        def recorded(*arguments: object) -> tuple[bytes, bytes]:
            pair = issue(clock, "127.0.0.1")
            issued.append(x509.load_pem_x509_certificate(pair[0]))
            return pair

        authority.issue = recorded  # type: ignore[method-assign, assignment]  # to see what it issues
        certificate = ServingCertificate(authority, clock, "127.0.0.1")
        keeping = asyncio.ensure_future(certificate.keep())
        for _ in range(366):
            await asyncio.sleep(86400)
            left = issued[-1].not_valid_after_utc - clock.now()
            assert left > timedelta(days=29)
        keeping.cancel()
        assert len(issued) == 7

    run_in_virtual_time(main())


def test_certificates_are_for_the_loopback_addresses_and_the_host() -> None:
    clock = SystemClock()
    authority = Authority.create(clock)
    certificate = x509.load_pem_x509_certificate(authority.issue(clock, "runner.example.com")[0])
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "runner.example.com"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_credentials_are_kept_in_the_directory_for_its_owner_only(tmp_path: Path) -> None:
    authority, token = load_credentials(tmp_path, SystemClock())
    again, same = load_credentials(tmp_path, SystemClock())
    assert (again.certificate, same) == (authority.certificate, token)
    for name in ("ca.key", "ca.crt", "token"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert load_credentials(None, SystemClock())[1] != token


def test_an_authority_that_is_about_to_expire_is_replaced(tmp_path: Path) -> None:
    async def main() -> None:
        clock = EventLoopClock()
        authority, token = load_credentials(tmp_path, clock)
        clock.offset = timedelta(days=9 * 365 + 30)
        replaced, kept = load_credentials(tmp_path, clock)
        assert replaced.certificate != authority.certificate
        assert kept == token

    run_in_virtual_time(main())


def test_a_key_of_another_sort_is_refused(tmp_path: Path) -> None:
    load_credentials(tmp_path, SystemClock())
    other = ed25519.Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "ca.key").write_bytes(other)
    with pytest.raises(ValueError, match="elliptic curve"):
        load_credentials(tmp_path, SystemClock())


def test_the_kubeconfig_is_for_its_owner_only(tmp_path: Path) -> None:
    authority = Authority.create(SystemClock())
    path = tmp_path / "kubeconfig"
    path.write_text("old")
    path.chmod(0o644)
    write_kubeconfig(path, "https://127.0.0.1:1", authority, "the-token")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["kubeconfig"]
    config = yaml.safe_load(path.read_text())
    cluster = config["clusters"][0]["cluster"]
    assert cluster["server"] == "https://127.0.0.1:1"
    assert base64.b64decode(cluster["certificate-authority-data"]) == authority.certificate
    assert config["users"][0]["user"] == {"token": "the-token"}


@pytest.mark.parametrize("token", ["", " ", "\n"])
def test_a_server_with_an_empty_token_is_refused(token: str) -> None:
    with pytest.raises(ValueError, match="token"):
        ApiServer(Store(), random=Random(0), token=token)


@pytest.mark.parametrize("content", ["", " ", "\n\t\n"])
def test_an_empty_token_file_is_replaced(tmp_path: Path, content: str) -> None:
    path = tmp_path / "token"
    path.write_text(content)
    _, token = load_credentials(tmp_path, SystemClock())
    assert len(token) >= 32
    assert path.read_text() == token
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_credentials(tmp_path, SystemClock())[1] == token


def test_space_around_a_kept_token_is_no_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("kept\n")
    assert load_credentials(tmp_path, SystemClock())[1] == "kept"
