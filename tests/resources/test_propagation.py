"""What reaches which object on the way down (``docs/spec/controllers.md`` 15.6.1 to 15.6.4)."""

from __future__ import annotations

from typing import Any

import pytest

from runherd.actions.credentials import PersonalAccessToken
from runherd.api.actions import AutoscalingListener, EphemeralRunner, EphemeralRunnerSet
from runherd.resources.autoscaling_listener import autoscaling_listener
from runherd.resources.ephemeral_runner import ephemeral_runner
from runherd.resources.ephemeral_runner_set import ephemeral_runner_set
from runherd.resources.listener_access import listener_role, listener_role_binding, listener_service_account
from runherd.resources.listener_config import listener_config
from runherd.resources.listener_pod import listener_pod
from runherd.resources.runner_pod import runner_pod
from tests.resources.objects import SETTINGS, decoded, runner_set

EXCLUDED = ("example.com/", "exact.test/key")
LABELS = {"example.com/label": "1", "exact.test/key": "1", "exact.test/sibling": "1", "own": "1"}


def children(**spec: Any) -> dict[str, dict[str, Any]]:
    """The metadata of everything that is made for one runner set, each made from what the one before is stored as."""
    parent = runner_set(labels=LABELS, **spec)
    ers = ephemeral_runner_set(parent, EXCLUDED)
    er = ephemeral_runner(decoded(ers, EphemeralRunnerSet), "runner", EXCLUDED)
    al = autoscaling_listener(parent, SETTINGS, EXCLUDED)
    listener = decoded(al, AutoscalingListener)
    config = listener_config(listener, SETTINGS, PersonalAccessToken("t"), "")
    bodies = {
        "set": ers,
        "runner": er,
        "runner pod": runner_pod(decoded(er, EphemeralRunner), "1"),
        "listener": al,
        "listener pod": listener_pod(listener, SETTINGS, config, None),
        "service account": listener_service_account(listener, EXCLUDED),
        "role": listener_role(listener, EXCLUDED),
        "role binding": listener_role_binding(listener, EXCLUDED),
    }
    return {name: body["metadata"] for name, body in bodies.items()}


@pytest.mark.parametrize("override", [None, {"labels": {"example.com/more": "1"}}])
def test_excluded_labels_reach_no_child_and_all_others_do(override: dict[str, Any] | None) -> None:
    made = children(
        autoscalingListener=override,
        listenerServiceAccountMetadata=override,
        listenerRoleMetadata=override,
        listenerRoleBindingMetadata=override,
        ephemeralRunnerSetMetadata=override,
        ephemeralRunnerMetadata=override,
    )
    for name, metadata in made.items():
        assert metadata["labels"].items() >= {"own": "1", "exact.test/sibling": "1"}.items(), name
        assert not any(label.startswith(EXCLUDED) for label in metadata["labels"]), name


def test_a_listener_pod_has_the_labels_of_its_listener() -> None:
    made = children()
    assert made["listener pod"]["labels"] == made["listener"]["labels"]


def test_a_runner_has_the_labels_and_annotations_of_its_set_but_for_the_component() -> None:
    made = children()
    expected = {**made["set"]["labels"], "app.kubernetes.io/component": "runner"}
    assert made["runner"]["labels"] == expected
    assert made["runner pod"]["labels"].items() >= expected.items()
    assert made["runner pod"]["annotations"].items() >= made["runner"]["annotations"].items()
    assert made["runner"]["annotations"] == {**made["set"]["annotations"], "actions.github.com/patch-id": "0"}


def test_one_owner_at_most() -> None:
    owned = {
        name: [owner["kind"] for owner in metadata.get("ownerReferences", [])] for name, metadata in children().items()
    }
    assert owned == {
        "set": ["AutoscalingRunnerSet"],
        "runner": ["EphemeralRunnerSet"],
        "runner pod": ["EphemeralRunner"],
        "listener": [],
        "listener pod": ["AutoscalingListener"],
        "service account": ["AutoscalingListener"],
        "role": [],
        "role binding": [],
    }
