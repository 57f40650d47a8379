from __future__ import annotations

from typing import Any

import msgspec
import pytest

from runherd.actions.errors import InvalidConfigURLError
from runherd.api.actions import EphemeralRunnerSet
from runherd.resources.ephemeral_runner_set import ephemeral_runner_set, ephemeral_runner_spec
from runherd.resources.errors import BuildError
from runherd.resources.integrity_hash import runner_spec_hash
from tests.resources.objects import HASH, TEMPLATE, decoded, owner, runner_set, sent

LABELS = {
    "app.kubernetes.io/version": "0.14.2",
    "app.kubernetes.io/part-of": "gha-runner-scale-set",
    "app.kubernetes.io/component": "runner-set",
    "actions.github.com/scale-set-name": "arc-runner-set",
    "actions.github.com/scale-set-namespace": "arc-runners",
    "actions.github.com/organization": "octo-org",
    "actions.github.com/repository": "octo-repo",
    "own": "label",
}
ANNOTATIONS = {
    "actions.github.com/runner-group-name": "Default",
    "actions.github.com/runner-scale-set-name": "linux",
    "actions.github.com/integrity-hash": HASH,
}


def test_a_plain_set() -> None:
    assert sent(ephemeral_runner_set(runner_set(), ())) == {
        "apiVersion": "actions.github.com/v1alpha1",
        "kind": "EphemeralRunnerSet",
        "metadata": {
            "name": "arc-runner-set",
            "namespace": "arc-runners",
            "labels": LABELS,
            "annotations": ANNOTATIONS,
            "ownerReferences": owner("AutoscalingRunnerSet", "arc-runner-set", "uid-of-ars"),
        },
        "spec": {
            "replicas": 0,
            "patchID": 0,
            "ephemeralRunnerSpec": {
                "githubConfigUrl": "https://github.com/octo-org/octo-repo",
                "githubConfigSecret": "github-secret",
                "runnerScaleSetId": 7,
                "metadata": TEMPLATE["metadata"],
                "spec": TEMPLATE["spec"],
            },
        },
    }


def test_everything_a_runner_needs_is_copied() -> None:
    parts: dict[str, Any] = {
        "proxy": {"http": {"url": "http://proxy.test", "credentialSecretRef": "proxy-secret"}, "noProxy": ["a", "b"]},
        "githubServerTLS": {"certificateFrom": {"configMapKeyRef": {"name": "ca", "key": "ca.crt"}}},
        "vaultConfig": {
            "type": "azure_key_vault",
            "azureKeyVault": {"url": "u", "tenantId": "t", "clientId": "c", "certificatePath": "/p"},
        },
        "ephemeralRunnerConfigSecretMetadata": {"labels": {"on": "secrets"}},
    }
    runner_metadata = {"labels": {"on": "runners"}, "annotations": {"on": "runners"}}
    body = sent(ephemeral_runner_set(runner_set(**parts, ephemeralRunnerMetadata=runner_metadata), ()))
    assert body["spec"]["ephemeralRunnerMetadata"] == runner_metadata
    runner_spec = body["spec"]["ephemeralRunnerSpec"]
    assert {name: runner_spec[name] for name in parts} == parts
    assert "proxySecretRef" not in runner_spec


def test_a_user_adds_labels_and_annotations_but_changes_none() -> None:
    override = {
        "labels": {"added": "1", "own": "overridden", "app.kubernetes.io/component": "x", "secret.test/a": "1"},
        "annotations": {"added": "1", "actions.github.com/integrity-hash": "x"},
    }
    parent = runner_set(ephemeralRunnerSetMetadata=override)
    metadata = sent(ephemeral_runner_set(parent, ("secret.test/",)))["metadata"]
    assert metadata["labels"] == {**LABELS, "added": "1"}
    assert metadata["annotations"] == {**ANNOTATIONS, "added": "1"}


def test_labels_alone_in_an_override_are_enough() -> None:
    parent = runner_set(ephemeralRunnerSetMetadata={"labels": {"added": "1"}}, annotations={"runner-scale-set-id": "7"})
    metadata = sent(ephemeral_runner_set(parent, ()))["metadata"]
    assert metadata["annotations"] == {
        "actions.github.com/runner-group-name": "",
        "actions.github.com/runner-scale-set-name": "",
        "actions.github.com/integrity-hash": HASH,
    }


def test_its_hash_is_that_of_its_runner_spec() -> None:
    body = ephemeral_runner_set(runner_set(), ())
    stored = decoded(body, EphemeralRunnerSet)
    assert stored.metadata.annotations["actions.github.com/integrity-hash"] == runner_spec_hash(
        stored.spec.ephemeral_runner_spec
    )
    assert runner_spec_hash(ephemeral_runner_spec(runner_set())) == runner_spec_hash(stored.spec.ephemeral_runner_spec)
    other_size = ephemeral_runner_set(runner_set(minRunners=5, ephemeralRunnerMetadata={"labels": {"a": "b"}}), ())
    assert other_size["metadata"]["annotations"] == body["metadata"]["annotations"]


def test_the_template_is_decoded_once_for_all() -> None:
    first, second = (ephemeral_runner_set(runner_set(), ())["spec"]["ephemeralRunnerSpec"] for _ in range(2))
    assert first is second


def test_what_a_set_cannot_be_made_of() -> None:
    with pytest.raises(BuildError):
        ephemeral_runner_set(runner_set(annotations={}), ())
    with pytest.raises(InvalidConfigURLError):
        ephemeral_runner_set(runner_set(githubConfigUrl="https://github.com/a/b/c"), ())


def test_the_parent_stays_as_it_is() -> None:
    parent = runner_set(ephemeralRunnerSetMetadata={"labels": {"added": "1"}, "annotations": {"added": "1"}})
    before = msgspec.json.encode(parent)
    ephemeral_runner_set(parent, ("own",))
    assert msgspec.json.encode(parent) == before


def test_a_set_without_a_template() -> None:
    runner_spec = sent(ephemeral_runner_set(runner_set(template=None), ()))["spec"]["ephemeralRunnerSpec"]
    assert runner_spec.keys() == {"githubConfigUrl", "githubConfigSecret", "runnerScaleSetId"}
