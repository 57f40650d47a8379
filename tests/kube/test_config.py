from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from runherd.kube.auth import Impersonation
from runherd.kube.config import ClientConfig, in_cluster, load_config, load_kubeconfig
from runherd.kube.errors import ConfigError
from tests.kube.kubeconfigs import authority, b64, kubeconfig, pair, write

EXEC = {"command": "get-token", "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never"}


def load(
    folder: Path,
    *,
    cluster: Mapping[str, Any] | None = None,
    user: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    interactive: bool = False,
) -> ClientConfig:
    """What a file with this cluster and user says."""
    content = kubeconfig(
        clusters={"here": {"server": "https://api.test", **(cluster or {})}}, users={"me": user or {}}, current="it"
    )
    path = folder / "config"
    write(path, content)
    return load_kubeconfig(environment=environment or {}, home=None, kubeconfig=path, interactive=interactive)


# --- Which file, which context -------------------------------------------------------------------------------------


def test_the_file_in_the_home_folder_is_the_default(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    write(tmp_path / ".kube" / "config", kubeconfig(users={"me": {"token": "home"}}, current="it"))
    assert load_kubeconfig(environment={"KUBECONFIG": ""}, home=tmp_path).token == "home"
    other = write(tmp_path / "other", kubeconfig(users={"me": {"token": "other"}}, current="it"))
    assert load_kubeconfig(environment={"KUBECONFIG": other}, home=tmp_path).token == "other"
    named = tmp_path / "named"
    write(named, kubeconfig(users={"me": {"token": "named"}}, current="it"))
    assert load_kubeconfig(environment={"KUBECONFIG": other}, home=tmp_path, kubeconfig=named).token == "named"


def test_a_context_can_be_chosen(tmp_path: Path) -> None:
    contexts = {
        "a": {"cluster": "here", "namespace": "one"},
        "b": {"cluster": "here", "user": "me", "namespace": "two"},
    }
    paths = write(tmp_path / "config", kubeconfig(contexts=contexts, current="a"))
    environment = {"KUBECONFIG": paths}
    nobody = load_kubeconfig(environment=environment, home=None)
    assert (nobody.namespace, nobody.token) == ("one", "")
    chosen = load_kubeconfig(environment=environment, home=None, context="b")
    assert (chosen.namespace, chosen.token) == ("two", "t0")


@pytest.mark.parametrize(
    ("content", "context", "message"),
    [
        (kubeconfig(), "", r"config: no current-context is set; choose one of: it"),
        (kubeconfig(), "other", r'config: there is no context "other"; there are: it'),
        (kubeconfig(contexts={}), "", r"no Kubernetes configuration: there is no context in .*config"),
        (kubeconfig(clusters={}), "it", r'config: context "it": cluster "here" is in none of the files \(.*config\)'),
        (kubeconfig(users={}), "it", r'config: context "it": user "me" is in none of the files'),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, content: dict[str, Any], context: str, message: str) -> None:
    write(tmp_path / "config", content)
    with pytest.raises(ConfigError, match=message):
        load_kubeconfig(environment={}, home=None, kubeconfig=tmp_path / "config", context=context)


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere: there is no such file"):
        load_kubeconfig(environment={}, home=None, kubeconfig=tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="there is no home folder"):
        load_kubeconfig(environment={}, home=None)


# --- The cluster ---------------------------------------------------------------------------------------------------


def test_all_fields_of_a_cluster(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        cluster={
            "server": "HTTPS://api.test:6443/prefix/",
            "certificate-authority-data": b64(authority().certificate),
            "tls-server-name": "inner.test",
            "proxy-url": "http://user:secret@proxy.test:3128",
            "disable-compression": True,
        },
    )
    assert config.server == "https://api.test:6443/prefix"
    assert config.certificate_authority == authority().certificate
    assert (config.tls_server_name, config.disable_compression) == ("inner.test", True)
    assert config.proxy is not None
    assert (config.proxy.host, config.proxy.port, config.proxy.password) == ("proxy.test", 3128, "secret")
    assert load(tmp_path, cluster={"insecure-skip-tls-verify": True}).insecure_skip_tls_verify


def test_a_server_without_scheme_is_https_where_tls_is_configured(tmp_path: Path) -> None:
    assert load(tmp_path, cluster={"server": "api.test:8080"}).server == "http://api.test:8080"
    assert load(tmp_path, cluster={"server": "api.test", "insecure-skip-tls-verify": True}).server == "https://api.test"


def test_no_credentials_go_to_a_server_without_tls(tmp_path: Path) -> None:
    user = {
        "token": "t",
        "client-certificate-data": b64(pair().certificate),
        "client-key-data": b64(pair().key),
        "exec": EXEC,
    }
    config = load(tmp_path, cluster={"server": "http://api.test"}, user=user)
    assert (config.token, config.client_certificate, config.client_key, config.exec) == ("", None, None, None)


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ({"server": ""}, "server is empty"),
        ({"server": "unix:///run/api"}, "server: not an absolute http or https URL"),
        ({"server": "https://user:s3cr3t@api.test"}, "server: not an absolute http or https URL without user info"),
        ({"certificate-authority-data": "???"}, "certificate-authority-data is not base64"),
        ({"certificate-authority-data": b64(b"nothing")}, "certificate-authority: no certificate"),
        ({"certificate-authority": "missing.crt"}, r"certificate-authority: can't read .*/missing.crt: No such file"),
        (
            {"certificate-authority": "a", "certificate-authority-data": "YQ=="},
            "certificate-authority and certificate-authority-data are both given",
        ),
        ({"certificate-authority": "a", "insecure-skip-tls-verify": True}, "insecure-skip-tls-verify and"),
        ({"proxy-url": "ftp://proxy"}, "proxy-url: proxies of scheme ftp are not supported"),
        ({"insecure-skip-tls-verify": "yes"}, r"Expected `bool`, got `str` - at `\$.insecure-skip-tls-verify`"),
    ],
)
def test_a_cluster_that_can_not_be_used_is_named(tmp_path: Path, cluster: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f'/config: cluster "here": {message}') as caught:
        load(tmp_path, cluster=cluster)
    assert "s3cr3t" not in str(caught.value)


# --- The user ------------------------------------------------------------------------------------------------------


def test_a_certificate_as_data_and_as_files(tmp_path: Path) -> None:
    who = pair()
    data = load(tmp_path, user={"client-certificate-data": b64(who.certificate), "client-key-data": b64(who.key)})
    assert (data.client_certificate, data.client_key, data.client_certificate_file) == (who.certificate, who.key, None)
    (tmp_path / "me.crt").write_bytes(who.certificate)
    (tmp_path / "me.key").write_bytes(who.key)
    files = load(tmp_path, user={"client-certificate": "me.crt", "client-key": "me.key"})
    assert (files.client_certificate_file, files.client_key_file) == (tmp_path / "me.crt", tmp_path / "me.key")
    mixed = load(tmp_path, user={"client-certificate": "me.crt", "client-key-data": b64(who.key)})
    assert (mixed.client_certificate, mixed.client_key, mixed.client_key_file) == (who.certificate, who.key, None)


def test_impersonation(tmp_path: Path) -> None:
    user = {"as": "jane", "as-uid": "u1", "as-groups": ["dev", "ops"], "as-user-extra": {"scopes": ["a", "b"]}}
    config = load(tmp_path, user=user)
    assert config.impersonation == Impersonation("jane", "u1", ("dev", "ops"), {"scopes": ("a", "b")})


def test_an_exec_plugin(tmp_path: Path) -> None:
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}
    cluster = {
        "certificate-authority-data": b64(authority().certificate),
        "tls-server-name": "inner.test",
        "extensions": [{"name": "other", "extension": 1}, extension],
    }
    user = {
        "exec": EXEC
        | {
            "args": ["--for", "me"],
            "env": [{"name": "PROFILE", "value": "dev"}, {"name": "EMPTY"}],
            "installHint": "install it",
            "provideClusterInfo": True,
        }
    }
    plugin = load(tmp_path, cluster=cluster, user=user, environment={"PATH": "/bin", "PROFILE": "prod"}).exec
    assert plugin is not None
    assert (plugin.command, plugin.args, plugin.install_hint) == ("get-token", ("--for", "me"), "install it")
    assert plugin.environment == {"PATH": "/bin", "PROFILE": "dev", "EMPTY": ""}
    assert plugin.cluster == {
        "server": "https://api.test",
        "tls-server-name": "inner.test",
        "certificate-authority-data": authority().certificate,
        "config": {"audience": "x"},
    }
    assert not plugin.interactive
    assert load(tmp_path, user={"exec": EXEC}).exec != plugin


def test_a_relative_plugin_counts_from_its_file_and_a_bare_name_from_the_path(tmp_path: Path) -> None:
    for command, expected in (
        ("./bin/plugin", str(tmp_path / "bin/plugin")),
        ("/opt/plugin", "/opt/plugin"),
        ("plugin", "plugin"),
    ):
        plugin = load(tmp_path, user={"exec": EXEC | {"command": command}}).exec
        assert plugin is not None
        assert plugin.command == expected


@pytest.mark.parametrize(
    ("mode", "version", "on_a_terminal", "interactive"),
    [
        ("Never", "v1", True, False),
        ("IfAvailable", "v1", True, True),
        ("IfAvailable", "v1", False, False),
        ("Always", "v1", True, True),
        ("", "v1beta1", True, True),
        ("", "v1beta1", False, False),
    ],
)
def test_interactive_mode(tmp_path: Path, mode: str, version: str, on_a_terminal: bool, interactive: bool) -> None:
    spec = EXEC | {"interactiveMode": mode, "apiVersion": f"client.authentication.k8s.io/{version}"}
    plugin = load(tmp_path, user={"exec": spec}, interactive=on_a_terminal).exec
    assert plugin is not None
    assert plugin.interactive is interactive


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ({"username": "a", "password": "secret"}, r"username and password \(basic authentication\) are not supported"),
        ({"auth-provider": {"name": "gcp"}}, 'auth-provider "gcp" is not supported'),
        ({"client-key-data": b64(pair().key)}, "neither client-certificate nor client-certificate-data is given"),
        ({"client-certificate-data": b64(pair().certificate)}, "neither client-key nor client-key-data is given"),
        (
            {"client-certificate-data": b64(pair("x").certificate), "client-key-data": b64(pair("y").key)},
            "client-certificate: certificate and key can't be used",
        ),
        ({"client-key": "k", "client-key-data": "aw=="}, "client-key and client-key-data are both given"),
        ({"tokenFile": "missing"}, r"tokenFile: can't read .*/missing: No such file"),
        ({"as-groups": ["root"]}, "as-uid, as-groups and as-user-extra need as"),
        ({"exec": EXEC | {"command": ""}}, r"exec\.command is empty"),
        (
            {"exec": EXEC | {"apiVersion": "client.authentication.k8s.io/v1alpha1"}},
            r"exec\.apiVersion .*v1alpha1. is not",
        ),
        (
            {"exec": EXEC | {"apiVersion": ""}},
            r'exec\.apiVersion "" is not supported; supported are .*/v1 and .*/v1beta1',
        ),
        ({"exec": EXEC | {"interactiveMode": ""}}, r'exec\.interactiveMode is ""; it must be'),
        (
            {"exec": EXEC | {"interactiveMode": "Always"}},
            r"exec\.interactiveMode is Always, but there is nobody to ask",
        ),
        ({"exec": EXEC | {"env": [{"value": "x"}]}}, r"exec\.env has a variable without name"),
        ({"exec": EXEC | {"args": "x"}}, r"Expected `array`, got `str` - at `\$\.exec\.args`"),
    ],
)
def test_a_user_that_can_not_be_used_is_named(tmp_path: Path, user: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f'/config: user "me": {message}') as caught:
        load(tmp_path, user=user)
    assert "secret" not in str(caught.value)


def test_a_configuration_shows_no_secrets(tmp_path: Path) -> None:
    user = {"token": "s3cr3t", "exec": EXEC | {"args": ["s3cr3t"], "env": [{"name": "X", "value": "s3cr3t"}]}}
    config = load(tmp_path, cluster={"proxy-url": "http://user:s3cr3t@proxy.test"}, user=user)
    assert "s3cr3t" not in repr(config)


# --- Inside a cluster ----------------------------------------------------------------------------------------------

INSIDE = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def account(tmp_path: Path) -> Path:
    """The folder that a pod sees."""
    (tmp_path / "token").write_text("pod-token\n")
    (tmp_path / "ca.crt").write_bytes(authority().certificate)
    (tmp_path / "namespace").write_text("runners")
    return tmp_path


def test_in_cluster(account: Path) -> None:
    config = in_cluster(INSIDE, account)
    assert (config.server, config.namespace) == ("https://10.0.0.1:443", "runners")
    assert config.certificate_authority == authority().certificate
    assert config.token_file == account / "token"
    assert in_cluster(INSIDE | {"KUBERNETES_SERVICE_HOST": "fd00::1"}, account).server == "https://[fd00::1]:443"
    (account / "namespace").unlink()
    assert in_cluster(INSIDE, account).namespace == "default"


def test_outside_of_a_cluster_the_error_says_so(account: Path) -> None:
    with pytest.raises(ConfigError, match="not in a cluster: KUBERNETES_SERVICE_HOST"):
        in_cluster({}, account)
    with pytest.raises(ConfigError, match="not in a cluster"):
        in_cluster({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, account)


@pytest.mark.parametrize("name", ["token", "ca.crt"])
def test_a_pod_without_its_service_account_is_told_why(account: Path, name: str) -> None:
    (account / name).unlink()
    with pytest.raises(ConfigError, match=f"/{name}: No such file.*automountServiceAccountToken"):
        in_cluster(INSIDE, account)


def test_a_pod_with_a_broken_ca_is_told_which_file_it_is(account: Path) -> None:
    (account / "ca.crt").write_text("nothing")
    with pytest.raises(ConfigError, match=r"/ca\.crt: no certificate"):
        in_cluster(INSIDE, account)


def test_files_come_before_the_cluster_that_we_are_in(account: Path) -> None:
    home = account / "home"
    inside = load_config(environment=INSIDE, home=home, service_account_folder=account)
    assert inside.token_file == account / "token"
    (home / ".kube").mkdir(parents=True)
    write(home / ".kube" / "config", kubeconfig(current="it"))
    assert load_config(environment=INSIDE, home=home, service_account_folder=account).token == "t0"


def test_a_file_that_was_asked_for_is_not_replaced_by_the_cluster_that_we_are_in(account: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_config(environment=INSIDE, home=None, kubeconfig=account / "x", service_account_folder=account)
