from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from runherd.actions.credentials import Credentials, GitHubApp, PersonalAccessToken
from runherd.resources.errors import BuildError
from runherd.resources.listener_config import ListenerConfig, listener_config, listener_config_secret
from tests.resources.objects import HASH, SETTINGS, listener, owner, sent

TOKEN = PersonalAccessToken("ghp_hidden")
NAME = "arc-runner-set-68c4584d-listener"

FILE: dict[str, Any] = {
    "configure_url": "https://github.com/octo-org/octo-repo",
    "vault_type": "",
    "vault_lookup_key": "",
    "github_app_id": "",
    "github_app_installation_id": 0,
    "github_app_private_key": "",
    "github_token": "ghp_hidden",
    "ephemeral_runner_set_namespace": "arc-runners",
    "ephemeral_runner_set_name": "arc-runner-set",
    "max_runners": 9,
    "min_runners": 1,
    "runner_scale_set_id": 7,
    "runner_scale_set_name": "arc-runner-set",
    "server_root_ca": "",
    "log_level": "debug",
    "log_format": "text",
    "metrics_addr": ":8080",
    "metrics_endpoint": "/metrics",
    "metrics": None,
}


def file(credentials: Credentials | None = TOKEN, root_ca: str = "", settings: Any = SETTINGS, **spec: Any) -> Any:
    document = listener_config(listener(**spec), settings, credentials, root_ca).document()
    assert document.endswith(b"}\n")
    return json.loads(document)


def test_a_plain_file() -> None:
    assert file() == FILE


def test_a_github_app() -> None:
    assert file(GitHubApp("12", 34, "pem")) == {
        **FILE,
        "github_token": "",
        "github_app_id": "12",
        "github_app_installation_id": 34,
        "github_app_private_key": "pem",
    }


def test_a_vault_has_the_credentials() -> None:
    vault = {
        "type": "azure_key_vault",
        "azureKeyVault": {"url": "u", "tenantId": "t", "clientId": "c", "certificatePath": "/p"},
    }
    written = file(None, vaultConfig=vault)
    assert written.pop("azure_key_vault") == {"tenant_id": "t", "client_id": "c", "url": "u", "certificate_path": "/p"}
    assert written == {
        **{name: value for name, value in FILE.items() if not name.startswith("github_")},
        "vault_type": "azure_key_vault",
        "vault_lookup_key": "github-secret",
    }


def test_a_vault_config_without_a_type_is_none() -> None:
    assert file(vaultConfig={"type": ""}) == FILE


def test_certificates_metrics_and_logs() -> None:
    metrics = {
        "counters": {"gha_started_jobs_total": {"labels": ["name"]}},
        "histograms": {"h": {"labels": [], "buckets": [0.5, 1.0]}},
    }
    settings = replace(SETTINGS, log_level="info", log_format="json", metrics_address=":9", metrics_endpoint="/m")
    assert file(root_ca="PEM\n", settings=settings, metrics=metrics) == {
        **FILE,
        "server_root_ca": "PEM\n",
        "log_level": "info",
        "log_format": "json",
        "metrics_addr": ":9",
        "metrics_endpoint": "/m",
        "metrics": metrics,
    }


@pytest.mark.parametrize("address", ["0", ""])
def test_no_metrics(address: str) -> None:
    written = file(settings=replace(SETTINGS, metrics_address=address))
    assert written == {**FILE, "metrics_addr": "", "metrics_endpoint": ""}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"githubConfigUrl": "", "minRunners": 10}, "githubConfigUrl is empty"),
        ({"ephemeralRunnerSetName": "", "runnerScaleSetId": 0}, "names no EphemeralRunnerSet"),
        ({"autoscalingRunnerSetNamespace": ""}, "names no EphemeralRunnerSet"),
        ({"runnerScaleSetId": 0, "minRunners": 10}, "no runner scale set id"),
        ({"minRunners": 10}, r"maxRunners \(9\) is less than minRunners \(10\)"),
        ({"vaultConfig": {"type": "other"}}, "vaultConfig.type is 'other'"),
        ({"vaultConfig": {"type": "azure_key_vault"}, "githubConfigSecret": ""}, "githubConfigSecret is empty"),
    ],
)
def test_what_is_refused_first(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BuildError, match=message):
        listener_config(listener(**change), SETTINGS, TOKEN, "")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"github_app_id": "1", "github_app_private_key": "hidden"},
        {"github_app_id": "1", "github_app_installation_id": -1, "github_app_private_key": "hidden"},
        {"github_token": "with space"},
        {
            "github_token": "t",
            "github_app_id": "1",
            "github_app_installation_id": 2,
            "github_app_private_key": "hidden",
        },
    ],
)
def test_credentials_must_be_complete_and_of_one_kind(fields: dict[str, Any]) -> None:
    config = ListenerConfig(
        configure_url="u",
        ephemeral_runner_set_namespace="a",
        ephemeral_runner_set_name="b",
        runner_scale_set_id=1,
        **fields,
    )
    with pytest.raises(BuildError, match="secret named by githubConfigSecret") as caught:
        config.validate()
    assert "hidden" not in str(caught.value)
    assert "with space" not in str(caught.value)


def test_a_key_without_a_vault() -> None:
    config = msgspec.json.decode(json.dumps({**FILE, "vault_lookup_key": "key"}), type=ListenerConfig)
    with pytest.raises(BuildError, match="no vault to look in"):
        config.validate()


def test_a_file_can_be_read_back() -> None:
    config = listener_config(listener(metrics={"gauges": {"g": {"labels": ["a"]}}}), SETTINGS, TOKEN, "ca")
    assert msgspec.json.decode(config.document(), type=ListenerConfig) == config
    unknown = json.dumps({**FILE, "unknown": 1})
    assert msgspec.json.decode(unknown, type=ListenerConfig).github_token == "ghp_hidden"


def test_no_credentials_are_shown() -> None:
    config = listener_config(listener(), SETTINGS, GitHubApp("12", 34, "hidden"), "")
    assert "hidden" not in repr(config)
    assert "hidden" not in repr(config.__rich_repr__())


def test_what_a_running_listener_reads_again() -> None:
    base = listener_config(listener(), SETTINGS, TOKEN, "").restart_hash()
    changes: list[dict[str, Any]] = [
        {"minRunners": 0},
        {"maxRunners": 10},
        {"metrics": {"gauges": {"g": {"labels": []}}}},
    ]
    for change in changes:
        assert listener_config(listener(**change), SETTINGS, TOKEN, "").restart_hash() == base


def test_what_needs_another_listener() -> None:
    hashes = {
        config.restart_hash()
        for config in (
            listener_config(listener(), SETTINGS, TOKEN, ""),
            listener_config(listener(), SETTINGS, PersonalAccessToken("other"), ""),
            listener_config(listener(), SETTINGS, TOKEN, "ca"),
            listener_config(listener(), replace(SETTINGS, log_level="info"), TOKEN, ""),
            listener_config(listener(), replace(SETTINGS, metrics_endpoint="/other"), TOKEN, ""),
            listener_config(listener(runnerScaleSetId=8), SETTINGS, TOKEN, ""),
            listener_config(listener(githubConfigUrl="https://github.com/other"), SETTINGS, TOKEN, ""),
        )
    }
    assert len(hashes) == 7


def test_the_secret() -> None:
    config = listener_config(listener(), SETTINGS, TOKEN, "")
    secret = sent(listener_config_secret(listener(), config, ()))
    assert b64decode(secret.pop("data")["config.json"]) == config.document()
    assert secret == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": f"{NAME}-config",
            "namespace": "arc-systems",
            "annotations": {"actions.github.com/integrity-hash": HASH},
            "ownerReferences": owner("AutoscalingListener", NAME, "uid-of-al"),
        },
    }


def test_the_override_of_the_secret() -> None:
    override = {
        "labels": {"added": "1", "private.test/a": "1"},
        "annotations": {"added": "1", "actions.github.com/integrity-hash": "x"},
    }
    parent = listener(configSecretMetadata=override)
    before = msgspec.json.encode(parent)
    config = listener_config(parent, SETTINGS, TOKEN, "")
    metadata = sent(listener_config_secret(parent, config, ("private.test/",)))["metadata"]
    assert metadata["labels"] == {"added": "1"}
    assert metadata["annotations"] == {"added": "1", "actions.github.com/integrity-hash": HASH}
    assert msgspec.json.encode(parent) == before


def test_the_hash_of_the_secret_follows_its_data() -> None:
    hashes = {
        str(
            listener_config_secret(listener(), listener_config(parent, SETTINGS, TOKEN, ""), ())["metadata"][
                "annotations"
            ]
        )
        for parent in (listener(), listener(), listener(maxRunners=10))
    }
    assert len(hashes) == 2
