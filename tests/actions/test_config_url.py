"""``docs/spec/actions-service.md`` 1."""

from __future__ import annotations

import pytest
from rich.pretty import pretty_repr

from runherd.actions import InvalidConfigURLError, Scope, parse_config_url


@pytest.mark.parametrize(
    ("text", "scope", "names", "hosted"),
    [
        ("https://github.com/org/repo", Scope.REPOSITORY, ("org", "repo", ""), True),
        ("https://github.com/org/repo/", Scope.REPOSITORY, ("org", "repo", ""), True),
        ("https://github.com/org", Scope.ORGANIZATION, ("org", "", ""), True),
        ("https://www.github.com/org/", Scope.ORGANIZATION, ("org", "", ""), True),
        ("https://GitHub.com/org", Scope.ORGANIZATION, ("org", "", ""), True),
        ("https://github.com/enterprises/my-enterprise/", Scope.ENTERPRISE, ("", "", "my-enterprise"), True),
        ("https://github.com/Enterprises/my-enterprise", Scope.ENTERPRISE, ("", "", "my-enterprise"), True),
        ("https://github.com/enterprises", Scope.ORGANIZATION, ("enterprises", "", ""), True),
        ("https://github.localhost/org", Scope.ORGANIZATION, ("org", "", ""), True),
        ("https://my-ghes.com/org", Scope.ORGANIZATION, ("org", "", ""), False),
        ("http://127.0.0.1:8080/org", Scope.ORGANIZATION, ("org", "", ""), False),
        ("https://github.com:8443/org", Scope.ORGANIZATION, ("org", "", ""), False),
        ("https://my-ghes.ghe.com/org/", Scope.ORGANIZATION, ("org", "", ""), True),
        ("https://my-ghes.GHE.com/org/", Scope.ORGANIZATION, ("org", "", ""), False),
        ("https://host/or%67", Scope.ORGANIZATION, ("org", "", ""), False),
        ("///https://github.com/org///", Scope.ORGANIZATION, ("org", "", ""), True),
        ("github.com/o", Scope.REPOSITORY, ("github.com", "o", ""), False),
    ],
)
def test_what_is_accepted(text: str, scope: Scope, names: tuple[str, str, str], hosted: bool) -> None:
    config = parse_config_url(text)
    assert config.scope is scope
    assert (config.organization, config.repository, config.enterprise) == names
    assert config.hosted is hosted
    assert config.url == text.strip("/")


@pytest.mark.parametrize(
    "text",
    [
        "https://github.com",
        "https://github.com/",
        "https://github.com/some/random/path",
        "https://github.com/org//repo",
        "github.com/o/r",
        "localhost:8080/org",
        "127.0.0.1:8080/org",
        "https://github.com:port/org",
        "https://[::1/org",
        "https://github.com/or%zz",
        "https://github.com/o rg",
        "https://github.com/org/re%2Fpo",  # as in Go, whose path is decoded before it is split
        "https://github.com/org\n",
        "",
    ],
)
def test_what_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfigURLError, match="must point at an enterprise"):
        parse_config_url(text)


def test_the_refusal_quotes_the_url_without_its_secrets() -> None:
    with pytest.raises(InvalidConfigURLError) as caught:
        parse_config_url("https://user:pa/ss@github.com/a/b/c?token=hidden#fragment")
    assert "'https://github.com/a/b/c'" in str(caught.value)
    for secret in ("pa/ss", "hidden", "user", "fragment"):
        assert secret not in repr(caught.value) + str(caught.value)


def test_query_and_fragment_are_kept_for_the_registration() -> None:
    assert parse_config_url("https://ghes/org?a=b#c/").url == "https://ghes/org?a=b#c"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://github.com/org", "https://api.github.com/x"),
        ("http://www.github.com/org", "http://api.github.com/x"),
        ("https://github.localhost/org", "https://api.github.localhost/x"),
        ("https://sub.ghe.com/org", "https://api.sub.ghe.com/x"),
        ("http://localhost:8080/org", "http://localhost:8080/api/v3/x"),
        ("https://ghes.example/org", "https://ghes.example/api/v3/x"),
        ("https://user:password@ghes.example/org", "https://ghes.example/api/v3/x"),
    ],
)
def test_api_base(text: str, expected: str) -> None:
    assert parse_config_url(text).api_url("/x") == expected


def test_forced_to_be_a_ghes() -> None:
    config = parse_config_url("https://github.com/org", force_ghes=True)
    assert not config.hosted
    assert config.api_url("/x") == "https://github.com/api/v3/x"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("https://github.com/org", "/orgs/org/actions/runners/registration-token"),
        ("https://github.com/enterprises/e", "/enterprises/e/actions/runners/registration-token"),
        ("https://github.com/org/a%20b", "/repos/org/a%20b/actions/runners/registration-token"),
    ],
)
def test_registration_token_path(text: str, path: str) -> None:
    assert parse_config_url(text).registration_token_path == path


def test_spellings_of_one_owner_count_as_one() -> None:
    owners = {
        parse_config_url(text).registration_owner
        for text in ("https://github.com/Org/Repo", "https://www.github.com/org/repo/", "http://GITHUB.com/ORG/repo")
    }
    assert len(owners) == 1
    assert parse_config_url("https://github.com/org").registration_owner not in owners


def test_no_text_about_it_shows_its_secrets() -> None:
    config = parse_config_url("https://user:password@github.com/org?token=hidden#fragment")
    for text in (repr(config), str(config), pretty_repr(config)):
        assert "org" in text
        for secret in ("password", "user", "hidden", "fragment"):
            assert secret not in text
