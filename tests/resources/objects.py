"""Parent objects, as they come from an API server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from runherd.api.actions import AutoscalingListener, AutoscalingRunnerSet, EphemeralRunner, EphemeralRunnerSet
from runherd.resources.integrity_hash import is_own_hash
from runherd.resources.listener_settings import ListenerSettings

__all__ = [
    "HASH",
    "LABEL_VALUE",
    "SETTINGS",
    "TEMPLATE",
    "decoded",
    "ephemeral_runner",
    "ephemeral_runner_set",
    "listener",
    "owner",
    "runner_set",
    "sent",
    "with_hashes_named",
]

T = TypeVar("T")

#: Stands for any integrity hash of ours in what a test expects.
HASH = "<hash>"

#: What Kubernetes takes for the value of a label.
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")

SETTINGS = ListenerSettings(namespace="arc-systems", image="example.test/runherd:1", image_pull_secrets=("pull",))

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"team": "build"}, "annotations": {"note": "template"}},
    "spec": {
        "restartPolicy": "Never",
        "containers": [
            {
                "name": "runner",
                "image": "example.test/runner:1",
                "command": ["/home/runner/run.sh"],
                "env": [{"name": "OWN", "value": "1"}],
                "resources": {"limits": {"cpu": "2"}},
            },
            {"name": "sidecar", "image": "example.test/sidecar:1"},
        ],
        "volumes": [{"name": "work", "emptyDir": {}}],
    },
}


def runner_set(
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    name: str = "arc-runner-set",
    **spec: Any,
) -> AutoscalingRunnerSet:
    body = {
        "metadata": {
            "name": name,
            "namespace": "arc-runners",
            "uid": "uid-of-ars",
            "labels": labels if labels is not None else {"app.kubernetes.io/version": "0.14.2", "own": "label"},
            "annotations": annotations
            if annotations is not None
            else {
                "runner-scale-set-id": "7",
                "actions.github.com/runner-group-name": "Default",
                "actions.github.com/runner-scale-set-name": "linux",
                "actions.github.com/values-hash": "not copied",
            },
        },
        "spec": {
            "githubConfigUrl": "https://github.com/octo-org/octo-repo",
            "githubConfigSecret": "github-secret",
            "runnerScaleSetName": "linux",
            "template": TEMPLATE,
            **spec,
        },
    }
    return decoded(body, AutoscalingRunnerSet)


def ephemeral_runner_set(*, metadata: Mapping[str, Any] | None = None, **spec: Any) -> EphemeralRunnerSet:
    runner_spec = {
        "githubConfigUrl": "https://github.com/octo-org/octo-repo",
        "githubConfigSecret": "github-secret",
        "runnerScaleSetId": 7,
        **TEMPLATE,
    }
    body = {
        "metadata": {
            "name": "arc-runner-set",
            "namespace": "arc-runners",
            "uid": "uid-of-ers",
            "labels": {
                "app.kubernetes.io/component": "runner-set",
                "actions.github.com/scale-set-name": "arc-runner-set",
                "actions.github.com/scale-set-namespace": "arc-runners",
            },
            "annotations": {"actions.github.com/runner-group-name": "Default"},
            **(metadata or {}),
        },
        "spec": {"replicas": 3, "patchID": 12, "ephemeralRunnerSpec": runner_spec, **spec},
    }
    return decoded(body, EphemeralRunnerSet)


def ephemeral_runner(**spec: Any) -> EphemeralRunner:
    body = {
        "metadata": {
            "name": "arc-runner-set-runner-abcde",
            "namespace": "arc-runners",
            "uid": "uid-of-er",
            "labels": {"app.kubernetes.io/component": "runner", "team": "runner's"},
            "annotations": {"actions.github.com/patch-id": "12", "note": "runner's"},
        },
        "spec": {
            "githubConfigUrl": "https://github.com/octo-org/octo-repo",
            "githubConfigSecret": "github-secret",
            "runnerScaleSetId": 7,
            **TEMPLATE,
            **spec,
        },
    }
    return decoded(body, EphemeralRunner)


def listener(**spec: Any) -> AutoscalingListener:
    body = {
        "metadata": {
            "name": "arc-runner-set-68c4584d-listener",
            "namespace": "arc-systems",
            "uid": "uid-of-al",
            "labels": {"app.kubernetes.io/component": "runner-scale-set-listener", "own": "label"},
        },
        "spec": {
            "githubConfigUrl": "https://github.com/octo-org/octo-repo",
            "githubConfigSecret": "github-secret",
            "runnerScaleSetId": 7,
            "autoscalingRunnerSetNamespace": "arc-runners",
            "autoscalingRunnerSetName": "arc-runner-set",
            "ephemeralRunnerSetName": "arc-runner-set",
            "minRunners": 1,
            "maxRunners": 9,
            "image": "example.test/runherd:1",
            **spec,
        },
    }
    return decoded(body, AutoscalingListener)


def decoded(body: Mapping[str, Any], type_: type[T]) -> T:
    """``body`` as the client decodes it."""
    return msgspec.json.decode(msgspec.json.encode(body), type=type_)


def sent(body: Mapping[str, Any]) -> dict[str, Any]:
    """``body`` as it goes over the wire, with ``HASH`` for each integrity hash."""
    named: dict[str, Any] = with_hashes_named(msgspec.json.decode(msgspec.json.encode(body)))
    return named


def with_hashes_named(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: with_hashes_named(item) for key, item in value.items()}
    if isinstance(value, list):
        return [with_hashes_named(item) for item in value]
    return HASH if isinstance(value, str) and is_own_hash(value) else value


def owner(kind: str, name: str, uid: str) -> list[dict[str, Any]]:
    """The one owner reference that section 8 describes."""
    return [
        {
            "apiVersion": "actions.github.com/v1alpha1",
            "kind": kind,
            "name": name,
            "uid": uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
