from __future__ import annotations

import copy
from typing import Any

import pytest

from runherd.resources.listener_template import merge_listener_template
from tests.resources.test_listener_pod import CONTAINER, NAME, POD_SPEC

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": NAME, "labels": {"own": "label"}, "annotations": {"hash": "ours"}},
    "spec": {**POD_SPEC, "imagePullSecrets": [{"name": "pull"}]},
}
MOUNT = CONTAINER["volumeMounts"][0]


def merge(template: dict[str, Any]) -> dict[str, Any]:
    before = copy.deepcopy((POD, template))
    merged = merge_listener_template(POD, template)
    assert (POD, template) == before
    return merged


def merge_spec(**spec: Any) -> dict[str, Any]:
    merged: dict[str, Any] = merge({"spec": {"containers": [{"name": "listener"}], **spec}})["spec"]
    return merged


def merge_container(**fields: Any) -> dict[str, Any]:
    merged: dict[str, Any] = merge_spec(containers=[{"name": "listener", **fields}])["containers"][0]
    return merged


@pytest.mark.parametrize("template", [{}, {"metadata": {}}, {"spec": {}}, {"metadata": None, "spec": None}])
def test_no_template(template: dict[str, Any]) -> None:
    assert merge(template) == POD


def test_metadata_adds_only_new_keys() -> None:
    metadata = {
        "name": "ignored",
        "labels": {"own": "template", "more": "1"},
        "annotations": {"hash": "template", "more": "1"},
    }
    assert merge({"metadata": metadata}) == {
        **POD,
        "metadata": {
            "name": NAME,
            "labels": {"own": "label", "more": "1"},
            "annotations": {"hash": "ours", "more": "1"},
        },
    }


def test_image_and_command_are_replaced_only_when_given() -> None:
    assert merge_container() == CONTAINER
    assert merge_container(image="", command=[]) == CONTAINER
    assert merge_container(image="mine", command=["/mine"]) == {**CONTAINER, "image": "mine", "command": ["/mine"]}


def test_lists_of_the_container_are_appended() -> None:
    added: dict[str, list[Any]] = {
        "env": [{"name": "A", "value": "1"}],
        "args": ["--flag"],
        "ports": [{"containerPort": 1}],
        "envFrom": [{"secretRef": {"name": "s"}}],
        "volumeMounts": [{"name": "more", "mountPath": "/more"}],
        "volumeDevices": [{"name": "d", "devicePath": "/d"}],
    }
    expected = {name: [*CONTAINER.get(name, []), *items] for name, items in added.items()}
    assert merge_container(**added) == {**CONTAINER, **expected}


def test_every_other_field_of_the_container_is_the_templates() -> None:
    fields = {
        "imagePullPolicy": "Always",
        "workingDir": "/w",
        "resources": {"limits": {"cpu": "1"}},
        "livenessProbe": {"tcpSocket": {"port": 1}},
        "lifecycle": {},
        "terminationMessagePath": "/t",
        "securityContext": {"runAsUser": 0},
        "restartPolicy": "Always",
        "stdin": True,
        "tty": False,
    }
    assert merge_container(**fields) == {**CONTAINER, **fields}


def test_other_containers_follow_in_order_wherever_the_listener_stands() -> None:
    first, second = {"name": "first", "image": "1"}, {"name": "second", "image": "2"}
    containers = merge_spec(containers=[first, {"name": "listener", "image": "mine"}, second])["containers"]
    assert containers == [{**CONTAINER, "image": "mine"}, first, second]
    assert merge_spec(containers=[first])["containers"] == [CONTAINER, first]


def test_the_restart_policy() -> None:
    assert merge_spec()["restartPolicy"] == "Never"
    assert merge_spec(restartPolicy="")["restartPolicy"] == "Never"
    assert merge_spec(restartPolicy="OnFailure")["restartPolicy"] == "OnFailure"


@pytest.mark.parametrize(
    ("given", "selector"),
    [
        ({}, {"kubernetes.io/os": "linux"}),
        ({"nodeSelector": None}, {"kubernetes.io/os": "linux"}),
        ({"nodeSelector": {"a": "b"}}, {"a": "b"}),
        ({"nodeSelector": {}}, {}),
    ],
)
def test_the_node_selector(given: dict[str, Any], selector: dict[str, str]) -> None:
    assert merge_spec(**given)["nodeSelector"] == selector


@pytest.mark.parametrize(
    ("given", "secrets"),
    [
        ({}, [{"name": "pull"}]),
        ({"imagePullSecrets": None}, [{"name": "pull"}]),
        ({"imagePullSecrets": [{"name": "mine"}]}, [{"name": "mine"}]),
        ({"imagePullSecrets": []}, []),
    ],
)
def test_the_pull_secrets(given: dict[str, Any], secrets: list[dict[str, str]]) -> None:
    assert merge_spec(**given)["imagePullSecrets"] == secrets


def test_volumes_are_appended() -> None:
    more = {"name": "more", "emptyDir": {}}
    assert merge_spec(volumes=[more])["volumes"] == [*POD_SPEC["volumes"], more]


def test_the_service_account_is_ours() -> None:
    spec = merge_spec(serviceAccountName="theirs", serviceAccount="theirs", automountServiceAccountToken=False)
    assert spec["serviceAccountName"] == NAME
    assert "serviceAccount" not in spec
    assert "automountServiceAccountToken" not in spec


def test_every_other_field_of_the_pod_is_the_templates() -> None:
    fields: dict[str, Any] = {
        "initContainers": [{"name": "init"}],
        "activeDeadlineSeconds": 1,
        "dnsPolicy": "None",
        "securityContext": {"fsGroup": 0},
        "tolerations": [{"operator": "Exists"}],
        "hostNetwork": True,
        "futureField": {"a": 1},
    }
    spec = merge_spec(**fields)
    assert {name: spec[name] for name in fields} == fields
    assert "terminationGracePeriodSeconds" not in spec
    assert merge_spec(terminationGracePeriodSeconds=5)["terminationGracePeriodSeconds"] == 5
