from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runherd.api.actions import ProxyConfig
from runherd.resources.errors import BuildError
from runherd.resources.proxy_secret import (
    listener_proxy_secret,
    proxy_credential_secrets,
    proxy_data,
    runner_proxy_secret,
)
from runherd.wire.proxy import ProxyServer
from tests.resources.objects import HASH, decoded, ephemeral_runner_set, listener, owner, sent

DATA = {"http_proxy": "http://user:pass@host", "https_proxy": "", "no_proxy": "a,b"}
ENCODED = {
    "http_proxy": b64encode(b"http://user:pass@host").decode(),
    "https_proxy": "",
    "no_proxy": b64encode(b"a,b").decode(),
}


def proxy(**parts: Any) -> ProxyConfig:
    config: ProxyConfig = decoded(parts, ProxyConfig)
    return config


def http_proxy(url: str, username: str = "", password: str | None = "") -> str:
    if not username:
        return proxy_data(proxy(http={"url": url}), {})["http_proxy"]
    credentials = {"username": username.encode()} | ({} if password is None else {"password": password.encode()})
    return proxy_data(proxy(http={"url": url, "credentialSecretRef": "s"}), {"s": credentials})["http_proxy"]


def test_all_three_keys_are_always_there() -> None:
    assert proxy_data(proxy(), {}) == {"http_proxy": "", "https_proxy": "", "no_proxy": ""}


def test_everything_configured() -> None:
    config = proxy(
        http={"url": "http://host", "credentialSecretRef": "one"},
        https={"url": "https://other.test:8443/", "credentialSecretRef": "two"},
        noProxy=["example.com", ".example.org", "10.0.0.0/8"],
    )
    credentials = {
        "one": {"username": b"user", "password": b"pass"},
        "two": {"username": b"name", "password": b"p@ss/word:?"},
    }
    assert proxy_data(config, credentials) == {
        "http_proxy": "http://user:pass@host",
        "https_proxy": "https://name:p%40ss%2Fword%3A%3F@other.test:8443/",
        "no_proxy": "example.com,.example.org,10.0.0.0/8",
    }


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://host:3128", "http://host:3128"),
        ("host:3128", "http://host:3128"),
        ("http://own:secret@host", "http://own:secret@host"),
        ("socks5://host:1080", "socks5://host:1080"),
    ],
)
def test_a_proxy_without_credentials(url: str, expected: str) -> None:
    assert http_proxy(url) == expected


@pytest.mark.parametrize(
    ("username", "password", "expected"),
    [
        ("a-b_c.d~e", "$&+,;=", "a-b_c.d~e:$&+,;="),
        ("ünï", "!*'()", "%C3%BCn%C3%AF:%21%2A%27%28%29"),
        ("a b", "%", "a%20b:%25"),
        ("user", "", "user:"),
        ("user", None, "user:"),
    ],
)
def test_credentials_are_escaped_as_go_does_it(username: str, password: str | None, expected: str) -> None:
    assert http_proxy("http://host", username, password) == f"http://{expected}@host"


def test_credentials_of_the_secret_replace_those_in_the_url() -> None:
    assert http_proxy("http://old:older@host/a@b", "user", "pass") == "http://user:pass@host/a@b"
    assert http_proxy("host:1", "user", "pass") == "http://user:pass@host:1"


@given(st.text(min_size=1), st.text())
def test_our_own_client_reads_the_same_credentials(username: str, password: str) -> None:
    try:
        (username + password).encode()
    except UnicodeEncodeError:
        return
    parsed = ProxyServer.parse(http_proxy("http://host:3128", username, password))
    assert (parsed.username, parsed.password, parsed.host, parsed.port) == (username, password, "host", 3128)


@pytest.mark.parametrize("url", ["", "http://", "http://host:port", "ftp://host", "http://user:hidden@ho st"])
def test_what_is_no_proxy(url: str) -> None:
    with pytest.raises(BuildError, match=r"proxy\.http\.url") as caught:
        http_proxy(url)
    assert "hidden" not in str(caught.value)


def test_a_secret_without_a_user_name() -> None:
    config = proxy(https={"url": "http://host", "credentialSecretRef": "creds"})
    with pytest.raises(BuildError, match=r"proxy\.https\.credentialSecretRef: secret creds .* username") as caught:
        proxy_data(config, {"creds": {"password": b"hidden"}})
    assert "hidden" not in str(caught.value)


def test_which_secrets_are_needed() -> None:
    assert proxy_credential_secrets(proxy(noProxy=["a"])) == []
    assert proxy_credential_secrets(proxy(http={"url": "u"}, https={"url": "u"})) == []
    both = {"url": "u", "credentialSecretRef": "one"}
    assert proxy_credential_secrets(proxy(http=both, https=both)) == ["one"]
    assert proxy_credential_secrets(proxy(http=both, https={**both, "credentialSecretRef": "two"})) == ["one", "two"]


def test_the_secret_of_a_set() -> None:
    assert sent(runner_proxy_secret(ephemeral_runner_set(), DATA)) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "arc-runner-set-754b578d-runner-proxy",
            "namespace": "arc-runners",
            "labels": {
                "actions.github.com/scale-set-name": "arc-runner-set",
                "actions.github.com/scale-set-namespace": "arc-runners",
            },
            "annotations": {"actions.github.com/integrity-hash": HASH},
            "ownerReferences": owner("EphemeralRunnerSet", "arc-runner-set", "uid-of-ers"),
        },
        "data": ENCODED,
    }


def test_the_secret_of_a_listener() -> None:
    assert sent(listener_proxy_secret(listener(), DATA)) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "arc-runner-set-68c4584d-listener-proxy",
            "namespace": "arc-systems",
            "labels": {
                "actions.github.com/scale-set-name": "arc-runner-set",
                "actions.github.com/scale-set-namespace": "arc-runners",
            },
            "annotations": {"actions.github.com/integrity-hash": HASH},
            "ownerReferences": owner("AutoscalingListener", "arc-runner-set-68c4584d-listener", "uid-of-al"),
        },
        "data": ENCODED,
    }


def test_the_hash_changes_with_the_data() -> None:
    def annotations(data: dict[str, str]) -> list[Any]:
        return [
            runner_proxy_secret(ephemeral_runner_set(), data)["metadata"]["annotations"],
            listener_proxy_secret(listener(), data)["metadata"]["annotations"],
        ]

    assert annotations(DATA) == annotations(dict(DATA))
    assert annotations(DATA) != annotations({**DATA, "no_proxy": "a"})
