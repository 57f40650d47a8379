from __future__ import annotations

from base64 import b64encode

import msgspec
import pytest

from runherd.actions.objects import JitRunnerConfig, RunnerReference
from runherd.api.core import Secret
from runherd.resources.jit_secret import InvalidRegistrationError, Registration, jit_secret, registration_in
from tests.resources.objects import decoded, ephemeral_runner, owner, sent

CONFIG = JitRunnerConfig(
    runner=RunnerReference(id=42, name="arc-runner-set-runner-abcde", runner_scale_set_id=7),
    encoded_jit_config="c2VjcmV0",
)


def encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


def test_a_plain_secret() -> None:
    assert sent(jit_secret(ephemeral_runner(), CONFIG, ())) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "arc-runner-set-runner-abcde",
            "namespace": "arc-runners",
            "ownerReferences": owner("EphemeralRunner", "arc-runner-set-runner-abcde", "uid-of-er"),
        },
        "data": {
            "jitToken": encoded("c2VjcmV0"),
            "runnerName": encoded("arc-runner-set-runner-abcde"),
            "runnerId": encoded("42"),
            "scaleSetId": encoded("7"),
        },
    }


def test_labels_and_annotations_of_the_user_only() -> None:
    override = {"labels": {"a": "1", "private.test/b": "1"}, "annotations": {"private.test/c": "1"}}
    runner = ephemeral_runner(ephemeralRunnerConfigSecretMetadata=override)
    before = msgspec.json.encode(runner)
    metadata = jit_secret(runner, CONFIG, ("private.test/",))["metadata"]
    assert metadata["labels"] == {"a": "1"}
    assert metadata["annotations"] == {"private.test/c": "1"}
    assert msgspec.json.encode(runner) == before


def test_a_service_that_does_not_tell_the_scale_set() -> None:
    config = JitRunnerConfig(runner=RunnerReference(id=42, name="n"), encoded_jit_config="x")
    assert jit_secret(ephemeral_runner(), config, ())["data"]["scaleSetId"] == encoded("7")


def test_the_registration_can_be_read_back() -> None:
    stored: Secret = decoded(jit_secret(ephemeral_runner(), CONFIG, ()), Secret)
    assert registration_in(stored.data) == Registration(42, "arc-runner-set-runner-abcde")


@pytest.mark.parametrize(("text", "expected"), [("1", 1), ("+1", 1), ("0042", 42), (str(2**63 - 1), 2**63 - 1)])
def test_valid_ids(text: str, expected: int) -> None:
    assert registration_in({"runnerId": text.encode()}) == Registration(expected, "")


@pytest.mark.parametrize(
    "text", ["", "text", "0", "-1", "+", " 1", "1 ", "1_0", "1.0", "0x1", "٤", str(2**63), "9" * 500]
)
def test_invalid_ids_are_errors_and_never_none(text: str) -> None:
    with pytest.raises(InvalidRegistrationError, match="runnerId"):
        registration_in({"runnerId": text.encode(), "jitToken": b"hidden"})


def test_no_id() -> None:
    with pytest.raises(InvalidRegistrationError) as caught:
        registration_in({"jitToken": b"hidden"})
    assert "hidden" not in str(caught.value)
