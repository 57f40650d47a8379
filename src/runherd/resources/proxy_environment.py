"""The environment variables that tell a container its proxies (``docs/spec/controllers.md`` 8.8, 8.10)."""

from __future__ import annotations

from typing import Any

from runherd.api.actions import ProxyConfig
from runherd.api.constants import ENV_HTTP_PROXY, ENV_HTTPS_PROXY, ENV_NO_PROXY

__all__ = ["from_secret", "proxy_environment"]


def from_secret(variable: str, secret: str, key: str) -> dict[str, Any]:
    """An environment variable with the value of ``key`` in the Secret ``secret``."""
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def proxy_environment(proxy: ProxyConfig | None, secret: str) -> list[dict[str, Any]]:
    """A variable for each part of ``proxy`` that is configured, with its value in the proxy secret ``secret``.

    None at all without a proxy or a secret (D-12).
    """
    if proxy is None or not secret:
        return []
    configured = {
        ENV_HTTP_PROXY: proxy.http is not None,
        ENV_HTTPS_PROXY: proxy.https is not None,
        ENV_NO_PROXY: bool(proxy.no_proxy),
    }
    return [from_secret(name, secret, name) for name, is_set in configured.items() if is_set]
