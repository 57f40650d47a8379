"""The secrets with the proxies of runners and listeners (``docs/spec/controllers.md`` 8.11)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from runherd.api.actions import (
    AutoscalingListener,
    EphemeralRunnerSet,
    ProxyConfig,
    ProxyServerConfig,
)
from runherd.api.constants import ANNOTATION_INTEGRITY_HASH, ENV_HTTP_PROXY, ENV_HTTPS_PROXY, ENV_NO_PROXY
from runherd.api.resource import ApiObject
from runherd.resources.errors import BuildError
from runherd.resources.integrity_hash import content_hash
from runherd.resources.labels import scale_set_labels, scale_set_labels_of
from runherd.resources.names import listener_proxy_secret_name, runner_proxy_secret_name
from runherd.resources.owner import built_metadata
from runherd.resources.secret_data import encoded_data
from runherd.wire.proxy import ProxyServer

__all__ = ["listener_proxy_secret", "proxy_credential_secrets", "proxy_data", "runner_proxy_secret"]

# What Go leaves as it is in the user information of a URL, besides letters, digits and "_.-~".
_UNESCAPED = "$&+,;="
_SCHEME_AND_USER = re.compile(r"(?P<scheme>[^:/?#]+://)(?:[^@/?#]*@)?")


def proxy_credential_secrets(proxy: ProxyConfig) -> list[str]:
    """The names of the secrets (or of the vault's) with credentials for ``proxy``, each once."""
    references = (server.credential_secret_ref for server in (proxy.http, proxy.https) if server is not None)
    return list(dict.fromkeys(filter(None, references)))


def proxy_data(proxy: ProxyConfig, credentials: Mapping[str, Mapping[str, bytes]]) -> dict[str, str]:
    """The content of a proxy secret: all three keys, empty where nothing is configured. Never log it.

    ``credentials`` holds the (decoded) data of each of :func:`proxy_credential_secrets`. Raises :class:`BuildError`.
    """
    return {
        ENV_HTTP_PROXY: _proxy_url(proxy.http, "proxy.http", credentials),
        ENV_HTTPS_PROXY: _proxy_url(proxy.https, "proxy.https", credentials),
        ENV_NO_PROXY: ",".join(proxy.no_proxy),
    }


def runner_proxy_secret(runner_set: EphemeralRunnerSet, data: Mapping[str, str]) -> dict[str, Any]:
    """The body of the secret with the proxies of the runners of ``runner_set``; ``data`` is of :func:`proxy_data`."""
    metadata = runner_set.metadata
    name = runner_proxy_secret_name(metadata.name, metadata.namespace)
    return _proxy_secret(name, runner_set, scale_set_labels_of(metadata.labels), data)


def listener_proxy_secret(listener: AutoscalingListener, data: Mapping[str, str]) -> dict[str, Any]:
    """The body of the secret with the proxies of ``listener``; ``data`` is of :func:`proxy_data`."""
    spec = listener.spec
    labels = scale_set_labels(spec.autoscaling_runner_set_name, spec.autoscaling_runner_set_namespace)
    return _proxy_secret(listener_proxy_secret_name(listener.metadata.name), listener, labels, data)


def _proxy_secret(name: str, owner: ApiObject, labels: Mapping[str, str], data: Mapping[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": built_metadata(
            name,
            owner.metadata.namespace,
            labels=labels,
            annotations={ANNOTATION_INTEGRITY_HASH: content_hash(data)},
            owner=owner,
        ),
        "data": encoded_data(data),
    }


def _proxy_url(server: ProxyServerConfig | None, field: str, credentials: Mapping[str, Mapping[str, bytes]]) -> str:
    """The URL of ``server`` with its credentials in it; empty when there is no such proxy."""
    if server is None:
        return ""
    url = server.url if "://" in server.url else f"http://{server.url}"
    try:
        ProxyServer.parse(url, f"{field}.url")
    except ValueError as error:
        raise BuildError(str(error)) from None
    if not server.credential_secret_ref:
        return url
    user = _user_information(credentials[server.credential_secret_ref], f"{field}.credentialSecretRef", server)
    return _SCHEME_AND_USER.sub(lambda match: f"{match['scheme']}{user}@", url, count=1)


def _user_information(data: Mapping[str, bytes], field: str, server: ProxyServerConfig) -> str:
    if not data.get("username"):
        raise BuildError(
            f"{field}: secret {server.credential_secret_ref} has no key username; it needs username and password"
        )
    return ":".join(quote(data.get(key, b""), safe=_UNESCAPED) for key in ("username", "password"))
