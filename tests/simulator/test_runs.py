"""Workflow runs in virtual time: needs, matrices, cancelling, running again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from runherd.simulator.model import Job, JobResult
from runherd.simulator.model_runner import ModelRunner
from runherd.simulator.runs import WorkflowRun
from runherd.simulator.simulator import Simulator
from runherd.simulator.yaml_nodes import WorkflowError
from tests.simulator.client import Client, simulator
from tests.support.virtual_time import run_in_virtual_time

DIAMOND = """
jobs:
  left:
    runs-on: one
    steps: [{run: x}]
  right:
    runs-on: one
    steps: [{run: x}]
  join:
    needs: [left, right]
    runs-on: one
    steps: [{run: x}]
"""

MATRIX = """
jobs:
  build:
    runs-on: ${{ matrix.labels }}
    strategy: {STRATEGY}
    continue-on-error: FORGIVING
    steps: [{run: "echo ${{ matrix.n }}"}]
  after:
    needs: build
    runs-on: one
    steps: [{run: x}]
""".replace("{STRATEGY}", "\n      matrix: {n: [1, 2, 3, 4], labels: [one]}\n      FLAGS")


class Machines:
    """Runs every job on a model runner: 10 s each, with the result that ``results`` has for its name."""

    def __init__(self, service: Simulator, client: Client, scale_set: int) -> None:
        self.service, self.client, self.scale_set = service, client, scale_set
        self.results: dict[str, JobResult] = {}
        self.started: list[str] = []
        self.most = 0

    async def run(self) -> None:
        number = 0
        async with asyncio.TaskGroup() as group:
            while True:
                number += 1
                jit = await self.client.jit(self.scale_set, f"r{number}")
                model = ModelRunner(self.service, jit["encodedJITConfig"])
                model.connect()
                job = await model.next_job()
                self.started.append(job.name)
                self.most = max(self.most, len(self.service.scale_set("one").running))
                group.create_task(self.work(model, job))

    async def work(self, model: ModelRunner, job: Job) -> None:
        completed = await model.work(10)
        model.finish(self.results.get(job.name, JobResult.SUCCEEDED) if completed else JobResult.CANCELED)


@asynccontextmanager
async def machines() -> AsyncIterator[Machines]:
    service = simulator(poll_hold=1e9)
    client = await Client.logged_in(service)
    scale_set = await client.create_set("one")
    session = await client.open_session(scale_set)
    poll = asyncio.create_task(client.poll(session, last=2**40, capacity=100))
    made = Machines(service, client, scale_set)
    work = asyncio.create_task(made.run())
    await asyncio.sleep(1)
    yield made
    for task in (poll, work):
        task.cancel()
    await asyncio.gather(poll, work, return_exceptions=True)
    assert service.service.inconsistencies() == []


def with_machines(test: Callable[[Machines], Awaitable[None]]) -> None:
    async def main() -> None:
        async with machines() as made:
            await test(made)

    run_in_virtual_time(main())


def results(run: WorkflowRun) -> dict[str, str]:
    return {job.name: job.result for job in run.jobs}


def matrix(flags: str = "fail-fast: true", forgiving: str = "false") -> str:
    return MATRIX.replace("FLAGS", flags).replace("FORGIVING", forgiving)


def test_jobs_wait_for_those_that_they_need() -> None:
    async def test(made: Machines) -> None:
        run = made.service.start_workflow(DIAMOND)
        assert [job.state for job in run.jobs] == ["running", "assigned", "blocked"]
        await asyncio.sleep(15)
        assert [job.state for job in run.jobs] == ["completed", "completed", "running"]
        await asyncio.sleep(15)
        assert run.result == "succeeded"
        assert made.started == ["left", "right", "join"]

    with_machines(test)


def test_jobs_that_need_a_failed_one_are_skipped_and_can_be_run_again() -> None:
    async def test(made: Machines) -> None:
        made.results["left"] = JobResult.FAILED
        run = made.service.start_workflow(DIAMOND)
        with pytest.raises(ValueError, match="isn't over"):
            made.service.runs.rerun(run)
        await asyncio.sleep(30)
        assert results(run) == {"left": "failed", "right": "succeeded", "join": "skipped"}
        assert run.result == "failed"
        made.results.clear()
        first = run.jobs[0].job
        made.service.runs.rerun(run, failed_only=True)
        await asyncio.sleep(30)
        assert (run.result, run.attempt) == ("succeeded", 2)
        assert made.started == ["left", "right", "left", "join"]
        second = run.jobs[0].job
        assert first is not None
        assert second is not None
        assert first.request_id != second.request_id
        made.service.runs.rerun_job(run, run.jobs[1])
        await asyncio.sleep(30)
        assert made.started[4:] == ["right", "join"]
        with pytest.raises(ValueError, match="no job to run again"):
            made.service.runs.rerun(run, failed_only=True)

    with_machines(test)


def test_a_matrix_becomes_jobs_with_names_of_their_own() -> None:
    async def test(made: Machines) -> None:
        run = made.service.start_workflow(matrix())
        names = [f"build ({number}, one)" for number in (1, 2, 3, 4)]
        assert [job.name for job in run.jobs] == [*names, "after"]
        await asyncio.sleep(30)
        assert run.result == "succeeded"
        assert made.most == 4

    with_machines(test)


def test_max_parallel_is_kept() -> None:
    async def test(made: Machines) -> None:
        run = made.service.start_workflow(matrix("max-parallel: 2"))
        await asyncio.sleep(60)
        assert run.result == "succeeded"
        assert made.most == 2

    with_machines(test)


@pytest.mark.parametrize(
    ("flags", "forgiving", "others", "after", "overall"),
    [
        ("max-parallel: 1", "false", ["canceled"] * 3, "skipped", "failed"),
        ("fail-fast: false", "false", ["succeeded"] * 3, "skipped", "failed"),
        ("fail-fast: true", "true", ["succeeded"] * 3, "succeeded", "succeeded"),
    ],
)
def test_a_failed_job_of_a_matrix(flags: str, forgiving: str, others: list[str], after: str, overall: str) -> None:
    async def test(made: Machines) -> None:
        made.results["build (1, one)"] = JobResult.FAILED
        run = made.service.start_workflow(matrix(flags, forgiving))
        await asyncio.sleep(60)
        assert [job.result for job in run.jobs] == ["failed", *others, after]
        assert run.result == overall

    with_machines(test)


def test_cancelling_a_run_cancels_what_runs_and_what_waits() -> None:
    async def test(made: Machines) -> None:
        run = made.service.start_workflow(DIAMOND)
        await asyncio.sleep(3)
        made.service.runs.cancel(run)
        await asyncio.sleep(1)
        assert set(results(run).values()) == {"canceled"}
        assert run.result == "canceled"

    with_machines(test)


def test_texts_that_cannot_be_filled_in_are_refused_before_anything_runs() -> None:
    async def test(made: Machines) -> None:
        for steps, reason in [
            ("[{run: '${{ matrix.a }}'}]", "a list or an object"),
            ("[{run: x, timeout-minutes: '${{ matrix.b }}'}]", "timeout-minutes 'x' is not a number"),
        ]:
            text = (
                f"jobs:\n  a:\n    runs-on: one\n    strategy: {{matrix: {{a: [[1]], b: [x]}}}}\n    steps: {steps}\n"
            )
            with pytest.raises(WorkflowError, match=f"ci.yml:3: job 'a': {reason}"):
                made.service.start_workflow(text)
        assert made.service.service.jobs.open == {}

    with_machines(test)


def test_what_a_runner_is_told_to_do() -> None:
    text = """
name: CI
env: {A: "${{ github.ref_name }}"}
jobs:
  build:
    runs-on: one
    strategy: {matrix: {n: [7]}}
    env: {B: "${{ matrix.n }}"}
    steps:
      - uses: actions/checkout@v4
      - run: echo ${{ env.A }} ${{ github.run_number }}
        env: {C: "${{ env.B }}!"}
"""

    async def test(made: Machines) -> None:
        run = made.service.start_workflow(text, repository="acme/tools", ref="refs/tags/v1")
        job = run.jobs[0].job
        assert job is not None
        payload: dict[str, Any] = job.payload
        assert payload["env"] == [["A", "v1"], ["B", "7"]]
        assert payload["steps"][0] == {"name": "actions/checkout@v4", "uses": "actions/checkout@v4"}
        assert payload["steps"][1]["run"] == ["echo ", {"env": "A"}, " 1"]
        assert payload["steps"][1]["env"] == [["C", [{"env": "B"}, "!"]]]
        assert payload["github"]["ref_type"] == "tag"
        assert job.workflow_ref == "acme/tools/.github/workflows/ci.yml@refs/tags/v1"

    with_machines(test)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("jobs: {a: {runs-on: '${{ matrix.nope }}', steps: [{run: x}]}}", r"runs-on: \$\{\{ matrix.nope \}\} is empty"),
        (
            "jobs:\n"
            + "".join(
                f"  j{number}:\n    runs-on: x\n    steps: [{{run: x}}]\n"
                f"    strategy: {{matrix: {{a: {list(range(200))}}}}}\n"
                for number in range(11)
            ),
            "at most 2048 jobs",
        ),
        (
            "jobs: {a: {runs-on: x, strategy: {matrix: {a: ['"
            + "x" * 100_000
            + "'], b: [1, 2, 3, 4]}}, steps: ["
            + "{run: '${{ matrix.a }}'}," * 50
            + "]}}",
            "16777216 characters",
        ),
        (
            "jobs: {a: {runs-on: x,strategy: {matrix: {t: [9e999]}},timeout-minutes: '${{matrix.t}}',steps: [run: x]}}",
            "timeout-minutes 'inf' is not a number above 0",
        ),
    ],
)
def test_a_run_that_cannot_be_is_refused(text: str, reason: str) -> None:
    service = simulator()
    with pytest.raises(WorkflowError, match=reason):
        service.start_workflow(text)
    assert service.runs.by_id == {}
