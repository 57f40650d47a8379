"""Builds the Go programs of the interoperability tests, each once into the user's cache."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.controlplane.cache import Report, cache_directory
from tests.controlplane.programs import built_program

__all__ = ["go_program"]


def go_program(name: str, config: pytest.Config) -> Path:
    """The program whose sources are in the folder ``name`` beside this file, built if need be.

    Without Go the test that asks is skipped, unless ``CI=true``, where it fails. Raises
    :class:`tests.controlplane.programs.BuildError`, with the compiler's output, when the build fails.
    """
    go = shutil.which("go")
    if go is None:
        reason = f"Go is not on PATH (https://go.dev/dl): the program {name} was NOT built and its tests did NOT run"
        if os.environ.get("CI") == "true":
            pytest.fail(f"{reason} (with CI=true this is a failure)", pytrace=False)
        pytest.skip(reason)
    return built_program(go, Path(__file__).parent / name, cache_directory() / "interop" / name, name, _report(config))


def _report(config: pytest.Config) -> Report:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return reporter.write_line if isinstance(reporter, pytest.TerminalReporter) else lambda line: None
