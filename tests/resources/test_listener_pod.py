from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from runherd.actions.credentials import PersonalAccessToken
from runherd.resources.errors import BuildError
from runherd.resources.listener_config import listener_config
from runherd.resources.listener_pod import listener_pod
from runherd.resources.listener_settings import ListenerSettings
from tests.resources.objects import HASH, SETTINGS, listener, owner, sent

NAME = "arc-runner-set-68c4584d-listener"
CONTAINER: dict[str, Any] = {
    "name": "listener",
    "image": "example.test/runherd:1",
    "command": ["/ghalistener"],
    "env": [{"name": "LISTENER_CONFIG_PATH", "value": "/etc/gha-listener/config.json"}],
    "ports": [{"name": "metrics", "protocol": "TCP", "containerPort": 8080}],
    "volumeMounts": [{"name": "listener-config", "mountPath": "/etc/gha-listener", "readOnly": True}],
}
POD_SPEC: dict[str, Any] = {
    "serviceAccountName": NAME,
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "containers": [CONTAINER],
    "volumes": [{"name": "listener-config", "secret": {"secretName": f"{NAME}-config"}}],
    "restartPolicy": "Never",
    "terminationGracePeriodSeconds": 60,
}


def build(
    settings: ListenerSettings = SETTINGS,
    *,
    pat: str = "ghp_hidden",
    proxy_data: dict[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    parent = listener(**spec)
    before = msgspec.json.encode(parent)
    pod = listener_pod(parent, settings, listener_config(parent, settings, PersonalAccessToken(pat), ""), proxy_data)
    assert msgspec.json.encode(parent) == before
    return pod


def integrity_hash(*arguments: Any, **spec: Any) -> str:
    found: str = build(*arguments, **spec)["metadata"]["annotations"]["actions.github.com/integrity-hash"]
    return found


def test_a_plain_pod() -> None:
    assert sent(build()) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": NAME,
            "namespace": "arc-systems",
            "labels": {"app.kubernetes.io/component": "runner-scale-set-listener", "own": "label"},
            "annotations": {"actions.github.com/integrity-hash": HASH},
            "ownerReferences": owner("AutoscalingListener", NAME, "uid-of-al"),
        },
        "spec": POD_SPEC,
    }


def test_settings_of_the_manager() -> None:
    settings = replace(SETTINGS, entrypoint="/bin/other", metrics_address="127.0.0.1:9")
    container = build(settings)["spec"]["containers"][0]
    assert container["command"] == ["/bin/other"]
    assert container["ports"] == [{"name": "metrics", "protocol": "TCP", "containerPort": 9}]


@pytest.mark.parametrize("address", ["0", ""])
def test_no_metrics_no_port(address: str) -> None:
    assert "ports" not in build(replace(SETTINGS, metrics_address=address))["spec"]["containers"][0]


def test_a_malformed_metrics_address() -> None:
    with pytest.raises(BuildError):
        build(replace(SETTINGS, metrics_address="8080"))


def test_pull_secrets_are_those_of_the_listener() -> None:
    assert build(imagePullSecrets=[{"name": "a"}, {"name": "b"}])["spec"]["imagePullSecrets"] == [
        {"name": "a"},
        {"name": "b"},
    ]


def test_a_proxy() -> None:
    proxy = {"http": {"url": "http://a.test"}, "https": {"url": "http://b.test"}, "noProxy": ["c.test"]}
    environment = build(proxy=proxy, proxy_data={})["spec"]["containers"][0]["env"]
    assert environment == [
        *CONTAINER["env"],
        *(
            {"name": name, "valueFrom": {"secretKeyRef": {"name": f"{NAME}-proxy", "key": name}}}
            for name in ("http_proxy", "https_proxy", "no_proxy")
        ),
    ]
    only_https = build(proxy={"https": {"url": "http://b.test"}}, proxy_data={})["spec"]["containers"][0]["env"]
    assert [variable["name"] for variable in only_https] == ["LISTENER_CONFIG_PATH", "https_proxy"]


def test_the_template_comes_last() -> None:
    template = {
        "metadata": {"labels": {"own": "template", "more": "1"}},
        "spec": {"containers": [{"name": "sidecar", "image": "s"}, {"name": "listener", "image": "mine"}]},
    }
    pod = build(template=template)
    assert pod["metadata"]["labels"] == {
        "app.kubernetes.io/component": "runner-scale-set-listener",
        "own": "label",
        "more": "1",
    }
    assert [(item["name"], item["image"]) for item in pod["spec"]["containers"]] == [
        ("listener", "mine"),
        ("sidecar", "s"),
    ]


def test_what_does_not_replace_the_pod() -> None:
    base = integrity_hash()
    assert integrity_hash() == base
    assert integrity_hash(minRunners=0) == base
    assert integrity_hash(maxRunners=10) == base
    assert integrity_hash(metrics={"gauges": {"g": {"labels": []}}}) == base
    assert integrity_hash(roleMetadata={"labels": {"a": "b"}}) == base


def test_what_replaces_the_pod() -> None:
    proxy = {"http": {"url": "http://a.test"}}
    hashes = [
        integrity_hash(),
        integrity_hash(image="other"),
        integrity_hash(pat="other"),
        integrity_hash(imagePullSecrets=[{"name": "a"}]),
        integrity_hash(template={"spec": {"containers": [{"name": "listener", "image": "other"}]}}),
        integrity_hash(template={"spec": {"containers": [], "nodeSelector": {}}}),
        integrity_hash(template={"spec": {"containers": []}}),
        integrity_hash(replace(SETTINGS, entrypoint="/other")),
        integrity_hash(replace(SETTINGS, metrics_address="0")),
        integrity_hash(replace(SETTINGS, metrics_address=":9")),
        integrity_hash(replace(SETTINGS, log_level="info")),
        integrity_hash(proxy=proxy, proxy_data={"http_proxy": "http://a.test"}),
        integrity_hash(proxy=proxy, proxy_data={"http_proxy": "http://user:new@a.test"}),
    ]
    assert len(set(hashes)) == len(hashes)
