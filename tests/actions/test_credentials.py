"""``docs/spec/actions-service.md`` 2.1, 8.4, 8.5."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from runherd.actions import (
    CredentialsError,
    GitHubApp,
    PersonalAccessToken,
    credential_source,
    credentials_from_secret,
    credentials_from_values,
)

APP = {"github_app_id": b"12", "github_app_installation_id": b"34", "github_app_private_key": b"PEM"}


def test_a_token() -> None:
    assert credentials_from_secret({"github_token": b"ghp_x"}) == PersonalAccessToken("ghp_x")


def test_an_app() -> None:
    assert credentials_from_secret(APP) == GitHubApp("12", 34, "PEM")


@pytest.mark.parametrize("missing", APP)
def test_incomplete_app_data_counts_as_absent(missing: str) -> None:
    incomplete = {key: value for key, value in APP.items() if key != missing}
    with pytest.raises(CredentialsError, match="no complete credentials"):
        credentials_from_secret(incomplete)
    assert credentials_from_secret({**incomplete, "github_token": b"ghp_x"}) == PersonalAccessToken("ghp_x")


def test_both_and_neither() -> None:
    with pytest.raises(CredentialsError, match="both a token and a GitHub App"):
        credentials_from_secret({**APP, "github_token": b"ghp_x"})
    with pytest.raises(CredentialsError, match="no complete credentials"):
        credentials_from_secret({"other": b"x"})


@pytest.mark.parametrize("number", [b"12x", b" 12", b"1_2", "١٢".encode(), b"12.0", b"99999999999999999999", b"0x1"])
def test_an_installation_id_that_is_no_number(number: bytes) -> None:
    with pytest.raises(CredentialsError, match="github_app_installation_id is not a decimal number"):
        credentials_from_secret({**APP, "github_app_installation_id": number})


def test_a_negative_installation_id() -> None:
    with pytest.raises(CredentialsError, match="must be above 0, not -3"):
        credentials_from_secret({**APP, "github_app_installation_id": b"-3"})


@pytest.mark.parametrize("token", [b"ghp_x\n", b"ghp x", "ghp_ä".encode()])
def test_a_token_that_can_be_none(token: bytes) -> None:
    with pytest.raises(CredentialsError, match="white space or other characters"):
        credentials_from_secret({"github_token": token})


def test_a_value_that_is_no_text() -> None:
    with pytest.raises(CredentialsError, match="github_token is not UTF-8"):
        credentials_from_secret({"github_token": b"\xff"})


def test_repr_shows_no_secret() -> None:
    assert "ghp_x" not in repr(PersonalAccessToken("ghp_x"))
    assert "PEM" not in repr(GitHubApp("12", 34, "PEM"))


def test_digests_tell_credentials_apart() -> None:
    digests = {
        PersonalAccessToken("a").digest(),
        PersonalAccessToken("b").digest(),
        GitHubApp("1", 23, "k").digest(),
        GitHubApp("12", 3, "k").digest(),
        GitHubApp("12", 3, "l").digest(),
    }
    assert len(digests) == 5
    assert PersonalAccessToken("a").digest() in digests


async def test_a_kubernetes_secret_is_read_every_time() -> None:
    secrets = {("runners", "github"): {"github_token": b"one"}}

    async def read(namespace: str, name: str) -> Mapping[str, bytes]:
        return secrets[namespace, name]

    source = credential_source("", read)
    assert await source.credentials("runners", "github") == PersonalAccessToken("one")
    secrets["runners", "github"] = {"github_token": b"two"}
    assert await source.credentials("runners", "github") == PersonalAccessToken("two")
    secrets["runners", "github"] = {}
    with pytest.raises(CredentialsError, match="Secret runners/github: no complete credentials"):
        await source.credentials("runners", "github")


def test_vaults_are_refused() -> None:
    async def read(namespace: str, name: str) -> Mapping[str, bytes]:
        raise AssertionError("not asked")

    with pytest.raises(CredentialsError, match="azure_key_vault is not supported yet; keep the credentials in"):
        credential_source("azure_key_vault", read)
    with pytest.raises(CredentialsError, match="unknown vault type 'other'"):
        credential_source("other", read)


def test_values_from_elsewhere() -> None:
    assert credentials_from_values(app_id="1", installation_id=2, private_key="k") == GitHubApp("1", 2, "k")
