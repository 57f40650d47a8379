"""The network transport that a configuration asks for: its proxies and the certificates that it trusts."""

from __future__ import annotations

import ssl
from functools import lru_cache

from runherd.actions.errors import RootCertificatesError
from runherd.wire.network import NetworkTransport
from runherd.wire.proxy import ProxyConfig
from runherd.wire.tls import client_context
from runherd.wire.transport import Transport

__all__ = ["network_transport"]


def network_transport(proxies: ProxyConfig | None = None, roots: bytes | None = None) -> Transport:
    """A transport through ``proxies`` that trusts the system's roots and those in ``roots`` (PEM), 8.2 and 8.3.

    Raises :class:`~runherd.actions.RootCertificatesError` when ``roots`` holds no certificate.
    """
    return NetworkTransport(tls=_context(roots), proxies=proxies)


# The system's roots take tens of milliseconds to load, and most configurations share them.
@lru_cache(maxsize=16)
def _context(roots: bytes | None) -> ssl.SSLContext:
    try:
        return client_context(roots=roots)
    except ValueError as error:
        raise RootCertificatesError(f"the root certificates can't be used: {error}") from None
