"""Certificates that trustme doesn't make: with a common name only, or given out by hand to an odd shape."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

__all__ = ["Identity", "issue"]


@dataclass(frozen=True)
class Identity:
    """A certificate and its key."""

    certificate: x509.Certificate
    private_key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def key(self) -> bytes:
        return self.private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def encrypted_key(self, password: bytes) -> bytes:
        return self.private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password))


def issue(
    common_name: str,
    *,
    issuer: Identity | None = None,
    is_authority: bool = False,
    dns_names: tuple[str, ...] = (),
) -> Identity:
    """A certificate without the extensions that RFC 5280 wants beside the ones asked for; self-signed by default."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
    )
    if is_authority:
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    if dns_names:
        names = x509.SubjectAlternativeName([x509.DNSName(dns_name) for dns_name in dns_names])
        builder = builder.add_extension(names, critical=False)
    return Identity(builder.sign(key if issuer is None else issuer.private_key, hashes.SHA256()), key)
