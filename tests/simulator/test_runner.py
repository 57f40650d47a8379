"""The runner program as a real process against the simulator on a port."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trustme

from runherd.simulator.runner_service import RefusedError, Service
from runherd.simulator.runs import WorkflowRun
from runherd.simulator.settings import Settings
from runherd.simulator.simulator import Simulator
from runherd.wire.clock import SystemClock
from runherd.wire.network import NetworkTransport
from runherd.wire.server import Server
from runherd.wire.tls import client_context, server_context
from tests.simulator.client import TOKEN, Client, until


class Machine:
    """A folder in which runner programs are started, one scale set ``one`` that has room for ten jobs."""

    def __init__(self, service: Simulator, client: Client, scale_set: int, folder: Path) -> None:
        self.service, self.client, self.scale_set, self.folder = service, client, scale_set, folder
        self.env: dict[str, str] = {}
        self.number = 0
        self.processes: list[asyncio.subprocess.Process] = []
        self.output = folder / "output"

    async def jit(self) -> str:
        self.number += 1
        return str((await self.client.jit(self.scale_set, f"r{self.number}"))["encodedJITConfig"])

    async def start(self, jit: str) -> asyncio.subprocess.Process:
        """Start a program; what it prints can be read from :attr:`output`."""
        self.output = self.folder / f"output-{len(self.processes)}"
        with self.output.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "runherd.simulator.runner",
                cwd=self.folder,
                env={**os.environ, **self.env, "ACTIONS_RUNNER_INPUT_JITCONFIG": jit},
                stdout=file,
                stderr=file,
            )
        self.processes.append(process)
        return process

    async def run(self, jit: str | None = None) -> tuple[int, str]:
        """Exit code and output of a program that is run to its end."""
        process = await self.start(jit if jit is not None else await self.jit())
        return await process.wait(), self.output.read_text()

    async def printed(self, text: str) -> None:
        """Wait until the program that was started last has printed ``text``."""
        await until(lambda: text in self.output.read_text())

    async def run_workflow(self, steps: str, **fields: Any) -> tuple[WorkflowRun, str]:
        """Run a workflow of one job; its run and the program's output. The program must exit with 0."""
        extra = "".join(f"    {key}: {json.dumps(value)}\n" for key, value in fields.items())
        run = self.service.start_workflow(f"jobs:\n  build:\n    runs-on: one\n{extra}    steps:\n{steps}")
        code, output = await self.run()
        assert code == 0, output
        return run, output


@asynccontextmanager
async def machine(folder: Path, tls: trustme.CA | None = None, **settings: Any) -> AsyncIterator[Machine]:
    service = Simulator(
        clock=SystemClock(), random=Random(1), settings=Settings(**settings), personal_tokens=[TOKEN], admin_token=TOKEN
    )
    roots, context = None, None
    if tls is not None:
        issued = tls.issue_cert("127.0.0.1")
        context = server_context(issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes())
        roots = client_context(roots=tls.cert_pem.bytes(), system_roots=False)
    server = Server(service, tls=context)
    await server.start()
    transport = NetworkTransport(tls=roots)
    try:
        client = Client(transport, server.url)
        await client.login()
        scale_set = await client.create_set("one")
        await client.open_session(scale_set)
        session = service.scale_set("one").session
        assert session is not None
        session.capacity = 10
        made = Machine(service, client, scale_set, folder)
        try:
            yield made
        finally:
            for process in made.processes:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        assert service.service.inconsistencies() == []
    finally:
        await transport.close()
        await server.close()


def steps_of(run: WorkflowRun) -> list[tuple[object, object]]:
    job = run.jobs[0].job
    assert job is not None
    return [(step["name"], step["conclusion"]) for step in job.steps]


async def test_steps_run_in_order_with_their_environment(tmp_path: Path) -> None:
    steps = """
      - uses: actions/checkout@v4
      - name: Greet ${{ matrix.who }}
        run: |
          echo "hello ${{ matrix.who }} from $GITHUB_REPOSITORY on $GREETING ${{ env.STEP }}"
          echo "NEXT=seen" >> $GITHUB_ENV
          echo "LONG<<end" >> $GITHUB_ENV
          echo "two" >> $GITHUB_ENV
          echo "lines" >> $GITHUB_ENV
          echo "end" >> $GITHUB_ENV
          mkdir sub && echo 'echo found-me' > sub/tool && chmod +x sub/tool
          echo "$PWD/sub" >> $GITHUB_PATH
        env:
          STEP: first
      - name: Later
        run: |
          echo "${{ env.NEXT }} $LONG ${STEP:-unset} $RUNNER_NAME $CI"
          test "$PWD" = "${{ github.workspace }}/sub" && tool
        working-directory: sub
        shell: bash
      - name: Snake
        shell: python
        run: |
          import os
          print("python", os.environ["GITHUB_RUN_ATTEMPT"])
"""
    async with machine(tmp_path) as at:
        run, output = await at.run_workflow(
            steps, strategy={"matrix": {"who": ["world"]}}, env={"GREETING": "monday ${{ matrix.who }}"}
        )
        assert run.result == "succeeded", output
        assert "hello world from acme/app on monday world first" in output
        assert "seen two\nlines unset r1 true" in output
        assert "found-me" in output
        assert "python 1" in output
        assert "uses actions/checkout@v4" in output
        assert steps_of(run) == [
            ("actions/checkout@v4", "skipped"),
            ("Greet world", "succeeded"),
            ("Later", "succeeded"),
            ("Snake", "succeeded"),
        ]
        assert at.service.ledger.violations(owned=[]) == []
        assert at.service.statistics("one")["totalRegisteredRunners"] == 0


async def test_a_failed_step_ends_the_job_and_the_program_still_exits_with_0(tmp_path: Path) -> None:
    steps = """
      - run: exit 3
        continue-on-error: true
      - run: false | true
        shell: bash
      - run: echo never
"""
    async with machine(tmp_path) as at:
        run, output = await at.run_workflow(steps)
        assert run.result == "failed"
        assert [conclusion for _, conclusion in steps_of(run)] == ["failed", "failed", "skipped"]
        assert "Process completed with exit code 3" in output
        assert "never" not in output


async def test_a_shell_that_is_not_there_fails_its_step(tmp_path: Path) -> None:
    async with machine(tmp_path) as at:
        run, output = await at.run_workflow("      - run: x\n        shell: no-such-shell {0}\n")
        assert run.result == "failed"
        assert "no-such-shell" in output


async def test_output_comes_while_the_step_runs(tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    async with machine(tmp_path) as at:
        loop = f"echo first; while ! test -e {go_on}; do sleep 0.02; done"
        at.service.start_workflow(f"jobs: {{build: {{runs-on: one, steps: [{{run: '{loop}'}}]}}}}")
        process = await at.start(await at.jit())
        await at.printed("first\n")
        go_on.touch()
        assert await process.wait() == 0


async def test_a_canceled_job_ends_with_all_its_processes(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    async with machine(tmp_path) as at:
        run = at.service.start_workflow(
            f"jobs: {{build: {{runs-on: one, steps: [{{run: 'sleep 600 & echo $! $$ > {pids}; wait'}}, {{run: x}}]}}}}"
        )
        process = await at.start(await at.jit())
        await until(lambda: pids.exists() and bool(pids.read_text()))
        at.service.runs.cancel(run)
        assert await process.wait() == 0
        assert run.result == "canceled"
        assert [conclusion for _, conclusion in steps_of(run)] == ["canceled", "skipped"]
        await until(lambda: not any(_alive(int(pid)) for pid in pids.read_text().split()))


async def test_a_step_that_takes_too_long_fails(tmp_path: Path) -> None:
    async with machine(tmp_path) as at:
        run, output = await at.run_workflow("      - run: sleep 600\n        timeout-minutes: 0.003\n")
        assert run.result == "failed"
        assert "timed out" in output
        assert "Process completed" not in output


async def test_a_step_that_takes_too_long_fails_whatever_its_exit_code(tmp_path: Path) -> None:
    script = "trap 'exit 0' INT; while true; do sleep 0.05; done"
    async with machine(tmp_path) as at:
        run, _ = await at.run_workflow(f"      - run: {json.dumps(script)}\n        timeout-minutes: 0.005\n")
        assert run.result == "failed"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("garbage", "Invalid format 'garbage'"),
        ("=x", "Invalid format '=x'"),
        ("A<<end", "delimiter not found 'end'"),
        ("A=\\0", "has a NUL character"),
    ],
)
async def test_what_cannot_be_read_in_the_environment_file_fails_the_step(
    tmp_path: Path, line: str, reason: str
) -> None:
    async with machine(tmp_path) as at:
        run, output = await at.run_workflow(
            f"      - run: printf '{line}' > $GITHUB_ENV\n        continue-on-error: true\n      - run: echo go on\n"
        )
        assert reason in output
        assert [conclusion for _, conclusion in steps_of(run)] == ["failed", "succeeded"]


@pytest.mark.parametrize("env", [[["A=B", "x"]], [["A", "x\0"]]])
async def test_whatever_a_step_raises_its_job_is_reported(tmp_path: Path, env: list[list[str]]) -> None:
    async with machine(tmp_path) as at:
        run = at.service.start_workflow("jobs: {build: {runs-on: one, steps: [{run: x}]}}")
        job = run.jobs[0].job
        assert job is not None
        job.payload = {"env": [], "github": {}, "steps": [{"name": "odd", "run": "true", "env": env}]}
        code, output = await at.run()
        assert (code, run.result) == (0, "failed"), output
        assert "The step can't be run" in output


async def test_a_job_that_cannot_begin_is_reported(tmp_path: Path) -> None:
    (tmp_path / "_work").write_text("in the way")
    async with machine(tmp_path) as at:
        run, output = await at.run_workflow("      - run: x\n")
        assert run.result == "failed"
        assert "The job can't be run" in output


async def test_a_job_that_takes_too_long_is_canceled(tmp_path: Path) -> None:
    async with machine(tmp_path) as at:
        run, _ = await at.run_workflow("      - run: sleep 600\n", **{"timeout-minutes": 0.005})
        assert run.result == "canceled"


async def test_what_a_step_leaves_running_is_ended_with_the_job(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    async with machine(tmp_path) as at:
        run, output = await at.run_workflow(
            f"      - run: setsid sleep 600 > /dev/null 2>&1 & echo $! > {pids}\n      - run: kill -0 $(cat {pids})\n"
        )
        assert run.result == "succeeded", output
        await until(lambda: not _alive(int(pids.read_text())))


async def test_a_configuration_is_good_for_one_runner_and_one_job(tmp_path: Path) -> None:
    async with machine(tmp_path) as at:
        jit = await at.jit()
        process = await at.start(jit)
        await until(lambda: at.service.statistics("one")["totalIdleRunners"] == 1 and _state(at, 1) == "idle")
        code, output = await at.run(jit)
        assert (code, "connected already" in output) == (1, True)
        at.service.queue_jobs("acme/app", ["one"])
        assert await process.wait() == 0
        code, output = await at.run(jit)
        assert (code, "had its job already" in output) == (1, True)
        kinds = [str(violation.kind) for violation in at.service.ledger.violations()]
        assert kinds == ["configuration_used_twice"] * 2


async def test_a_deprecated_version_exits_with_7(tmp_path: Path) -> None:
    async with machine(tmp_path, minimum_runner_version="2.329.0") as at:
        at.env["RUNHERD_RUNNER_VERSION"] = "2.328.0"
        code, output = await at.run()
        assert (code, "deprecated" in output) == (7, True)


async def test_sigterm_before_a_job_lets_go_of_the_connection_only(tmp_path: Path) -> None:
    async with machine(tmp_path) as at:
        jit = await at.jit()
        process = await at.start(jit)
        await until(lambda: _state(at, 1) == "idle")
        process.terminate()
        assert await process.wait() == 128 + signal.SIGTERM
        await until(lambda: _state(at, 1) == "offline")
        at.service.queue_jobs("acme/app", ["one"])
        assert (await at.run(jit))[0] == 0
        assert at.service.ledger.violations(owned=[]) == []


async def test_sigterm_during_a_job_ends_the_job(tmp_path: Path) -> None:
    async with machine(tmp_path) as at:
        [job] = at.service.queue_jobs("acme/app", ["one"], seconds=600)
        process = await at.start(await at.jit())
        await until(lambda: job.state == "running")
        await at.printed("##[endgroup]")
        process.terminate()
        assert await process.wait() == 128 + signal.SIGTERM
        assert job.result == "canceled"


async def test_a_killed_runner_is_missed(tmp_path: Path) -> None:
    async with machine(tmp_path, lost_runner_timeout=0.5) as at:
        [job] = at.service.queue_jobs("acme/app", ["one"], seconds=3)
        process = await at.start(await at.jit())
        await until(lambda: job.state == "running")
        process.kill()
        await until(lambda: job.result == "failed")
        assert [str(violation.kind) for violation in at.service.ledger.violations()] == ["lost_while_busy"]


async def test_a_runner_whose_registration_is_removed_exits(tmp_path: Path) -> None:
    async with machine(tmp_path) as at:
        process = await at.start(await at.jit())
        await until(lambda: _state(at, 1) == "idle")
        await at.client.ok("DELETE", "agents/1", status=204)
        assert await process.wait() == 1


async def test_short_failures_of_the_service_do_no_harm(tmp_path: Path) -> None:
    async with machine(tmp_path) as at:
        at.service.add_fault("status", "runner.connect", status=503)
        at.service.add_fault("drop_before", "runner.poll")
        at.service.add_fault("status", "runner.poll", status=502)
        at.service.add_fault("drop_before", "runner.finish")
        at.service.queue_jobs("acme/app", ["one"])
        code, output = await at.run()
        assert code == 0, output
        assert at.service.faults.pending() == []
        assert at.service.ledger.violations(owned=[]) == []


async def test_over_https(tmp_path: Path) -> None:
    ca = trustme.CA()
    pem = tmp_path / "ca.pem"
    ca.cert_pem.write_to_path(str(pem))
    async with machine(tmp_path, tls=ca) as at:
        at.service.queue_jobs("acme/app", ["one"])
        at.env["SSL_CERT_FILE"] = str(pem)
        code, output = await at.run()
        assert code == 0, output


@pytest.mark.parametrize("jit", ["", "no base64", "e30="])
async def test_without_a_configuration_it_says_what_is_missing(tmp_path: Path, jit: str) -> None:
    async with machine(tmp_path) as at:
        code, output = await at.run(jit)
        assert code == 1
        assert "JIT configuration" in output


async def test_a_service_that_is_not_there_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with machine(tmp_path) as at:
        jit = await at.jit()
    monkeypatch.setattr("runherd.simulator.runner_service._RETRY_DELAYS", (0.0, 0.0))
    service = Service(json.loads(base64.b64decode(jit)))
    with pytest.raises(RefusedError, match="does not answer"):
        service.call("connect", version="1")


def _state(at: Machine, runner_id: int) -> str:
    return at.service.service.runners.by_id[runner_id].state


def _alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    # A zombie has ended, whoever forgot to ask for its exit code.
    return status.rpartition(")")[2].split()[0] != "Z"
