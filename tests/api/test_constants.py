"""The names against the tables of ``docs/spec/controllers.md`` 2."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from runherd.api import constants
from runherd.api.actions import AutoscalingListener, AutoscalingRunnerSet, EphemeralRunner, EphemeralRunnerSet
from runherd.api.resource import ApiObject

DOCUMENT = Path(__file__).parents[2] / "docs" / "spec" / "controllers.md"


def section(number: str) -> str:
    match = re.search(rf"^### {re.escape(number)} .*?\n(.*?)(?=^##)", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)
    assert match is not None
    return match[1]


def first_column(number: str) -> set[str]:
    """The names in the first column of a section's table; ``…`` stands for the prefix of the name before it."""
    names: set[str] = set()
    for cell in re.findall(r"^\| (`.+?) \|", section(number), re.MULTILINE):
        prefix = ""
        for name in re.findall(r"`(.+?)`", cell):
            full = name.replace("…", prefix)
            prefix = full.partition("/")[0]
            names.add(full)
    return names


def values(prefix: str) -> set[str]:
    return {value for name, value in vars(constants).items() if name.startswith(prefix)}


@pytest.mark.parametrize(("prefix", "number"), [("FINALIZER_", "2.1"), ("ANNOTATION_", "2.2"), ("LABEL_", "2.3")])
def test_names_are_those_of_the_table(prefix: str, number: str) -> None:
    assert values(prefix) == first_column(number)


def test_environment_variables_and_container_names() -> None:
    assert values("ENV_") == set(re.findall(r"`(.+?)`", section("2.4")))
    assert values("CONTAINER_") == set(re.findall(r"`(.+?)`", section("2.5")))


@pytest.mark.parametrize("value", ["PART_OF", "COMPONENT_RUNNER_SET", "COMPONENT_RUNNER", "COMPONENT_LISTENER"])
def test_label_values_are_in_the_table(value: str) -> None:
    assert f"`{getattr(constants, value)}`" in section("2.3")


def test_secret_keys_are_those_of_section_8_11() -> None:
    row = next(line for line in section("8.11").splitlines() if line.startswith("| JIT config"))
    assert values("SECRET_KEY_") == set(re.findall(r"`(.+?)`", row))


def test_kinds_of_the_api_carry_its_names() -> None:
    kinds: list[ApiObject] = [AutoscalingRunnerSet(), AutoscalingListener(), EphemeralRunnerSet(), EphemeralRunner()]
    assert {kind.api_version for kind in kinds} == {constants.API_VERSION}
    assert {kind.kind for kind in kinds} == values("KIND_")
