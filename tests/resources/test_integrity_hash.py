from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runherd.api.actions import EphemeralRunner, EphemeralRunnerSet
from runherd.resources import ephemeral_runner as runners
from runherd.resources.integrity_hash import (
    content_hash,
    is_own_hash,
    listener_spec_hash,
    runner_set_hash,
    runner_spec_hash,
)
from tests.resources.objects import TEMPLATE, decoded, ephemeral_runner_set, listener, runner_set
from tests.resources.test_canonical import WRITTEN, WRITTEN_BY_ARC

values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
)


@given(values)
def test_a_hash_is_recognised_as_ours(value: object) -> None:
    assert is_own_hash(content_hash(value))


@pytest.mark.parametrize("other", ["", "67b8d9f5b4", "v1.", "v1.67b8", "v2." + "0" * 32, "v1." + "0" * 32 + "\n"])
def test_what_is_not_ours(other: str) -> None:
    assert not is_own_hash(other)


@given(st.dictionaries(st.text(max_size=3), st.text(max_size=3)))
def test_the_order_of_keys_does_not_matter(value: dict[str, str]) -> None:
    assert content_hash(dict(reversed(value.items()))) == content_hash(value)


def test_it_is_the_same_in_another_process() -> None:
    program = "from runherd.resources.integrity_hash import content_hash; print(content_hash({'a': ['b', {'c': 1}]}))"
    printed = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert printed.strip() == content_hash({"a": ["b", {"c": 1}]})


def test_the_specs_of_a_set_and_of_its_runners_have_one_hash() -> None:
    runner_set = ephemeral_runner_set(
        ephemeralRunnerSpec={
            "githubConfigUrl": "u",
            "githubConfigSecret": "s",
            "runnerScaleSetId": 7,
            "proxy": {"http": {"url": "http://proxy.test"}},
            **TEMPLATE,
        }
    )
    body = runners.ephemeral_runner(runner_set, "name", ())
    assert body["spec"]["proxySecretRef"]
    runner = decoded(body, EphemeralRunner)
    assert runner_spec_hash(runner.spec) == runner_spec_hash(runner_set.spec.ephemeral_runner_spec)


def test_a_set_that_arc_wrote_has_the_hash_of_what_is_desired() -> None:
    assert spec_hash(WRITTEN) == spec_hash(WRITTEN_BY_ARC)
    assert spec_hash(WRITTEN) != spec_hash({**WRITTEN, "hostNetwork": True})


def spec_hash(pod_spec: dict[str, object]) -> str:
    spec = {"githubConfigUrl": "u", "githubConfigSecret": "s", "runnerScaleSetId": 7, "spec": pod_spec}
    runner_set: EphemeralRunnerSet = ephemeral_runner_set(ephemeralRunnerSpec=spec)
    return runner_spec_hash(runner_set.spec.ephemeral_runner_spec)


def test_a_runner_set_changes_with_its_spec_and_its_labels() -> None:
    base = runner_set_hash(runner_set(labels={"a": "1"}))
    assert base == runner_set_hash(runner_set(labels={"a": "1"}, annotations={"ignored": "1"}))
    assert base == runner_set_hash(runner_set(labels={"a": "1"}, runnerScaleSetLabels=[], runnerGroup=""))
    assert base != runner_set_hash(runner_set(labels={"a": "2"}))
    assert base != runner_set_hash(runner_set(labels={"a": "1"}, minRunners=0))
    assert base != runner_set_hash(runner_set(labels={"a": "1"}, runnerScaleSetLabels=["x"]))


def test_a_listener_changes_with_its_spec() -> None:
    base = listener_spec_hash(listener().spec)
    assert base == listener_spec_hash(listener(imagePullSecrets=[]).spec)
    assert base != listener_spec_hash(listener(maxRunners=10).spec)
    assert base != listener_spec_hash(listener(template={"spec": {"containers": [{"name": "listener"}]}}).spec)
