from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from runherd.actions.errors import InvalidConfigURLError
from runherd.api.actions import AutoscalingListener
from runherd.resources.autoscaling_listener import (
    autoscaling_listener,
    autoscaling_listener_name,
    autoscaling_listener_spec,
    listener_spec_patch,
    needs_other_listener,
)
from runherd.resources.errors import BuildError
from runherd.resources.integrity_hash import listener_spec_hash
from runherd.resources.names import name_hash
from tests.resources.objects import HASH, SETTINGS, TEMPLATE, decoded, listener, runner_set, sent

NAME = f"arc-runner-set-{name_hash('arc-runners@@https://github.com/octo-org/octo-repo')}-listener"
LABELS = {
    "app.kubernetes.io/version": "0.14.2",
    "app.kubernetes.io/part-of": "gha-runner-scale-set",
    "app.kubernetes.io/component": "runner-scale-set-listener",
    "actions.github.com/scale-set-name": "arc-runner-set",
    "actions.github.com/scale-set-namespace": "arc-runners",
    "actions.github.com/organization": "octo-org",
    "actions.github.com/repository": "octo-repo",
    "own": "label",
}


def test_a_plain_listener() -> None:
    assert sent(autoscaling_listener(runner_set(), SETTINGS, ())) == {
        "apiVersion": "actions.github.com/v1alpha1",
        "kind": "AutoscalingListener",
        "metadata": {
            "name": NAME,
            "namespace": "arc-systems",
            "labels": LABELS,
            "annotations": {"actions.github.com/integrity-hash": HASH},
        },
        "spec": {
            "githubConfigUrl": "https://github.com/octo-org/octo-repo",
            "githubConfigSecret": "github-secret",
            "runnerScaleSetId": 7,
            "autoscalingRunnerSetNamespace": "arc-runners",
            "autoscalingRunnerSetName": "arc-runner-set",
            "ephemeralRunnerSetName": "arc-runner-set",
            "maxRunners": 2147483647,
            "image": "example.test/runherd:1",
            "imagePullSecrets": [{"name": "pull"}],
        },
    }


def test_everything_a_listener_needs_is_copied() -> None:
    parts: dict[str, Any] = {
        "proxy": {"http": {"url": "http://proxy.test"}, "noProxy": ["a"]},
        "githubServerTLS": {"certificateFrom": {"configMapKeyRef": {"name": "ca", "key": "ca.crt"}}},
        "vaultConfig": {
            "type": "azure_key_vault",
            "azureKeyVault": {"url": "u", "tenantId": "t", "clientId": "c", "certificatePath": "/p"},
        },
        "minRunners": 2,
        "maxRunners": 5,
    }
    renamed: dict[str, tuple[str, Any]] = {
        "listenerMetrics": ("metrics", {"counters": {"c": {"labels": ["a"]}}}),
        "listenerTemplate": ("template", TEMPLATE),
        "listenerServiceAccountMetadata": ("serviceAccountMetadata", {"labels": {"a": "1"}}),
        "listenerRoleMetadata": ("roleMetadata", {"labels": {"a": "2"}}),
        "listenerRoleBindingMetadata": ("roleBindingMetadata", {"labels": {"a": "3"}}),
        "listenerConfigSecretMetadata": ("configSecretMetadata", {"labels": {"a": "4"}}),
    }
    parent = runner_set(**parts, **{name: value for name, (_, value) in renamed.items()})
    spec = sent(autoscaling_listener(parent, SETTINGS, ()))["spec"]
    expected = {**parts, **dict(renamed.values())}
    assert {name: spec[name] for name in expected} == expected


def test_no_runners_at_most_is_a_bound() -> None:
    assert autoscaling_listener_spec(runner_set(maxRunners=0), SETTINGS).max_runners == 0


def test_a_user_adds_but_does_not_change() -> None:
    override = {
        "labels": {"added": "1", "app.kubernetes.io/component": "x", "private.test/a": "1"},
        "annotations": {"added": "1", "actions.github.com/integrity-hash": "x"},
    }
    metadata = sent(autoscaling_listener(runner_set(autoscalingListener=override), SETTINGS, ("private.test/",)))[
        "metadata"
    ]
    assert metadata["labels"] == {**LABELS, "added": "1"}
    assert metadata["annotations"] == {"actions.github.com/integrity-hash": HASH, "added": "1"}


def test_its_hash_is_that_of_its_spec() -> None:
    body = autoscaling_listener(runner_set(listenerTemplate=TEMPLATE), SETTINGS, ())
    stored: AutoscalingListener = decoded(body, AutoscalingListener)
    assert stored.metadata.annotations["actions.github.com/integrity-hash"] == listener_spec_hash(stored.spec)


def test_its_name_follows_group_and_url() -> None:
    names = {
        autoscaling_listener_name(runner_set()),
        autoscaling_listener_name(runner_set(runnerGroup="Default")),
        autoscaling_listener_name(runner_set(githubConfigUrl="https://github.com/other")),
    }
    assert len(names) == 3
    assert NAME in names


def test_what_a_listener_cannot_be_made_of() -> None:
    with pytest.raises(BuildError):
        autoscaling_listener(runner_set(annotations={}), SETTINGS, ())
    with pytest.raises(InvalidConfigURLError):
        autoscaling_listener(runner_set(githubConfigUrl="https://github.com"), SETTINGS, ())


def test_the_parent_stays_as_it_is() -> None:
    parent = runner_set(autoscalingListener={"labels": {"a": "1"}}, listenerTemplate=TEMPLATE)
    before = msgspec.json.encode(parent)
    autoscaling_listener(parent, SETTINGS, ("own",))
    assert msgspec.json.encode(parent) == before


METRICS = {"counters": {"kept": {"labels": ["a"]}, "gone": {"labels": []}}}


@pytest.mark.parametrize(
    ("live", "desired", "patch"),
    [
        ({}, {}, {}),
        ({"maxRunners": 9}, {"maxRunners": 3}, {"maxRunners": 3}),
        ({"minRunners": 2}, {"minRunners": 0}, {"minRunners": None}),
        (
            {"metrics": METRICS},
            {"metrics": {"counters": {"kept": {"labels": ["a"]}}}},
            {"metrics": {"counters": {"gone": None}}},
        ),
        ({"metrics": METRICS}, {"metrics": None}, {"metrics": None}),
    ],
)
def test_what_is_changed_in_place(live: dict[str, Any], desired: dict[str, Any], patch: dict[str, Any]) -> None:
    first, second = listener(**live).spec, listener(**desired).spec
    assert not needs_other_listener(first, second)
    assert listener_spec_patch(first, second) == patch


@pytest.mark.parametrize(
    "change",
    [
        {"image": "other"},
        {"githubConfigSecret": "other"},
        {"proxy": {"noProxy": ["a"]}},
        {"template": {"spec": {"containers": [{"name": "listener"}]}}},
        {"imagePullSecrets": [{"name": "other"}]},
        {"runnerScaleSetId": 8},
        {"roleMetadata": {"labels": {"a": "b"}}},
    ],
)
def test_what_needs_another_listener(change: dict[str, Any]) -> None:
    assert needs_other_listener(listener().spec, listener(**change).spec)
    assert listener_spec_patch(listener().spec, listener(**change).spec) == {}


def test_empty_and_absent_are_the_same() -> None:
    live = listener(imagePullSecrets=[], template={"spec": {"containers": [{"name": "listener", "env": []}]}})
    desired = listener(template={"spec": {"containers": [{"name": "listener", "resources": {}}]}})
    assert not needs_other_listener(live.spec, desired.spec)


def test_pull_secrets_that_stay_the_same_replace_nothing() -> None:
    stored: AutoscalingListener = decoded(autoscaling_listener(runner_set(), SETTINGS, ()), AutoscalingListener)
    assert not needs_other_listener(stored.spec, autoscaling_listener_spec(runner_set(), SETTINGS))
    other = replace(SETTINGS, image_pull_secrets=())
    assert needs_other_listener(stored.spec, autoscaling_listener_spec(runner_set(), other))
