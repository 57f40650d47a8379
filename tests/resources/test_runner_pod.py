from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from runherd.resources.runner_pod import runner_pod
from tests.resources.objects import LABEL_VALUE, TEMPLATE, ephemeral_runner, owner, sent

INJECTED: list[dict[str, Any]] = [
    {
        "name": "ACTIONS_RUNNER_INPUT_JITCONFIG",
        "valueFrom": {"secretKeyRef": {"name": "arc-runner-set-runner-abcde", "key": "jitToken"}},
    },
    {"name": "GITHUB_ACTIONS_RUNNER_EXTRA_USER_AGENT", "value": "actions-runner-controller/0.14.2"},
    {"name": "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE", "value": "1"},
]


def environment(**spec: Any) -> list[dict[str, Any]]:
    """What follows the user's own variable and ours."""
    variables: list[dict[str, Any]] = sent(runner_pod(ephemeral_runner(**spec), "0.14.2"))["spec"]["containers"][0][
        "env"
    ]
    assert variables[:4] == [{"name": "OWN", "value": "1"}, *INJECTED]
    return variables[4:]


def test_a_plain_pod() -> None:
    pod = sent(runner_pod(ephemeral_runner(), "0.14.2"))
    template_hash = pod["metadata"]["labels"].pop("pod-template-hash")
    assert re.fullmatch("[0-9a-f]{10}", template_hash)
    assert LABEL_VALUE.fullmatch(template_hash)
    runner, sidecar = TEMPLATE["spec"]["containers"]
    assert pod == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "arc-runner-set-runner-abcde",
            "namespace": "arc-runners",
            "labels": {"app.kubernetes.io/component": "runner", "team": "build", "actions-ephemeral-runner": "True"},
            "annotations": {"actions.github.com/patch-id": "12", "note": "template"},
            "ownerReferences": owner("EphemeralRunner", "arc-runner-set-runner-abcde", "uid-of-er"),
        },
        "spec": {
            **TEMPLATE["spec"],
            "containers": [{**runner, "env": [{"name": "OWN", "value": "1"}, *INJECTED]}, sidecar],
        },
    }


def test_no_restart_policy_is_made_up() -> None:
    pod = runner_pod(ephemeral_runner(spec={"containers": [{"name": "runner"}]}), "1")
    assert "restartPolicy" not in pod["spec"]


def test_every_field_of_a_template_is_kept() -> None:
    unknown = {"containers": [{"name": "runner", "futureField": {"deep": [1, None]}}], "futureField": True}
    spec = sent(runner_pod(ephemeral_runner(spec=unknown), "1"))["spec"]
    spec["containers"][0].pop("env")
    assert spec == unknown


def test_a_proxy() -> None:
    proxy = {"http": {"url": "http://a.test"}, "https": {"url": "http://b.test"}, "noProxy": ["c.test"]}
    assert environment(proxy=proxy, proxySecretRef="proxies") == [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": "proxies", "key": name}}}
        for name in ("http_proxy", "https_proxy", "no_proxy")
    ]


@pytest.mark.parametrize(
    ("proxy", "expected"),
    [
        ({"http": {"url": "http://a.test"}, "noProxy": []}, ["http_proxy"]),
        ({"https": {"url": "http://b.test"}}, ["https_proxy"]),
        ({"noProxy": ["c.test"]}, ["no_proxy"]),
        ({}, []),
        (None, []),
    ],
)
def test_only_configured_parts_of_a_proxy(proxy: dict[str, Any] | None, expected: list[str]) -> None:
    assert [variable["name"] for variable in environment(proxy=proxy, proxySecretRef="proxies")] == expected


def test_a_proxy_without_its_secret() -> None:
    assert environment(proxy={"http": {"url": "http://a.test"}}) == []


def test_labels_of_ours_win_over_the_template() -> None:
    metadata = {
        "labels": {"actions-ephemeral-runner": "no", "pod-template-hash": "x", "app.kubernetes.io/component": "y"}
    }
    labels = runner_pod(ephemeral_runner(metadata=metadata), "1")["metadata"]["labels"]
    assert labels["actions-ephemeral-runner"] == "True"
    assert labels["pod-template-hash"] != "x"
    assert labels["app.kubernetes.io/component"] == "y"


def test_the_template_hash_follows_the_template() -> None:
    def template_hash(**spec: Any) -> str:
        label: str = runner_pod(ephemeral_runner(**spec), "1")["metadata"]["labels"]["pod-template-hash"]
        return label

    assert template_hash() == template_hash(githubConfigSecret="other")
    assert template_hash() != template_hash(metadata={"labels": {"team": "other"}})
    assert template_hash() != template_hash(spec={"containers": [{"name": "runner"}]})


def test_pods_share_what_is_equal_and_leave_their_parents_alone() -> None:
    runner = ephemeral_runner()
    before = msgspec.json.encode(runner)
    first, second = runner_pod(runner, "1"), runner_pod(runner, "1")
    assert first["spec"]["volumes"] is second["spec"]["volumes"]
    assert first["spec"]["containers"][1] is second["spec"]["containers"][1]
    first["spec"]["containers"][0]["env"].append({"name": "MORE"})
    first["metadata"]["labels"]["more"] = "1"
    assert runner_pod(runner, "1") == second
    assert msgspec.json.encode(runner) == before


@pytest.mark.parametrize("pod_spec", [None, {"containers": None}, {"containers": [{"name": "other", "env": None}]}])
def test_a_template_without_a_runner_container_is_left_to_the_api_server(pod_spec: dict[str, Any] | None) -> None:
    pod = sent(runner_pod(ephemeral_runner(spec=pod_spec, metadata=None), "1"))
    assert pod["spec"]["containers"] == ((pod_spec or {}).get("containers") or [])


def test_a_runner_container_without_variables() -> None:
    pod = sent(runner_pod(ephemeral_runner(spec={"containers": [{"name": "runner", "env": None}]}), "0.14.2"))
    assert pod["spec"]["containers"] == [{"name": "runner", "env": INJECTED}]
