"""The real Go client of ``actions/scaleset`` and its listener, against the simulator on a port."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from runherd.simulator.settings import AssignmentMode, Settings
from runherd.simulator.simulator import Simulator
from runherd.wire.clock import SystemClock
from runherd.wire.server import Server
from tests.interop.go_program import go_program
from tests.simulator.client import TOKEN

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def program(pytestconfig: pytest.Config) -> Path:
    return go_program("go-scaleset", pytestconfig)


@asynccontextmanager
async def served(mode: AssignmentMode) -> AsyncIterator[tuple[Simulator, str]]:
    service = Simulator(
        clock=SystemClock(),
        random=Random(1),
        settings=Settings(mode=mode),
        personal_tokens=[TOKEN],
        admin_token=TOKEN,
    )
    server = Server(service)
    await server.start()
    try:
        yield service, server.url
    finally:
        await server.close()


async def run(program: Path, url: str, folder: Path, *command: str) -> list[dict[str, object]]:
    """What the program reports; fails when it does."""
    runner = f"{sys.executable} -m runherd.simulator.runner"
    process = await asyncio.create_subprocess_exec(
        str(program),
        f"{url}/acme",
        TOKEN,
        url,
        *command,
        cwd=folder,
        env={**os.environ, "RUNNER": runner},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode() + output.decode()
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.parametrize("mode", AssignmentMode)
async def test_the_real_client_gets_the_answers_that_it_knows(
    program: Path, tmp_path: Path, mode: AssignmentMode
) -> None:
    async with served(mode) as (service, url):
        reports = await run(program, url, tmp_path, "checks")
        assert [report["check"] for report in reports] == [
            "scale sets",
            "runner groups",
            "runners",
            "job still running",
            "session conflict",
            "session refresh",
            "session eviction",
            "rate limit",
        ]
        assert service.service.inconsistencies() == []
        assert service.faults.pending() == []


@pytest.mark.parametrize("mode", AssignmentMode)
async def test_a_hundred_jobs_through_the_real_listener(program: Path, tmp_path: Path, mode: AssignmentMode) -> None:
    async with served(mode) as (service, url):
        [report] = await run(program, url, tmp_path, "jobs", "100")
        details = report["details"]
        assert isinstance(details, dict)
        assert details["failures"] is None
        assert (details["started"], details["completed"], details["succeeded"]) == (100, 100, 100)
        # In automatic mode the service keeps to what the listener has room for; acquired jobs are the listener's own.
        assert details["most"] == (8 if mode is AssignmentMode.AUTOMATIC else details["most"])
        assert service.ledger.counts["completed"] == 100
        assert service.ledger.violations(owned=[]) == []
        assert service.service.inconsistencies() == []
