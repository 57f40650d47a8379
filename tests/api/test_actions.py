from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from runherd.api import actions
from runherd.api.actions import (
    AutoscalingListener,
    AutoscalingListenerSpec,
    AutoscalingRunnerSet,
    AutoscalingRunnerSetSpec,
    CounterMetric,
    EphemeralRunner,
    EphemeralRunnerPhase,
    EphemeralRunnerSet,
    EphemeralRunnerSetSpec,
    EphemeralRunnerSetStatus,
    EphemeralRunnerSpec,
    EphemeralRunnerStatus,
    HistogramMetric,
)
from runherd.api.meta import ApiStruct, Condition, ObjectMeta
from tests.api import document
from tests.api.manifests import maximal

TYPES: dict[str, type[ApiStruct]] = {
    kind.__name__: kind for kind in (AutoscalingRunnerSet, AutoscalingListener, EphemeralRunnerSet, EphemeralRunner)
}


@pytest.mark.parametrize("kind", document.KINDS)
def test_an_object_with_every_field_is_written_as_it_was_read(kind: str) -> None:
    schema = document.schema(kind)
    value = maximal(schema) | {"apiVersion": "actions.github.com/v1alpha1", "kind": kind, "metadata": {"name": "a"}}
    decoded = msgspec.json.decode(msgspec.json.encode(value), type=TYPES[kind])
    assert msgspec.json.decode(msgspec.json.encode(decoded)) == value


def spec_of(kind: str, *path: str) -> dict[str, Any]:
    node = document.schema(kind)
    for name in path:
        node = (
            node["items" if name == "[]" else "additionalProperties"]
            if name in {"[]", "{}"}
            else node["properties"][name]
        )
    return node


@pytest.mark.parametrize(
    ("struct", "schema"),
    [
        *((getattr(actions, f"{kind}Spec"), spec_of(kind, "spec")) for kind in document.KINDS),
        *((getattr(actions, f"{kind}Status"), spec_of(kind, "status")) for kind in document.KINDS),
        (actions.ResourceMeta, spec_of("EphemeralRunnerSet", "spec", "ephemeralRunnerMetadata")),
        (actions.ProxyConfig, spec_of("EphemeralRunner", "spec", "proxy")),
        (actions.ProxyServerConfig, spec_of("EphemeralRunner", "spec", "proxy", "http")),
        (actions.TLSConfig, spec_of("EphemeralRunner", "spec", "githubServerTLS")),
        (actions.CertificateSource, spec_of("EphemeralRunner", "spec", "githubServerTLS", "certificateFrom")),
        (
            actions.ConfigMapKeySelector,
            spec_of("EphemeralRunner", "spec", "githubServerTLS", "certificateFrom", "configMapKeyRef"),
        ),
        (actions.VaultConfig, spec_of("EphemeralRunner", "spec", "vaultConfig")),
        (actions.AzureKeyVaultConfig, spec_of("EphemeralRunner", "spec", "vaultConfig", "azureKeyVault")),
        (actions.MetricsConfig, spec_of("AutoscalingListener", "spec", "metrics")),
        (actions.CounterMetric, spec_of("AutoscalingListener", "spec", "metrics", "gauges", "{}")),
        (actions.HistogramMetric, spec_of("AutoscalingListener", "spec", "metrics", "histograms", "{}")),
        (actions.RecentFailure, spec_of("EphemeralRunner", "status", "recentFailures", "[]")),
        (Condition, spec_of("AutoscalingListener", "status", "conditions", "[]")),
    ],
)
def test_structs_have_the_fields_of_the_schema_and_no_other(struct: type[ApiStruct], schema: dict[str, Any]) -> None:
    names = {field.encode_name for field in msgspec.structs.fields(struct)}
    assert names == set(schema["properties"])
    # What the schema requires is written even where it is zero or empty; a condition can't be made without it.
    if struct is not Condition:
        assert set(msgspec.json.decode(msgspec.json.encode(struct()))) == set(schema.get("required", ()))


def test_zeros_that_say_something_are_written() -> None:
    runner_set = EphemeralRunnerSet(
        spec=EphemeralRunnerSetSpec(replicas=0, patch_id=0), status=EphemeralRunnerSetStatus(current_replicas=0)
    )
    assert msgspec.to_builtins(runner_set.spec) == {"patchID": 0}
    assert msgspec.to_builtins(runner_set.status) == {"currentReplicas": 0}
    assert msgspec.to_builtins(EphemeralRunnerSpec()) == {
        "githubConfigUrl": "",
        "githubConfigSecret": "",
        "runnerScaleSetId": 0,
    }
    assert msgspec.to_builtins(HistogramMetric()) == {"labels": []}


def test_a_bound_of_zero_differs_from_no_bound() -> None:
    assert msgspec.to_builtins(AutoscalingRunnerSetSpec(max_runners=0, min_runners=0)) == {
        "maxRunners": 0,
        "minRunners": 0,
    }
    assert msgspec.to_builtins(AutoscalingRunnerSetSpec()) == {}
    assert msgspec.to_builtins(AutoscalingListenerSpec()) == {}


def test_kind_and_version_are_written_and_need_not_be_there_to_be_read() -> None:
    encoded = msgspec.json.encode(EphemeralRunner(metadata=ObjectMeta(name="a")))
    assert encoded == b'{"apiVersion":"actions.github.com/v1alpha1","kind":"EphemeralRunner","metadata":{"name":"a"}}'
    assert msgspec.json.decode(b'{"metadata":{"name":"a"}}', type=EphemeralRunner).kind == "EphemeralRunner"


def test_another_kind_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"kind":"Status","apiVersion":"v1"}', type=EphemeralRunner)


def test_labels_of_metrics_are_the_objects_own() -> None:
    CounterMetric().labels.append("a")
    assert CounterMetric().labels == []


@pytest.mark.parametrize(
    ("phase", "done"),
    [
        *((phase, False) for phase in ("", "Pending", "Running", "Unheard")),
        *((phase, True) for phase in ("Succeeded", "Failed", "Outdated")),
    ],
)
def test_is_done(phase: str, done: bool) -> None:
    encoded = msgspec.json.encode({"status": {"phase": phase}})
    assert msgspec.json.decode(encoded, type=EphemeralRunner).is_done is done


def test_phases_are_strings() -> None:
    assert msgspec.json.encode(EphemeralRunnerStatus(phase=EphemeralRunnerPhase.FAILED)) == b'{"phase":"Failed"}'


def test_has_job() -> None:
    assert EphemeralRunner(status=EphemeralRunnerStatus(job_id="j")).has_job
    assert not EphemeralRunner(status=EphemeralRunnerStatus(job_request_id=1, job_display_name="d")).has_job


def test_has_container_hook() -> None:
    hooked = msgspec.Raw(b'{"containers":[{"name":"runner","env":[{"name":"ACTIONS_RUNNER_CONTAINER_HOOKS"}]}]}')
    assert EphemeralRunner(spec=EphemeralRunnerSpec(spec=hooked)).has_container_hook
    assert not EphemeralRunner().has_container_hook


def test_last_failure_is_the_latest() -> None:
    encoded = (
        b'{"failures":{"a":"2026-01-02T03:04:05Z","b":"2026-01-02T04:04:05+00:00","c":"2026-01-01T23:04:05.5-04:00"}}'
    )
    status = msgspec.json.decode(encoded, type=EphemeralRunnerStatus)
    assert status.last_failure() == datetime(2026, 1, 2, 4, 4, 5, tzinfo=UTC)
    assert EphemeralRunnerStatus().last_failure() is None


def test_failures_of_old_releases_are_read_without_a_time() -> None:
    status = msgspec.json.decode(b'{"failures":{"a":true,"b":"2026-01-02T03:04:05Z"}}', type=EphemeralRunnerStatus)
    assert len(status.failures) == 2
    assert status.last_failure() == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    old = msgspec.json.decode(b'{"failures":{"a":true}}', type=EphemeralRunnerStatus)
    assert old.last_failure() is None
    assert msgspec.json.encode(old) == b'{"failures":{"a":true}}'
