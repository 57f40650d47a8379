from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runherd.resources import names

DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")

#: What the chart lets a runner set be called.
chart_names = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,43}[a-z0-9])?", fullmatch=True)
any_names = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,251}[a-z0-9])?", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("test-ns@@https://github.com/org/repo", "79fcf9fd"),
        ("arc-runners@default@https://github.com/owner/repo", "5566669b"),
        ("default", "68c4584d"),
        ("arc-runners", "754b578d"),
        ("test-ns", "574d8446"),
    ],
)
def test_vectors_of_the_specification(text: str, expected: str) -> None:
    assert names.name_hash(text) == expected


def test_a_small_hash_is_used_whole() -> None:
    # FNV-1a of the empty text is its offset, 2166136261; the shortest decimal numbers have fewer than 8 digits.
    assert names.name_hash("") == "65bb57b6"
    short = next(text for text in map(str, range(100_000)) if len(names.name_hash(text)) < 8)
    assert re.fullmatch("[4-9bcdf]{1,7}", names.name_hash(short))


@given(st.text())
def test_a_hash_is_made_of_its_alphabet(text: str) -> None:
    assert re.fullmatch("[4-9bcdf]{1,8}", names.name_hash(text))


def test_names_of_children() -> None:
    listener = names.listener_name("set", "test-ns", "", "https://github.com/org/repo")
    assert listener == "set-79fcf9fd-listener"
    assert names.listener_config_secret_name(listener) == "set-79fcf9fd-listener-config"
    assert names.listener_proxy_secret_name(listener) == "set-79fcf9fd-listener-proxy"
    assert names.runner_proxy_secret_name("set", "default") == "set-68c4584d-runner-proxy"
    assert names.ephemeral_runner_generate_name("set") == "set-runner-"


@given(chart_names, st.text(), st.text())
@example("a" * 45, "", "")
def test_a_listener_of_a_set_that_the_chart_allows_has_a_label_for_a_name(name: str, group: str, url: str) -> None:
    assert DNS_LABEL.fullmatch(names.listener_name(name, "namespace", group, url))


@given(any_names, st.integers())
@example("a" * 253, 1)
@example("a" * 49 + "-b", 1)
@example("a" * 50, 1)
def test_a_runner_has_a_valid_name_whatever_its_set_is_called(name: str, seed: int) -> None:
    runner = names.ephemeral_runner_name(name, Random(seed))
    assert len(runner) <= 63
    assert DNS_SUBDOMAIN.fullmatch(runner)
    assert runner[:-5] == names.ephemeral_runner_generate_name(name)[:58]


def test_names_of_runners_come_from_the_source_given() -> None:
    random = Random(1)
    made = [names.ephemeral_runner_name("set", random) for _ in range(100)]
    assert len(set(made)) == 100
    assert made[0] == names.ephemeral_runner_name("set", Random(1))
