"""TLS contexts, with the rules of Go's ``crypto/tls`` where Python's differ (``docs/spec/actions-service.md`` 8.2).

An intermediate or even a leaf among the roots is accepted as a trust anchor; a certificate's common name is not looked
at; certificates that merely break the letter of RFC 5280 (which Python 3.13 began to refuse) are accepted.
"""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

__all__ = ["client_context", "load_certificate", "server_context"]

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)

# Where distributions keep their roots, for a Python whose OpenSSL was built to look elsewhere.
_SYSTEM_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def client_context(
    *,
    roots: bytes | None = None,
    system_roots: bool = True,
    verify: bool = True,
    certificate: bytes | None = None,
    key: bytes | None = None,
) -> ssl.SSLContext:
    """A context for connections that we make.

    ``roots`` is PEM with certificates to trust; with ``system_roots=False`` only those count. ``verify=False`` accepts
    any certificate. ``certificate`` (PEM, leaf first) and ``key`` are what we identify ourselves with.

    Raises ``ValueError`` when a PEM holds nothing that can be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if verify:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.hostname_checks_common_name = False
        if system_roots:
            _load_system_roots(context)
        if roots is not None:
            context.load_verify_locations(cadata=_parse_certificates(roots))
    else:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        load_certificate(context, certificate, key)
    return context


def server_context(certificate: bytes, key: bytes) -> ssl.SSLContext:
    """A context for connections that we accept, with ``certificate`` (PEM, leaf first) and its ``key``.

    To replace a certificate while the server runs, call :func:`load_certificate` on its context.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    load_certificate(context, certificate, key)
    return context


def load_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes | None = None) -> None:
    """Give ``context`` our certificate for handshakes from now on; connections that are open keep theirs.

    ``key`` may be left out where ``certificate`` holds it too. Raises ``ValueError`` when the two can't be used.
    """
    try:
        # OpenSSL finds certificate and key in one file.
        with _private_file(certificate + b"\n" + (key or b"")) as path:
            context.load_cert_chain(path, password=_refuse_password)
    except (ssl.SSLError, OSError) as error:
        reason = getattr(error, "reason", None) or "the PEM data lacks one of the two"
        raise ValueError(
            f"certificate and key can't be used ({reason}): expected a PEM certificate and its own, unencrypted key"
        ) from None


def _load_system_roots(context: ssl.SSLContext) -> None:
    paths = ssl.get_default_verify_paths()
    if not any((paths.cafile, paths.capath)):
        for bundle in map(Path, _SYSTEM_BUNDLES):
            if bundle.is_file():
                context.load_verify_locations(bundle)
                return
    context.load_default_certs()


def _parse_certificates(pem: bytes) -> bytes:
    """The certificates in ``pem``, in DER, one after the other. What can't be parsed is skipped, as Go does."""
    parsed = b"".join(_parse_certificate(block) for block in _CERTIFICATE.findall(pem))
    if not parsed:
        raise ValueError("no certificate in the PEM data for the roots to trust")
    return parsed


def _parse_certificate(block: bytes) -> bytes:
    try:
        return x509.load_pem_x509_certificate(block).public_bytes(Encoding.DER)
    except ValueError:
        return b""


def _refuse_password() -> str:
    # Otherwise OpenSSL asks for it on the terminal.
    raise ValueError("the key is encrypted; decrypt it first")


@contextmanager
def _private_file(content: bytes) -> Iterator[str]:
    """A path that shows ``content`` to OpenSSL, which can read keys from files only, and to nobody else."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("key", os.MFD_CLOEXEC)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "key")
        path.touch(mode=0o600)
        path.write_bytes(content)
        yield str(path)
