"""What clients need to reach the server alone: a token, a certificate authority, and a kubeconfig that holds both."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import logging
import os
import secrets
import ssl
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from runherd.wire.clock import Clock
from runherd.wire.tls import load_certificate, server_context

__all__ = ["Authority", "ServingCertificate", "load_credentials", "new_token", "write_kubeconfig", "write_private"]

log = logging.getLogger(__name__)

_AUTHORITY_LIFETIME = timedelta(days=3650)
_CERTIFICATE_LIFETIME = timedelta(days=90)
#: Certificates begin a little in the past, for clients whose clocks are behind.
_CLOCK_SKEW = timedelta(hours=1)
_RENEWAL_CHECK = 3600.0
_PRIVATE = 0o600


def new_token() -> str:
    """A bearer token that nobody can guess."""
    return secrets.token_urlsafe(32)


class Authority:
    """Signs the server's certificates. Clients trust its own, ``certificate`` (PEM)."""

    def __init__(self, certificate: bytes, key: ec.EllipticCurvePrivateKey) -> None:
        self.certificate = certificate
        self._key = key
        self._issuer = x509.load_pem_x509_certificate(certificate)

    @classmethod
    def create(cls, clock: Clock) -> Authority:
        """A new one, for ten years."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "runherd API server CA")])
        now = clock.now()
        certificate = (
            _builder(name, name, key.public_key())
            .not_valid_before(now - _CLOCK_SKEW)
            .not_valid_after(now + _AUTHORITY_LIFETIME)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate.public_bytes(Encoding.PEM), key)

    @classmethod
    def load(cls, certificate: bytes, key: bytes) -> Authority:
        """One that was made before. Raises ``ValueError`` when the key is none of ours."""
        loaded = load_pem_private_key(key, None)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise ValueError("the key of the certificate authority is no elliptic curve key")  # noqa: TRY004  # a file's content, not a caller's type
        return cls(certificate, loaded)

    @property
    def key(self) -> bytes:
        """The private key, PEM."""
        return _pem(self._key)

    def issue(self, clock: Clock, host: str) -> tuple[bytes, bytes]:
        """A server certificate for ``host`` and the loopback addresses, for 90 days, and its key (PEM both)."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "runherd API server")])
        now = clock.now()
        certificate = (
            _builder(subject, self._issuer.subject, key.public_key())
            .not_valid_before(now - _CLOCK_SKEW)
            .not_valid_after(min(now + _CERTIFICATE_LIFETIME, self._issuer.not_valid_after_utc))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(_names(host), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(Encoding.PEM), _pem(key)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _names(host: str) -> x509.SubjectAlternativeName:
    names: list[x509.GeneralName] = [x509.DNSName("localhost")]
    addresses = {"127.0.0.1", "::1"}
    try:
        addresses.add(str(ipaddress.ip_address(host)))
    except ValueError:
        names.append(x509.DNSName(host))
    names += [x509.IPAddress(ipaddress.ip_address(address)) for address in sorted(addresses)]
    return x509.SubjectAlternativeName(names)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


class ServingCertificate:
    """The certificate that the server shows, renewed when two thirds of its time are over.

    ``context`` is the server's; new connections get the new certificate, those that are open stay open.
    """

    def __init__(self, authority: Authority, clock: Clock, host: str) -> None:
        self._authority = authority
        self._clock = clock
        self._host = host
        certificate, key = authority.issue(clock, host)
        self._issued_at = clock.now()
        self.context: ssl.SSLContext = server_context(certificate, key)

    def renew_if_due(self) -> bool:
        """Whether the certificate was old enough, and is a new one now."""
        if self._clock.now() < self._issued_at + _CERTIFICATE_LIFETIME * 2 / 3:
            return False
        certificate, key = self._authority.issue(self._clock, self._host)
        load_certificate(self.context, certificate, key)
        self._issued_at = self._clock.now()
        log.info("the server's certificate was renewed")
        return True

    async def keep(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Renew for as long as the server runs; cancel it to end."""
        while True:
            await sleep(_RENEWAL_CHECK)
            self.renew_if_due()


def load_credentials(directory: Path | None, clock: Clock) -> tuple[Authority, str]:
    """The authority and the token that are kept in ``directory``, made where they are missing (or the token empty).

    Without a directory they are new, and gone with the process. An authority that has less than a year left is
    replaced: clients read the kubeconfig anew when the server starts. Raises ``OSError`` and ``ValueError`` for files
    that can't be read.
    """
    if directory is None:
        return Authority.create(clock), new_token()
    certificate, key, token = (directory / name for name in ("ca.crt", "ca.key", "token"))
    bearer = token.read_text().strip() if token.exists() else ""
    # An empty file is what an interrupted write or a careless hand leaves: taken as a token it would open the server.
    if not bearer:
        bearer = new_token()
        write_private(token, bearer.encode())
    if certificate.exists() and key.exists():
        authority = Authority.load(certificate.read_bytes(), key.read_bytes())
        expires = x509.load_pem_x509_certificate(authority.certificate).not_valid_after_utc
        if expires - clock.now() > timedelta(days=365):
            return authority, bearer
    authority = Authority.create(clock)
    write_private(key, authority.key)
    write_private(certificate, authority.certificate)
    return authority, bearer


def write_kubeconfig(path: Path, url: str, authority: Authority, token: str) -> None:
    """Write a kubeconfig for the server at ``url``, readable by its owner only. It replaces what was there at once."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "runherd",
        "clusters": [
            {
                "name": "runherd",
                "cluster": {
                    "server": url,
                    "certificate-authority-data": base64.b64encode(authority.certificate).decode(),
                },
            }
        ],
        "users": [{"name": "runherd", "user": {"token": token}}],
        "contexts": [{"name": "runherd", "context": {"cluster": "runherd", "user": "runherd", "namespace": "default"}}],
    }
    write_private(path, yaml.safe_dump(config, sort_keys=False).encode())


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, whole or not at all."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
