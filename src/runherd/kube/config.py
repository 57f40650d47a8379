"""How an API server is reached and who we are to it: from kubeconfig files as kubectl reads them, or from inside."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runherd.kube.auth import Impersonation
from runherd.kube.errors import ConfigError
from runherd.kube.exec_plugin import API_VERSIONS, ExecConfig
from runherd.kube.kubeconfig import Cluster, Context, Entry, ExecSpec, Kubeconfig, User, read_kubeconfig
from runherd.wire.proxy import ProxyServer
from runherd.wire.target import Target
from runherd.wire.tls import client_context

__all__ = ["SERVICE_ACCOUNT_FOLDER", "ClientConfig", "in_cluster", "load_config", "load_kubeconfig"]

#: Where Kubernetes puts a pod's own credentials.
SERVICE_ACCOUNT_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_EXEC_EXTENSION = "client.authentication.k8s.io/exec"


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """An API server and who we are to it. ``repr`` shows no secrets. Certificates and keys are PEM."""

    #: Absolute URL, without a trailing slash.
    server: str
    namespace: str = "default"
    #: The roots to trust; ``None``: the system's.
    certificate_authority: bytes | None = field(default=None, repr=False)
    insecure_skip_tls_verify: bool = False
    #: The name that the server's certificate must have; empty: the URL's host.
    tls_server_name: str = ""
    #: The proxy for this server; ``None``: none is named here.
    proxy: ProxyServer | None = None
    disable_compression: bool = False
    token: str = field(default="", repr=False)
    #: A file with the token, read again and again. ``token`` holds until it could be read.
    token_file: Path | None = None
    client_certificate: bytes | None = field(default=None, repr=False)
    client_key: bytes | None = field(default=None, repr=False)
    #: Both are given or none; they are read again and again.
    client_certificate_file: Path | None = None
    client_key_file: Path | None = None
    exec: ExecConfig | None = None
    impersonation: Impersonation | None = None


def load_config(
    *,
    environment: Mapping[str, str],
    home: Path | None,
    kubeconfig: Path | None = None,
    context: str = "",
    interactive: bool = False,
    service_account_folder: Path = SERVICE_ACCOUNT_FOLDER,
) -> ClientConfig:
    """The configuration as kubectl finds it: kubeconfig files where there are any, else that of the pod we run in.

    Parameters are those of :func:`load_kubeconfig` and :func:`in_cluster`. Raises
    :class:`~runherd.kube.errors.ConfigError`.
    """
    paths = _paths(environment, home, kubeconfig)
    if kubeconfig is None and not any(path.exists() for path in paths) and environment.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environment, service_account_folder)
    return load_kubeconfig(
        environment=environment, home=home, kubeconfig=kubeconfig, context=context, interactive=interactive
    )


def load_kubeconfig(
    *,
    environment: Mapping[str, str],
    home: Path | None,
    kubeconfig: Path | None = None,
    context: str = "",
    interactive: bool = False,
) -> ClientConfig:
    """The configuration in kubeconfig files: ``kubeconfig``, or those that ``KUBECONFIG`` lists, or ``~/.kube/config``.

    ``environment`` holds ``KUBECONFIG`` and is passed to credential plugins. ``home`` is the user's home folder.
    ``context`` overrides the current context. ``interactive`` lets plugins ask their user on standard input.
    For a server without TLS the credentials are left out, as kubectl does it.

    Raises :class:`~runherd.kube.errors.ConfigError` for what is missing, contradictory or not supported (basic
    authentication, auth providers, ``v1alpha1`` plugins); its text names file, entry and field.
    """
    paths = _paths(environment, home, kubeconfig)
    if kubeconfig is not None and not kubeconfig.exists():
        raise ConfigError(f"{kubeconfig}: there is no such file")
    config = read_kubeconfig(paths)
    searched = ", ".join(map(str, paths)) or "no file: there is no home folder"
    chosen = _choose_context(config, context, searched)
    cluster = config.cluster(chosen.value.cluster)
    if cluster is None:
        raise chosen.error(f'cluster "{chosen.value.cluster}" is in none of the files ({searched})')
    user = config.user(chosen.value.user)
    if user is None:
        if chosen.value.user:
            raise chosen.error(f'user "{chosen.value.user}" is in none of the files ({searched})')
        user = Entry(chosen.file, "", User())
    return _client_config(chosen, cluster, user, environment, interactive)


def in_cluster(environment: Mapping[str, str], folder: Path = SERVICE_ACCOUNT_FOLDER) -> ClientConfig:
    """The configuration that Kubernetes gives to a pod: its service account's token, which rotates.

    ``environment`` tells where the server is. Raises :class:`~runherd.kube.errors.ConfigError` when this is no pod.
    """
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise ConfigError(
            "not in a cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set; name a kubeconfig file"
        )
    token_file, authority_file, namespace_file = folder / "token", folder / "ca.crt", folder / "namespace"
    try:
        token_file.read_bytes()
        authority = authority_file.read_bytes()
        _check_tls(roots=authority)
        namespace = namespace_file.read_text().strip() if namespace_file.exists() else ""
    except OSError as error:
        raise ConfigError(
            f"{error.filename}: {error.strerror}; does the pod's service account have automountServiceAccountToken?"
        ) from None
    except ValueError as error:
        raise ConfigError(f"{authority_file}: {error}") from None
    return ClientConfig(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=namespace or "default",
        certificate_authority=authority,
        token_file=token_file,
    )


def _paths(environment: Mapping[str, str], home: Path | None, kubeconfig: Path | None) -> list[Path]:
    if kubeconfig is not None:
        return [kubeconfig]
    listed = [entry for entry in environment.get("KUBECONFIG", "").split(os.pathsep) if entry]
    if listed:
        return [Path(entry) for entry in dict.fromkeys(listed)]
    return [] if home is None else [home / ".kube" / "config"]


def _choose_context(config: Kubeconfig, name: str, searched: str) -> Entry[Context]:
    name = name or config.current_context
    known = ", ".join(config.context_names)
    if not name:
        if not known:
            raise ConfigError(f"no Kubernetes configuration: there is no context in {searched}")
        raise ConfigError(f"{searched}: no current-context is set; choose one of: {known}")
    chosen = config.context(name)
    if chosen is None:
        raise ConfigError(f'{searched}: there is no context "{name}"; there are: {known or "none"}')
    return chosen


def _client_config(
    context: Entry[Context],
    cluster: Entry[Cluster],
    user: Entry[User],
    environment: Mapping[str, str],
    interactive: bool,
) -> ClientConfig:
    where, who = cluster.value, user.value
    _refuse(cluster, user)
    authority = cluster.contents("certificate-authority", where.certificate_authority, where.certificate_authority_data)
    from_files = bool(who.client_certificate and who.client_key)
    certificate = user.contents("client-certificate", who.client_certificate, who.client_certificate_data)
    key = user.contents("client-key", who.client_key, who.client_key_data)
    if (certificate is None) != (key is None):
        missing = "client-key" if key is None else "client-certificate"
        raise user.error(f"neither {missing} nor {missing}-data is given, but the other half of the pair is")
    try:
        _check_tls(roots=authority)
    except ValueError as error:
        raise cluster.error(f"certificate-authority: {error}") from None
    try:
        _check_tls(certificate=certificate, key=key)
    except ValueError as error:
        raise user.error(f"client-certificate: {error}") from None
    if who.token_file and not who.token:
        user.contents("tokenFile", who.token_file, "")
    server = _server(cluster, secure=bool(authority or certificate or where.insecure_skip_tls_verify))
    if server.startswith("http://"):
        # Without TLS anybody on the way could read credentials, so kubectl sends none.
        who, certificate, key, from_files = User(), None, None, False
    return ClientConfig(
        server=server,
        namespace=context.value.namespace or "default",
        certificate_authority=authority,
        insecure_skip_tls_verify=where.insecure_skip_tls_verify,
        tls_server_name=where.tls_server_name,
        proxy=_proxy(cluster),
        disable_compression=where.disable_compression,
        token=who.token,
        token_file=user.path(who.token_file) if who.token_file else None,
        client_certificate=certificate,
        client_key=key,
        client_certificate_file=user.path(who.client_certificate) if from_files else None,
        client_key_file=user.path(who.client_key) if from_files else None,
        exec=None if who.exec is None else _exec_config(user, who.exec, cluster, authority, environment, interactive),
        impersonation=_impersonation(user),
    )


def _refuse(cluster: Entry[Cluster], user: Entry[User]) -> None:
    """Raise for what contradicts itself, as kubectl does, and for what we don't have."""
    where, who = cluster.value, user.value
    if where.insecure_skip_tls_verify and (where.certificate_authority or where.certificate_authority_data):
        raise cluster.error("insecure-skip-tls-verify and a certificate-authority exclude each other; remove one")
    for entry, field_name, path, data in (
        (cluster, "certificate-authority", where.certificate_authority, where.certificate_authority_data),
        (user, "client-certificate", who.client_certificate, who.client_certificate_data),
        (user, "client-key", who.client_key, who.client_key_data),
    ):
        if path and data:
            raise entry.error(f"{field_name} and {field_name}-data are both given; remove one")
    if who.username or who.password:
        raise user.error(
            "username and password (basic authentication) are not supported, and Kubernetes has had none since 1.19;"
            " use a client certificate, a token or an exec plugin"
        )
    if who.auth_provider is not None:
        name = who.auth_provider.get("name", "?")
        raise user.error(
            f'auth-provider "{name}" is not supported, and kubectl has none since 1.26;'
            " use the exec plugin that replaces it"
        )


def _check_tls(*, roots: bytes | None = None, certificate: bytes | None = None, key: bytes | None = None) -> None:
    """Raise ``ValueError`` for what OpenSSL can't use, now that we still know where it stands."""
    client_context(roots=roots, system_roots=False, certificate=certificate, key=key)


def _server(cluster: Entry[Cluster], *, secure: bool) -> str:
    server = cluster.value.server.strip().rstrip("/")
    if not server:
        raise cluster.error("server is empty")
    if "://" not in server:
        server = f"{'https' if secure else 'http'}://{server}"
    try:
        Target.parse(server)
    except ValueError as error:
        raise cluster.error(f"server: {error}") from None
    scheme, _, rest = server.partition("://")
    return f"{scheme.lower()}://{rest}"


def _proxy(cluster: Entry[Cluster]) -> ProxyServer | None:
    if not cluster.value.proxy_url:
        return None
    try:
        return ProxyServer.parse(cluster.value.proxy_url, "proxy-url")
    except ValueError as error:
        raise cluster.error(str(error)) from None


def _impersonation(user: Entry[User]) -> Impersonation | None:
    who = user.value
    if not who.as_:
        if who.as_uid or who.as_groups or who.as_user_extra:
            raise user.error("as-uid, as-groups and as-user-extra need as, the user to impersonate")
        return None
    extra = {name: tuple(values) for name, values in who.as_user_extra.items()}
    return Impersonation(who.as_, who.as_uid, tuple(who.as_groups), extra)


def _exec_config(
    user: Entry[User],
    spec: ExecSpec,
    cluster: Entry[Cluster],
    authority: bytes | None,
    environment: Mapping[str, str],
    interactive: bool,
) -> ExecConfig:
    if not spec.command:
        raise user.error("exec.command is empty")
    if not all(variable.name for variable in spec.env):
        raise user.error("exec.env has a variable without name")
    if spec.api_version not in API_VERSIONS:
        raise user.error(
            f'exec.apiVersion "{spec.api_version}" is not supported; supported are {" and ".join(API_VERSIONS)}'
            " (a newer version of the plugin has one of them)"
        )
    # v1 has no default, which kubectl insists on as well.
    mode = spec.interactive_mode or ("IfAvailable" if spec.api_version.endswith("/v1beta1") else "")
    if mode not in {"Never", "IfAvailable", "Always"}:
        raise user.error(f'exec.interactiveMode is "{mode}"; it must be Never, IfAvailable or Always')
    if mode == "Always" and not interactive:
        raise user.error(
            "exec.interactiveMode is Always, but there is nobody to ask: run this on a terminal, or use a plugin that"
            " needs no answers"
        )
    command = spec.command
    if "/" in command:
        command = str(user.path(command))
    return ExecConfig(
        command=command,
        api_version=spec.api_version,
        args=tuple(spec.args),
        environment={**environment, **{variable.name: variable.value for variable in spec.env}},
        install_hint=spec.install_hint,
        cluster=_exec_cluster(cluster, authority) if spec.provide_cluster_info else None,
        interactive=interactive and mode != "Never",
        origin=str(user),
    )


def _exec_cluster(cluster: Entry[Cluster], authority: bytes | None) -> dict[str, Any]:
    """The cluster as a plugin is told about it (``client.authentication.k8s.io/v1``, Cluster)."""
    where = cluster.value
    config = next((extension.extension for extension in where.extensions if extension.name == _EXEC_EXTENSION), None)
    described = {
        "server": where.server,
        "tls-server-name": where.tls_server_name,
        "insecure-skip-tls-verify": where.insecure_skip_tls_verify,
        "certificate-authority-data": authority,
        "proxy-url": where.proxy_url,
        "disable-compression": where.disable_compression,
        "config": config,
    }
    return {name: value for name, value in described.items() if value}
