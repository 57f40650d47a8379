"""pytest fixtures for tests on a real control plane.

Load it with ``pytest_plugins = ["tests.controlplane.plugin"]``. Every test
that uses one of the ``control_plane`` fixtures gets the marker of that name.
What they need is built before the first test runs, outside of any test's
timeout. Where it can't be had the tests are skipped, which the summary says;
with ``CI=true`` in the environment they fail instead.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn, Protocol

import pytest

from tests.controlplane.command_lines import CONTROLLERS
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.programs import BuildError, Programs, ProgramsUnavailableError, find_programs
from tests.controlplane.tools import FetchError, Tools, ToolsUnavailableError, find_tools

_FOUND = pytest.StashKey[Programs | ProgramsUnavailableError | BuildError]()
_COUNT = pytest.StashKey[int]()


class ControlPlaneFactory(Protocol):
    """Starts a control plane of the test's own, which ends with the test."""

    def __call__(
        self, *, apiserver_flags: Sequence[str] = (), controllers: Sequence[str] = CONTROLLERS
    ) -> ControlPlane:
        """Start one; the arguments are those of ControlPlane."""


@pytest.fixture(scope="session")
def control_plane_programs(pytestconfig: pytest.Config) -> Programs:
    """The programs of the control plane, built if need be."""
    found = _find(pytestconfig)
    if isinstance(found, ProgramsUnavailableError):
        _skip(str(found))
    if isinstance(found, BuildError):
        pytest.fail(str(found), pytrace=False)
    return found


@pytest.fixture(scope="session")
def control_plane(control_plane_programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The control plane that tests share; they keep to a namespace of their own and leave the servers alone."""
    with ControlPlane(control_plane_programs, tmp_path_factory.mktemp("control-plane")) as started:
        yield started


@pytest.fixture
def control_plane_factory(
    control_plane_programs: Programs, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlaneFactory]:
    """Start control planes of this test's own, to restart, pause or kill, or with other flags."""
    with ExitStack() as stack:

        def factory(*, apiserver_flags: Sequence[str] = (), controllers: Sequence[str] = CONTROLLERS) -> ControlPlane:
            logs = tmp_path_factory.mktemp("control-plane")
            return stack.enter_context(
                ControlPlane(control_plane_programs, logs, apiserver_flags=apiserver_flags, controllers=controllers)
            )

        yield factory


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A namespace of this test's own on the shared control plane, deleted after it (without waiting)."""
    name = control_plane.create_namespace()
    yield name
    control_plane.client().delete(f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="session")
def control_plane_with_controllers(control_plane: ControlPlane) -> ControlPlane:
    """The shared control plane, for tests that need its controllers: garbage collection, end of namespaces."""
    if not control_plane.has_controllers:
        _skip("KUBEBUILDER_ASSETS has no kube-controller-manager, which this test needs")
    return control_plane


@pytest.fixture(scope="session")
def kubectl(_tools: Tools) -> Path:
    """The program kubectl."""
    return _tools.kubectl


@pytest.fixture(scope="session")
def helm(_tools: Tools) -> Path:
    """The program helm."""
    return _tools.helm


@pytest.fixture(scope="session")
def _tools(pytestconfig: pytest.Config) -> Tools:
    try:
        return find_tools(lambda line: _report(pytestconfig, line))
    except ToolsUnavailableError as error:
        _skip(str(error))
    except FetchError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses a control plane, before ``-m`` selects."""
    for item in items:
        if "control_plane_programs" in getattr(item, "fixturenames", ()):
            item.add_marker("control_plane")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the control plane if a test that was selected needs it."""
    count = sum(item.get_closest_marker("control_plane") is not None for item in session.items)
    session.config.stash[_COUNT] = count
    if count and not session.config.option.collectonly:
        found = _find(session.config)
        if isinstance(found, Programs) and found.kube_controller_manager is None:
            _report(
                session.config, "KUBEBUILDER_ASSETS has no kube-controller-manager: tests that need one are skipped"
            )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say loudly when tests had no control plane."""
    found = config.stash.get(_FOUND, None)
    if isinstance(found, ProgramsUnavailableError):
        count = config.stash.get(_COUNT, 0)
        terminalreporter.write_line(f"{count} tests on a real control plane did NOT RUN: {found}", red=True, bold=True)


def _find(config: pytest.Config) -> Programs | ProgramsUnavailableError | BuildError:
    if _FOUND not in config.stash:
        try:
            config.stash[_FOUND] = find_programs(lambda line: _report(config, line))
        except (ProgramsUnavailableError, BuildError) as error:
            config.stash[_FOUND] = error
    return config.stash[_FOUND]


def _skip(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason} (with CI=true this is a failure)", pytrace=False)
    pytest.skip(reason)


def _report(config: pytest.Config, line: str) -> None:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if isinstance(reporter, pytest.TerminalReporter):
        reporter.ensure_newline()
        reporter.write_line(line)
        reporter.flush()
