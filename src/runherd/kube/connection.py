"""From a configuration to a client that can be called."""

from __future__ import annotations

import ssl
from random import Random

from runherd.kube.auth import AuthenticatedTransport
from runherd.kube.client import Client
from runherd.kube.config import ClientConfig
from runherd.kube.credentials import Credential, CredentialSource, FileCredentials, StaticCredentials
from runherd.kube.errors import ConfigError
from runherd.kube.exec_plugin import ExecPlugin
from runherd.kube.limiter import WriteLimiter
from runherd.kube.rest import RequestObserver
from runherd.wire.clock import Clock
from runherd.wire.network import NetworkTransport
from runherd.wire.proxy import ProxyConfig
from runherd.wire.tls import client_context

__all__ = ["connect", "open_transport"]


def connect(
    config: ClientConfig,
    *,
    limiter: WriteLimiter | None,
    clock: Clock,
    random: Random,
    user_agent: str = "runherd",
    observer: RequestObserver | None = None,
    proxies: ProxyConfig | None = None,
) -> Client:
    """A client of the API server that ``config`` describes. Nothing is sent before its first call.

    ``proxies`` are the proxies of the environment; a proxy in ``config`` comes before them. Raises
    :class:`~runherd.kube.errors.ConfigError` when certificates or keys can't be used.
    """
    return Client(
        open_transport(config, clock=clock, proxies=proxies),
        config.server,
        limiter=limiter,
        clock=clock,
        random=random,
        user_agent=user_agent,
        observer=observer,
        headers={"Accept-Encoding": "identity"} if config.disable_compression else None,
    )


def open_transport(config: ClientConfig, *, clock: Clock, proxies: ProxyConfig | None = None) -> AuthenticatedTransport:
    """A transport that signs its requests; for several clients of one server. Parameters as in :func:`connect`."""
    static = Credential(config.token, config.client_certificate, config.client_key)
    try:
        tls = _context(config, static)
    except ValueError as error:
        raise ConfigError(f"{config.server} can't be reached as configured: {error}") from None
    network = NetworkTransport(
        tls=tls,
        server_hostname=config.tls_server_name or None,
        proxies=proxies if config.proxy is None else ProxyConfig.for_everything(config.proxy),
    )
    return AuthenticatedTransport(
        network,
        _source(config, static, clock),
        use_certificate=lambda credential: network.set_tls(_context(config, credential)),
        certificate_in_use=static,
        impersonation=config.impersonation,
    )


def _context(config: ClientConfig, credential: Credential) -> ssl.SSLContext:
    """The TLS side of ``config`` with the client certificate of ``credential``. Raises ``ValueError``."""
    return client_context(
        roots=config.certificate_authority,
        system_roots=config.certificate_authority is None,
        verify=not config.insecure_skip_tls_verify,
        certificate=credential.certificate,
        key=credential.key,
    )


def _source(config: ClientConfig, static: Credential, clock: Clock) -> CredentialSource:
    if config.token_file is not None or config.client_certificate_file is not None:
        return FileCredentials(
            token_file=config.token_file,
            certificate_file=config.client_certificate_file,
            key_file=config.client_key_file,
            fallback=static,
        )
    # As in client-go, a plugin counts only where the kubeconfig itself gives nothing.
    if config.exec is not None and static == Credential():
        return ExecPlugin(config.exec, clock)
    return StaticCredentials(static)
