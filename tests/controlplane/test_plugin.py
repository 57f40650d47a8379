"""The plugin in a test run of its own, on a machine that has neither Go nor assets."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
TESTS = """
def test_without():
    pass

def test_with(namespace):
    raise AssertionError("there can't be a namespace")
"""


def run_pytest(directory: Path, *arguments: str, **environment: str) -> str:
    (directory / "test_made_up.py").write_text(TESTS)
    (directory / "pytest.ini").write_text("[pytest]\nmarkers = control_plane\n")
    (directory / "bin").mkdir(exist_ok=True)
    inherited = {name: value for name, value in os.environ.items() if name not in {"CI", "KUBEBUILDER_ASSETS"}}
    pytest_command = [sys.executable, "-m", "pytest", "-p", "tests.controlplane.plugin", f"--rootdir={directory}"]
    result = subprocess.run(
        [*pytest_command, *arguments, str(directory)],
        env={**inherited, "PATH": str(directory / "bin"), "PYTHONPATH": str(REPOSITORY), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return result.stdout + result.stderr


def test_tests_are_skipped_with_one_loud_line(tmp_path: Path) -> None:
    output = run_pytest(tmp_path)

    assert "1 passed, 1 skipped" in output
    assert output.count("1 tests on a real control plane did NOT RUN: no control plane to test against") == 1


def test_that_is_a_failure_in_ci(tmp_path: Path) -> None:
    output = run_pytest(tmp_path, CI="true")

    assert "1 passed, 1 error" in output
    assert "with CI=true this is a failure" in output


@pytest.mark.parametrize(
    ("selection", "selected"), [("not control_plane", "test_without"), ("control_plane", "test_with")]
)
def test_tests_are_marked_by_the_fixtures_they_use(tmp_path: Path, selection: str, selected: str) -> None:
    output = run_pytest(tmp_path, "-m", selection, "--collect-only", "-q")

    assert output.splitlines()[0].endswith(f"::{selected}")
    assert "1/2 tests collected (1 deselected)" in output
