from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runherd.actions.errors import InvalidConfigURLError
from runherd.resources.labels import child_labels, config_url_labels, scale_set_labels_of
from tests.resources.objects import LABEL_VALUE, runner_set

ORGANIZATION = "actions.github.com/organization"
REPOSITORY = "actions.github.com/repository"
ENTERPRISE = "actions.github.com/enterprise"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://github.com/octo-org", {ORGANIZATION: "octo-org"}),
        ("https://github.com/octo-org/octo.repo/", {ORGANIZATION: "octo-org", REPOSITORY: "octo.repo"}),
        ("https://github.com/enterprises/octo", {ENTERPRISE: "octo"}),
        ("https://github.com/Enterprises/octo", {ENTERPRISE: "octo"}),
        ("https://github.com/octo-org-/_repo.", {ORGANIZATION: "octo-org", REPOSITORY: "repo"}),
        ("https://github.com/octo%20org", {ORGANIZATION: "octo-org"}),
        ("https://github.com/octo-org/...", {ORGANIZATION: "octo-org", REPOSITORY: ""}),
    ],
)
def test_labels_of_a_url(url: str, expected: dict[str, str]) -> None:
    assert config_url_labels(url) == expected


@pytest.mark.parametrize(
    ("url", "label"),
    [
        ("https://github.com/{}", ORGANIZATION),
        ("https://github.com/org/{}", REPOSITORY),
        ("https://github.com/enterprises/{}", ENTERPRISE),
    ],
)
def test_long_names_are_trimmed(url: str, label: str) -> None:
    assert config_url_labels(url.format("a" * 63))[label] == "a" * 63
    assert config_url_labels(url.format("a" * 64))[label] == "a" * 58 + "-trim"


@given(st.from_regex(r"[A-Za-z0-9._-]{1,100}", fullmatch=True).filter(lambda name: name.lower() != "enterprises"))
def test_a_label_is_always_valid(name: str) -> None:
    labels = config_url_labels(f"https://github.com/{name}/{name}")
    assert len(labels) == 2
    for value in labels.values():
        assert LABEL_VALUE.fullmatch(value)


def test_an_invalid_url_is_an_error() -> None:
    with pytest.raises(InvalidConfigURLError):
        child_labels(runner_set(githubConfigUrl="https://github.com"), "runner-set", ())


def test_labels_of_a_child() -> None:
    labels = {
        "app.kubernetes.io/version": "0.14.2",
        "app.kubernetes.io/part-of": "gha-rs",
        "own": "label",
        "example.com/private": "1",
        "example.org/public": "1",
    }
    assert child_labels(runner_set(labels=labels), "runner-set", ("example.com/",)) == {
        "app.kubernetes.io/version": "0.14.2",
        "app.kubernetes.io/part-of": "gha-runner-scale-set",
        "app.kubernetes.io/component": "runner-set",
        "own": "label",
        "example.org/public": "1",
        "actions.github.com/scale-set-name": "arc-runner-set",
        "actions.github.com/scale-set-namespace": "arc-runners",
        "actions.github.com/organization": "octo-org",
        "actions.github.com/repository": "octo-repo",
    }


def test_labels_that_name_the_scale_set_are_copied() -> None:
    labels = {"actions.github.com/scale-set-name": "a", "actions.github.com/scale-set-namespace": "b", "other": "c"}
    assert scale_set_labels_of(labels) == {
        "actions.github.com/scale-set-name": "a",
        "actions.github.com/scale-set-namespace": "b",
    }
