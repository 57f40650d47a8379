"""Merging and reading of files, compared with kubectl and with the official Python client."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kubernetes
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runherd.kube.config import ClientConfig, load_kubeconfig
from runherd.kube.errors import ConfigError
from runherd.kube.kubeconfig import User, read_kubeconfig
from tests.kube.kubeconfigs import authority, b64, kubeconfig, pair, write


def load(paths: str, context: str = "", home: Path | None = None) -> ClientConfig:
    return load_kubeconfig(environment={"KUBECONFIG": paths}, home=home, context=context)


# --- What the files say --------------------------------------------------------------------------------------------


def test_the_first_file_to_name_an_entry_wins_and_entries_are_not_mixed(tmp_path: Path) -> None:
    paths = write(
        tmp_path / "config",
        kubeconfig(clusters={}, users={"me": {"token": "first"}}),
        kubeconfig(
            clusters={"here": {"server": "https://second"}},
            users={"me": {"token": "second", "as": "root"}},
            current="it",
        ),
        kubeconfig(clusters={"here": {"server": "https://third"}}, current="other"),
    )
    config = load(paths)
    assert (config.token, config.server, config.impersonation) == ("first", "https://second", None)


def test_files_that_do_not_exist_are_passed_over(tmp_path: Path) -> None:
    paths = write(tmp_path / "config", kubeconfig(current="it"))
    assert load(os.pathsep.join(["", str(tmp_path / "missing"), paths, paths])).token == "t0"


def test_relative_paths_count_from_the_file_they_stand_in(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    for folder in (first, second):
        folder.mkdir()
        (folder / "token").write_text(folder.name)
        (folder / "ca.crt").write_bytes(authority(folder.name).certificate)
    cluster = {"here": {"server": "https://api.test", "certificate-authority": "ca.crt"}}
    user = {"me": {"tokenFile": "token"}}
    paths = os.pathsep.join(
        [
            write(first / "config", kubeconfig(clusters=cluster, users={}, contexts={})),
            write(second / "config", kubeconfig(clusters={}, users=user, current="it")),
        ]
    )
    config = load(paths)
    assert config.certificate_authority == authority("a").certificate
    assert config.token_file == second / "token"


def test_null_means_absent(tmp_path: Path) -> None:
    paths = write(
        tmp_path / "config",
        kubeconfig(
            users={"me": {"token": None, "exec": None}}, clusters={"here": {"server": "https://x", "proxy-url": None}}
        )
        | {"current-context": "it", "preferences": None},
    )
    assert load(paths).token == ""


def test_what_looks_like_a_date_is_a_name(tmp_path: Path) -> None:
    text = """
clusters: [{name: 2026-01-02, cluster: {server: https://dated}}]
contexts: [{name: 2026-01-01, context: {cluster: 2026-01-02}}]
current-context: 2026-01-01
"""
    assert load(write(tmp_path / "config", text)).server == "https://dated"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("clusters: [\n}", r"config: is not YAML \(line 2\)"),
        ("\x00", r"config: is not YAML"),
        ("[1, 2]", "config: is no kubeconfig: Expected `object`, got `array`"),
        ("clusters: {}", r"config: is no kubeconfig: Expected `array`, got `object` - at `\$.clusters`"),
        ("users: [{user: {}}]", r"config: is no kubeconfig: Object missing required field `name` - at `\$.users\[0\]`"),
        ("users: [{name: a}, {name: a}]", r'config: there is more than one user "a"'),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_named(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(write(tmp_path / "config", content))


def test_an_entry_that_can_not_be_read_is_named_and_spoils_no_other(tmp_path: Path) -> None:
    users: dict[str, dict[str, Any]] = {"me": {"token": "t0"}, "odd": {"token": 12345678901234567890}}
    contexts = {"it": {"cluster": "here", "user": "me"}, "bad": {"cluster": "here", "user": "odd"}}
    paths = write(tmp_path / "config", kubeconfig(users=users, contexts=contexts, current="it"))
    assert load(paths).token == "t0"
    with pytest.raises(ConfigError, match=r'config: user "odd": Expected `str`, got `int` - at `\$.token`'):
        load(paths, "bad")


def test_a_file_that_can_not_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be read: Is a directory"):
        load(str(tmp_path))


def test_secrets_are_in_no_text(tmp_path: Path) -> None:
    secret = "s3cr3t-s3cr3t"
    users = {"me": {"token": secret, "password": secret, "client-key-data": b64(secret.encode())}}
    write(tmp_path / "config", kubeconfig(users=users, current="it"))
    config = read_kubeconfig([tmp_path / "config"])
    user = config.user("me")
    assert user is not None
    for text in (repr(user), str(user), repr(user.value), repr(config)):
        assert secret not in text
    assert isinstance(user.value, User)
    with pytest.raises(ConfigError) as caught:
        load(str(tmp_path / "config"))
    assert secret not in str(caught.value)
    write(tmp_path / "broken", f"users: [{{name: me, user: {{token: '{secret}'")
    with pytest.raises(ConfigError) as caught:
        load(str(tmp_path / "broken"))
    assert secret not in str(caught.value)


# --- What the official client reads --------------------------------------------------------------------------------


def essence(config: ClientConfig) -> dict[str, Any]:
    token = config.token_file.read_text() if config.token_file is not None and not config.token else config.token
    return {
        "host": config.server,
        "ca": config.certificate_authority,
        "certificate": config.client_certificate,
        "key": config.client_key,
        "token": token,
        "verify": not config.insecure_skip_tls_verify,
        "tls_server_name": config.tls_server_name,
        "proxy": "" if config.proxy is None else config.proxy.url,
    }


def official_essence(paths: str, context: str) -> dict[str, Any]:
    configuration = kubernetes.client.Configuration()
    load_official: Any = kubernetes.config.load_kube_config  # it has no types
    load_official(paths, context, client_configuration=configuration, persist_config=False)

    def content(path: str | None) -> bytes | None:
        return Path(path).read_bytes() if path else None

    return {
        "host": configuration.host,
        "ca": content(configuration.ssl_ca_cert),
        "certificate": content(configuration.cert_file),
        "key": content(configuration.key_file),
        "token": configuration.api_key.get("BearerToken", "").removeprefix("Bearer "),
        "verify": configuration.verify_ssl,
        "tls_server_name": configuration.tls_server_name or "",
        "proxy": configuration.proxy or "",
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the generated files are, and the files that they name."""
    folder = tmp_path_factory.mktemp("kubeconfig")
    (folder / "ca.crt").write_bytes(authority().certificate)
    (folder / "token").write_text("from-a-file")
    for name in ("x", "y"):
        (folder / f"{name}.crt").write_bytes(pair(name).certificate)
        (folder / f"{name}.key").write_bytes(pair(name).key)
    return folder


cluster_bodies = st.fixed_dictionaries(
    {"server": st.sampled_from(["https://a.test", "https://b.test:6443/", "https://c.test/k8s/clusters/c-1"])},
    optional={
        "tls-server-name": st.sampled_from(["inner.test"]),
        "proxy-url": st.sampled_from(["http://proxy.test:3128", "socks5://proxy.test:1080"]),
    },
)
trusts = st.sampled_from(["", "data", "file", "insecure"])
secrets_ = st.sampled_from(["", "token", "file"])
certificates = st.sampled_from(["", "data", "file"])


@st.composite
def clusters(draw: st.DrawFn) -> dict[str, Any]:
    body: dict[str, Any] = dict(draw(cluster_bodies))
    certificate = authority(draw(st.sampled_from(["one", "two"]))).certificate
    match draw(trusts):
        case "data":
            body["certificate-authority-data"] = b64(certificate)
        case "file":
            body["certificate-authority"] = draw(st.sampled_from(["ca.crt", "FOLDER/ca.crt"]))
        case "insecure":
            body["insecure-skip-tls-verify"] = True
    return body


@st.composite
def users(draw: st.DrawFn) -> dict[str, Any]:
    body: dict[str, Any] = {}
    name = draw(st.sampled_from(["x", "y"]))
    who = pair(name)
    match draw(secrets_):
        case "token":
            body["token"] = draw(st.sampled_from(["t1", "t2"]))
        case "file":
            body["tokenFile"] = draw(st.sampled_from(["token", "FOLDER/token"]))
    match draw(certificates):
        case "data":
            body |= {"client-certificate-data": b64(who.certificate), "client-key-data": b64(who.key)}
        case "file":
            body |= {"client-certificate": f"{name}.crt", "client-key": f"FOLDER/{name}.key"}
    return body


names = st.sampled_from(["a", "b"])
files = st.builds(
    kubeconfig,
    clusters=st.dictionaries(names, clusters()),
    users=st.dictionaries(names, users()),
    contexts=st.dictionaries(names, st.fixed_dictionaries({"cluster": names, "user": names})),
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(contents=st.lists(files, min_size=1, max_size=3), context=names)
def test_the_official_client_reads_the_same(folder: Path, contents: list[dict[str, Any]], context: str) -> None:
    texts = [json.dumps(content).replace("FOLDER", str(folder)) for content in contents]
    paths = write(folder / "config", *texts)
    # The official client takes a user that exists nowhere for nobody, and so says nothing of it; kubectl refuses it.
    named = {body["name"]: body["context"] for content in reversed(contents) for body in content["contexts"]}
    known = {body["name"] for content in contents for body in content["users"]}
    if context in named and named[context]["user"] not in known:
        with pytest.raises(ConfigError, match=r"(user|cluster) .* is in none of the files"):
            load(paths, context)
        return
    try:
        expected = official_essence(paths, context)
    except kubernetes.config.ConfigException:
        with pytest.raises(ConfigError):
            load(paths, context)
        return
    assert essence(load(paths, context)) == expected


# --- What kubectl reads --------------------------------------------------------------------------------------------


def kubectl_essence(kubectl: Path, paths: str) -> dict[str, Any]:
    """What kubectl makes of the files: one cluster, one user, all contents inline."""
    shown = subprocess.run(
        [kubectl, "config", "view", "--raw", "--flatten", "--minify", "--merge", "--output=json"],
        env={"KUBECONFIG": paths, "HOME": "/nonexistent"},
        capture_output=True,
        check=True,
    ).stdout
    view = json.loads(shown)
    (cluster,), (user,), (context,) = view["clusters"], view["users"], view["contexts"]

    def data(section: Mapping[str, Any], name: str) -> bytes | None:
        return base64.b64decode(section[name]) if name in section else None

    return {
        "host": cluster["cluster"]["server"],
        "ca": data(cluster["cluster"], "certificate-authority-data"),
        "certificate": data(user["user"], "client-certificate-data"),
        "key": data(user["user"], "client-key-data"),
        "token": user["user"].get("token", ""),
        # It is shown as it stands in the file, though kubectl resolves it before it uses it.
        "token_file": Path(user["user"].get("tokenFile", "")).name,
        "namespace": context["context"].get("namespace", "default"),
        "context": view["current-context"],
    }


def scenarios(folder: Path) -> dict[str, str]:
    other = folder / "other"
    other.mkdir()
    for where in (folder, other):
        (where / "ca.crt").write_bytes(authority(where.name).certificate)
        (where / "me.crt").write_bytes(pair(where.name).certificate)
        (where / "me.key").write_bytes(pair(where.name).key)
        (where / "token").write_text(where.name)
    by_file = {"here": {"server": "https://api.test:6443", "certificate-authority": "ca.crt"}}
    with_files = {"me": {"client-certificate": "me.crt", "client-key": "me.key", "tokenFile": "token"}}
    elsewhere = {"it": {"cluster": "here", "user": "me", "namespace": "elsewhere"}}
    return {
        "one file": write(folder / "single", kubeconfig(current="it")),
        "the first current context wins": write(
            folder / "current",
            kubeconfig(contexts={}),
            kubeconfig(current="it"),
            kubeconfig(contexts={"other": {"cluster": "here", "user": "me", "namespace": "x"}}, current="other"),
        ),
        "the first entry wins whole": write(
            folder / "entries",
            kubeconfig(users={"me": {"token": "first"}}, contexts=elsewhere),
            kubeconfig(clusters=by_file, users=with_files, current="it"),
        ),
        "relative paths of two folders": os.pathsep.join(
            [
                write(other / "config", kubeconfig(clusters=by_file, users={}, contexts={})),
                write(folder / "relative", kubeconfig(clusters={}, users=with_files, current="it")),
            ]
        ),
        "a file that is missing": os.pathsep.join(
            [str(folder / "missing"), write(folder / "present", kubeconfig(current="it"))]
        ),
    }


def test_kubectl_reads_the_same(tmp_path: Path, kubectl: Path) -> None:
    for name, paths in scenarios(tmp_path).items():
        config = load(paths)
        expected = kubectl_essence(kubectl, paths)
        read = {
            "host": config.server,
            "ca": config.certificate_authority,
            "certificate": config.client_certificate,
            "key": config.client_key,
            "token": config.token,
            "token_file": "" if config.token_file is None else config.token_file.name,
            "namespace": config.namespace,
            "context": expected["context"],
        }
        assert read == expected, name
        assert load(paths, expected["context"]) == config, name
