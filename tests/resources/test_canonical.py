from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runherd.api.crds import crds
from runherd.api.schema import _QUANTITY
from runherd.resources import canonical
from runherd.resources.canonical import canonical_spec
from tests.resources.objects import ephemeral_runner, listener, runner_set

#: A pod spec as a user may write it, and what ARC, which reads and writes it through Go's types, makes of that.
WRITTEN: dict[str, Any] = {
    "hostNetwork": False,
    "nodeSelector": {},
    "tolerations": [],
    "serviceAccountName": "",
    "containers": [
        {
            "name": "runner",
            "image": "example.test/runner:1",
            "env": [],
            "stdin": False,
            "resources": {"limits": {"cpu": 2, "memory": "1024Mi"}, "requests": {"cpu": "1500m", "memory": "0.5Gi"}},
            "volumeMounts": [{"name": "work", "mountPath": "/work", "readOnly": False}],
            "ports": [{"containerPort": 80, "protocol": "TCP", "hostPort": 0}],
        },
        {"name": "sidecar", "env": [{"name": "EMPTY", "value": ""}]},
    ],
    "volumes": [{"name": "work", "emptyDir": {}}],
}
WRITTEN_BY_ARC: dict[str, Any] = {
    "containers": [
        {
            "name": "runner",
            "image": "example.test/runner:1",
            "resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1500m", "memory": "512Mi"}},
            "volumeMounts": [{"name": "work", "mountPath": "/work"}],
            "ports": [{"containerPort": 80, "protocol": "TCP"}],
        },
        {"name": "sidecar", "env": [{"name": "EMPTY"}], "resources": {}},
    ],
    "volumes": [{"name": "work", "emptyDir": {}}],
}


def canonical_pod(pod_spec: dict[str, Any]) -> Any:
    return canonical_spec("EphemeralRunner", ephemeral_runner(spec=pod_spec, metadata=None).spec)["spec"]


def test_what_arc_stores_equals_what_the_user_wrote() -> None:
    assert canonical_pod(WRITTEN) == canonical_pod(WRITTEN_BY_ARC)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"volumes": [{"name": "a", "emptyDir": {}}]}, {"volumes": [{"name": "a"}]}),
        ({"automountServiceAccountToken": False}, {}),
        ({"terminationGracePeriodSeconds": 0}, {}),
        ({"securityContext": {"runAsUser": 0}}, {"securityContext": {}}),
        ({"securityContext": {"runAsNonRoot": False}}, {"securityContext": {}}),
        ({"enableServiceLinks": False}, {}),
        ({"nodeSelector": {"gpu": ""}}, {}),
        ({"hostNetwork": True}, {"hostNetwork": False}),
        ({"overhead": {"cpu": "0"}}, {}),
        ({"containers": [{"name": "runner", "args": [""]}]}, {"containers": [{"name": "runner", "args": []}]}),
        (
            {"containers": [{"name": "a"}, {"name": "b"}]},
            {"containers": [{"name": "b"}, {"name": "a"}]},
        ),
        (
            {"topologySpreadConstraints": [{"maxSkew": 1, "labelSelector": {}}]},
            {"topologySpreadConstraints": [{"maxSkew": 1}]},
        ),
        (
            {"volumes": [{"name": "a", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": ""}}}}]},
            {"volumes": [{"name": "a", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]},
        ),
    ],
)
def test_what_differs_in_meaning(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert canonical_pod(first) != canonical_pod(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("1", "1000m"),
        ("1", 1),
        ("0.5", 0.5),
        ("500m", ".5"),
        ("1Ki", "1024"),
        ("1k", "1e3"),
        ("1G", "1000M"),
        ("+1", "1."),
        ("100n", "0.1u"),
        ("1Ei", "1024Pi"),
        ("1E", "1e18"),
        ("-1", "-1000m"),
    ],
)
def test_equal_quantities(first: object, second: object) -> None:
    assert canonical_pod({"overhead": {"cpu": first}}) == canonical_pod({"overhead": {"cpu": second}})


@pytest.mark.parametrize("text", ["1K", "m", "", "1 Gi", "1" * 5000, "1e9999", "text"])
def test_what_is_no_quantity_stays(text: str) -> None:
    assert canonical_pod({"overhead": {"cpu": text}}) == {"overhead": {"cpu": text}}


@given(st.integers(0, 10**9), st.sampled_from(["", "k", "Mi", "m"]), st.integers(0, 10**9))
def test_unequal_quantities(number: int, unit: str, other: int) -> None:
    same = canonical_pod({"overhead": {"x": f"{number}{unit}"}}) == canonical_pod({"overhead": {"x": f"{other}{unit}"}})
    assert same is (number == other)


def test_an_empty_value_that_clears_a_default_stays_in_a_listener_template() -> None:
    template: dict[str, Any] = {
        "spec": {"containers": [], "nodeSelector": {}, "imagePullSecrets": [], "tolerations": []}
    }
    kept: dict[str, Any] = {"spec": {"nodeSelector": {}, "imagePullSecrets": []}}
    assert canonical_spec("AutoscalingListener", listener(template=template).spec)["template"] == kept
    both = canonical_spec("AutoscalingRunnerSet", runner_set(listenerTemplate=template, template=template).spec)
    assert both["listenerTemplate"] == kept
    assert both["template"] == {"spec": {}}


def test_empty_elements_and_values_of_maps_stay() -> None:
    kept = {"nodeSelector": {"gpu": ""}, "containers": [{"name": "runner", "args": ["", "a"]}, {"name": "b"}]}
    assert canonical_pod(kept) == kept


def test_the_order_of_keys_does_not_matter() -> None:
    pod_spec = {"hostname": "a", "nodeSelector": {"a": "1", "b": "2"}}
    other = {"nodeSelector": {"b": "2", "a": "1"}, "hostname": "a"}
    assert canonical_pod(pod_spec) == canonical_pod(other)


def test_what_counts_as_absent_exists_in_the_schema() -> None:
    """So that a misspelled name, or one that Kubernetes drops, is noticed."""
    [schema] = [crd for crd in crds() if crd["spec"]["names"]["kind"] == "AutoscalingListener"]
    spec = schema["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    names = set(field_names(spec))
    assert names >= canonical._PLAIN_SCALARS
    assert names >= canonical._PLAIN_OBJECTS
    assert names >= canonical._STRINGS_WITH_EMPTY
    assert names >= canonical._CLEARING


def field_names(schema: dict[str, Any]) -> Iterator[str]:
    for name, child in schema.get("properties", {}).items():
        yield name
        yield from field_names(child)
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from field_names(schema[key])


def test_quantity_pattern_is_that_of_the_definitions() -> None:
    """Every suffix that the API server takes is known here."""
    for suffix in ["", *"numkMGTPE", *(f"{prefix}i" for prefix in "KMGTPE"), "e3", "E-3"]:
        assert re.fullmatch(_QUANTITY, f"12{suffix}")
        assert canonical_pod({"overhead": {"cpu": f"12{suffix}"}}) == canonical_pod(
            {"overhead": {"cpu": f"12.0{suffix}"}}
        )
