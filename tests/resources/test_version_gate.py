from __future__ import annotations

import pytest

from runherd.resources.version_gate import is_supported, versions_match


@pytest.mark.parametrize(
    ("label", "build", "expected"),
    [
        ("anything", "dev", True),
        ("", "dev", True),
        ("anything", "canary-abc", True),
        ("0.14.2", "NA", False),
        ("NA", "NA", True),
        ("some text", "some text", True),
        ("0.14.2", "0.14.2", True),
        ("0.14.0", "0.14.2", True),
        ("0.14", "0.14.2", True),
        ("0.14.2-rc1", "0.14.3", True),
        ("0.14.2.5", "0.14.3", True),
        ("1", "1.0.7", True),
        ("0.13.2", "0.14.2", False),
        ("1.14.2", "0.14.2", False),
        ("v0.14.2", "0.14.2", False),
        ("0.14rc1", "0.14.2", False),
        ("0.014.2", "0.14.2", False),
        ("00.14.2", "0.14.2", False),
        ("0.14.02", "0.14.2", False),
        ("0.14.", "0.14.2", False),
        ("0.14.x", "0.14.2", False),
        ("", "0.14.2", False),
        ("0.١٤.2", "0.14.2", False),
    ],
)
def test_the_gate(label: str, build: str, expected: bool) -> None:
    assert versions_match(label, build) is expected


@pytest.mark.parametrize("label", ["0.9.0", "0.9.3", "0.10.1", "0.11.0", "0.12.1", "0.13.1", "0.14.0", "0.14.2"])
def test_sets_of_recent_charts_are_taken_over(label: str) -> None:
    assert is_supported(label)


@pytest.mark.parametrize("label", ["0.8.3", "0.15.0", "1.9.0", "1.14.2", "", "latest", "9", "0." + "9" * 5000])
def test_others_are_left_alone(label: str) -> None:
    assert not is_supported(label)


def test_a_development_build_takes_care_of_all_sets() -> None:
    assert is_supported("0.15.0", "dev")
    assert is_supported("0.9.0", "0.15.0")
    assert is_supported("0.15.1", "0.15.0")
