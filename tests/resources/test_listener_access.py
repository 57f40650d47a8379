from __future__ import annotations

from typing import Any

import msgspec
import pytest

from runherd.resources.errors import BuildError
from runherd.resources.listener_access import (
    listener_role,
    listener_role_binding,
    listener_role_rules,
    listener_service_account,
)
from tests.resources.objects import HASH, decoded, listener, owner, sent

NAME = "arc-runner-set-68c4584d-listener"
LABELS = {
    "app.kubernetes.io/component": "runner-scale-set-listener",
    "own": "label",
    "actions.github.com/scale-set-name": "arc-runner-set",
    "actions.github.com/scale-set-namespace": "arc-runners",
}
MAPPING = {"auto-scaling-listener-name": NAME, "auto-scaling-listener-namespace": "arc-systems"}


def test_the_service_account() -> None:
    assert sent(listener_service_account(listener(), ())) == {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {
            "name": NAME,
            "namespace": "arc-systems",
            "labels": LABELS,
            "annotations": {"actions.github.com/integrity-hash": HASH},
            "ownerReferences": owner("AutoscalingListener", NAME, "uid-of-al"),
        },
    }


def test_the_role() -> None:
    assert sent(listener_role(listener(), ())) == {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {
            "name": NAME,
            "namespace": "arc-runners",
            "labels": {**LABELS, **MAPPING},
            "annotations": {"actions.github.com/integrity-hash": HASH},
        },
        "rules": [
            {
                "apiGroups": ["actions.github.com"],
                "resources": ["ephemeralrunnersets"],
                "resourceNames": ["arc-runner-set"],
                "verbs": ["patch"],
            },
            {
                "apiGroups": ["actions.github.com"],
                "resources": ["ephemeralrunners", "ephemeralrunners/status"],
                "verbs": ["patch"],
            },
        ],
    }


def test_the_role_binding() -> None:
    assert sent(listener_role_binding(listener(), ())) == {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {
            "name": NAME,
            "namespace": "arc-runners",
            "labels": {**LABELS, **MAPPING},
            "annotations": {"actions.github.com/integrity-hash": HASH},
        },
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "namespace": "arc-systems", "name": NAME}],
    }


BUILDERS = [
    (listener_service_account, "serviceAccountMetadata"),
    (listener_role, "roleMetadata"),
    (listener_role_binding, "roleBindingMetadata"),
]


@pytest.mark.parametrize(("build", "field"), BUILDERS)
def test_each_override_lands_on_its_object(build: Any, field: str) -> None:
    override = {
        "labels": {"added": "1", "own": "x", "private.test/a": "1", "auto-scaling-listener-name": "x"},
        "annotations": {"added": "1", "actions.github.com/integrity-hash": "x"},
    }
    parent = listener(**{field: override})
    before = msgspec.json.encode(parent)
    metadata = sent(build(parent, ("private.test/",)))["metadata"]
    assert metadata["labels"] == {"auto-scaling-listener-name": "x"} | sent(build(listener(), ()))["metadata"][
        "labels"
    ] | {"added": "1"}
    assert metadata["annotations"] == {"actions.github.com/integrity-hash": HASH, "added": "1"}
    for other, _ in BUILDERS:
        if other is not build:
            assert "added" not in other(parent, ())["metadata"]["labels"]
    assert msgspec.json.encode(parent) == before


@pytest.mark.parametrize(("build", "field"), BUILDERS)
def test_labels_alone_in_an_override_are_enough(build: Any, field: str) -> None:
    metadata = sent(build(listener(**{field: {"labels": {"added": "1"}}}), ()))["metadata"]
    assert metadata["annotations"] == {"actions.github.com/integrity-hash": HASH}


def test_the_rules_follow_the_set() -> None:
    other = listener(ephemeralRunnerSetName="other")
    assert listener_role_rules(other)[0]["resourceNames"] == ["other"]
    hashes = [listener_role(parent, ())["metadata"]["annotations"] for parent in (other, listener())]
    assert hashes[0] != hashes[1]


def test_a_name_that_no_label_can_hold() -> None:
    body = {"metadata": {"name": "a" * 64, "namespace": "n"}, "spec": {"autoscalingRunnerSetName": "a" * 46}}
    parent = decoded(body, type(listener()))
    for build in (listener_role, listener_role_binding):
        with pytest.raises(BuildError, match=f"AutoscalingRunnerSet {'a' * 46} .* at most 45"):
            build(parent, ())
