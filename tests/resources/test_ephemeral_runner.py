from __future__ import annotations

import msgspec

from runherd.resources.ephemeral_runner import ephemeral_runner
from tests.resources.objects import TEMPLATE, ephemeral_runner_set, owner, sent

SPEC = {
    "githubConfigUrl": "https://github.com/octo-org/octo-repo",
    "githubConfigSecret": "github-secret",
    "runnerScaleSetId": 7,
    "metadata": TEMPLATE["metadata"],
    "spec": TEMPLATE["spec"],
}
LABELS = {
    "app.kubernetes.io/component": "runner",
    "actions.github.com/scale-set-name": "arc-runner-set",
    "actions.github.com/scale-set-namespace": "arc-runners",
}


def test_a_plain_runner() -> None:
    assert sent(ephemeral_runner(ephemeral_runner_set(), "arc-runner-set-runner-abcde", ())) == {
        "apiVersion": "actions.github.com/v1alpha1",
        "kind": "EphemeralRunner",
        "metadata": {
            "name": "arc-runner-set-runner-abcde",
            "generateName": "arc-runner-set-runner-",
            "namespace": "arc-runners",
            "labels": LABELS,
            "annotations": {"actions.github.com/runner-group-name": "Default", "actions.github.com/patch-id": "12"},
            "ownerReferences": owner("EphemeralRunnerSet", "arc-runner-set", "uid-of-ers"),
            "finalizers": [
                "ephemeralrunner.actions.github.com/finalizer",
                "ephemeralrunner.actions.github.com/runner-registration-finalizer",
            ],
        },
        "spec": SPEC,
    }


def test_patch_id_zero_is_written() -> None:
    body = ephemeral_runner(ephemeral_runner_set(patchID=0), "name", ())
    assert body["metadata"]["annotations"]["actions.github.com/patch-id"] == "0"


def test_a_runner_behind_a_proxy_refers_to_the_secret_of_its_set() -> None:
    proxy = {"https": {"url": "http://proxy.test"}}
    body = sent(ephemeral_runner(ephemeral_runner_set(ephemeralRunnerSpec={**SPEC, "proxy": proxy}), "name", ()))
    # The hash of the namespace "arc-runners".
    assert body["spec"] == {**SPEC, "proxy": proxy, "proxySecretRef": "arc-runner-set-754b578d-runner-proxy"}


def test_a_user_adds_but_does_not_change() -> None:
    override = {
        "labels": {"added": "1", "app.kubernetes.io/component": "x"},
        "annotations": {"added": "1", "actions.github.com/patch-id": "99"},
    }
    metadata = ephemeral_runner(ephemeral_runner_set(ephemeralRunnerMetadata=override), "name", ())["metadata"]
    assert metadata["labels"] == {**LABELS, "added": "1"}
    assert metadata["annotations"] == {
        "actions.github.com/runner-group-name": "Default",
        "actions.github.com/patch-id": "12",
        "added": "1",
    }


def test_labels_are_filtered_only_where_an_override_is_merged() -> None:
    labels = {"private.test/a": "1", "public.test/a": "1"}
    runner_set = ephemeral_runner_set(metadata={"labels": labels})
    plain = ephemeral_runner(runner_set, "name", ("private.test/",))["metadata"]["labels"]
    assert plain == {**labels, "app.kubernetes.io/component": "runner"}
    runner_set = ephemeral_runner_set(metadata={"labels": labels}, ephemeralRunnerMetadata={"annotations": {"a": "b"}})
    merged = ephemeral_runner(runner_set, "name", ("private.test/",))["metadata"]["labels"]
    assert merged == {"public.test/a": "1", "app.kubernetes.io/component": "runner"}


def test_runners_of_a_set_share_their_spec_and_nothing_they_may_change() -> None:
    runner_set = ephemeral_runner_set()
    before = msgspec.json.encode(runner_set)
    first, second = (ephemeral_runner(runner_set, name, ()) for name in ("a", "b"))
    assert first["spec"] is second["spec"]
    first["metadata"]["labels"]["changed"] = "1"
    first["metadata"]["finalizers"].clear()
    assert "changed" not in second["metadata"]["labels"]
    assert len(second["metadata"]["finalizers"]) == 2
    assert msgspec.json.encode(runner_set) == before
