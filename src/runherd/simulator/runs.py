"""Workflow runs: their jobs wait for the jobs that they need, are queued, end, and can be run again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from runherd.simulator.expressions import Text, evaluate, matrix_value, names_matrix, render
from runherd.simulator.model import Job, JobResult, JobState
from runherd.simulator.service import DEFAULT_JOB_TIMEOUT, ActionsService
from runherd.simulator.workflow import JobDefinition, StepDefinition, Variable, Workflow
from runherd.simulator.yaml_nodes import WorkflowError

__all__ = ["SKIPPED", "RunJob", "Runs", "WorkflowRun"]

# Far above what anyone means, far below what would fill the memory: jobs, and characters of all their scripts.
_MAX_JOBS = 2048
_MAX_SIZE = 2**24

#: The result of a job that didn't run because one that it needs didn't succeed.
SKIPPED = "skipped"


@dataclass(slots=True, eq=False)
class RunJob:
    """One job of a run: a job of the file, or one combination of its matrix."""

    definition: JobDefinition
    matrix: Mapping[str, object]
    name: str
    continue_on_error: bool
    #: ``succeeded``, ``failed``, ``canceled``, ``skipped``; empty until it is over.
    result: str = ""
    #: The queued job, of the latest attempt.
    job: Job | None = None

    @property
    def state(self) -> str:
        """``blocked``, the state of its queued job, or ``completed``."""
        if self.result:
            return str(JobState.COMPLETED)
        return str(self.job.state) if self.job is not None else "blocked"


@dataclass(slots=True, eq=False)
class WorkflowRun:
    """One run of a workflow file. ``result`` is empty until all its jobs are over."""

    id: int
    number: int
    workflow: Workflow
    repository: str
    ref: str
    event: str
    sha: str
    jobs: list[RunJob] = field(default_factory=list)
    attempt: int = 1
    result: str = ""
    canceled: bool = False

    def of(self, definition_id: str) -> list[RunJob]:
        """The jobs that one job of the file became."""
        return [job for job in self.jobs if job.definition.id == definition_id]

    @property
    def workflow_ref(self) -> str:
        return f"{self.repository}/{self.workflow.path}@{self.ref}"


class Runs:
    """All runs, and what moves them on."""

    def __init__(self, service: ActionsService) -> None:
        self._service = service
        self.by_id: dict[int, WorkflowRun] = {}
        self._numbers: dict[tuple[str, str], int] = {}

    def start(self, workflow: Workflow, *, repository: str, ref: str, event: str) -> WorkflowRun:
        """Start a run. Raises :class:`WorkflowError` when a job's texts can't be filled in."""
        number = self._numbers.get((repository, workflow.path), 0) + 1
        self._numbers[(repository, workflow.path)] = number
        run = WorkflowRun(
            id=30_000_000_000 + len(self.by_id) + 1,
            number=number,
            workflow=workflow,
            repository=repository,
            ref=ref,
            event=event,
            sha=f"{self._service.random.getrandbits(160):040x}",
        )
        size = 0
        for definition in workflow.jobs.values():
            for combination in definition.matrix.combinations if definition.matrix else ({},):
                job, job_size = _expand(run, definition, combination)
                run.jobs.append(job)
                size += job_size
                if len(run.jobs) > _MAX_JOBS or size > _MAX_SIZE:
                    reason = f"a run has at most {_MAX_JOBS} jobs, and {_MAX_SIZE} characters in all their texts"
                    raise WorkflowError(workflow.path, definition.line, reason)
        self.by_id[run.id] = run
        self._advance(run)
        return run

    def cancel(self, run: WorkflowRun) -> None:
        """Cancel all jobs that aren't over."""
        run.canceled = True
        self._cancel_jobs(run, run.jobs)
        self._advance(run)

    def rerun(self, run: WorkflowRun, *, failed_only: bool = False) -> None:
        """Run all jobs again, or those that didn't succeed. Raises ``ValueError`` while the run isn't over."""
        again = [job for job in run.jobs if not failed_only or job.result != JobResult.SUCCEEDED]
        self._rerun(run, again)

    def rerun_job(self, run: WorkflowRun, job: RunJob) -> None:
        """Run one job again, and those that need it. Raises ``ValueError`` while the run isn't over."""
        affected = {job.definition.id}
        again = [job]
        grown = True
        while grown:
            more = [each for each in run.jobs if each not in again and affected.intersection(each.definition.needs)]
            affected.update(each.definition.id for each in more)
            again.extend(more)
            grown = bool(more)
        self._rerun(run, again)

    def _rerun(self, run: WorkflowRun, again: Iterable[RunJob]) -> None:
        if not run.result:
            raise ValueError(f"run {run.id} isn't over; cancel it first")
        again = list(again)
        if not again:
            raise ValueError(f"run {run.id} has no job to run again")
        run.attempt += 1
        run.result, run.canceled = "", False
        for job in again:
            job.result, job.job = "", None
        self._advance(run)

    def _advance(self, run: WorkflowRun) -> None:
        """Queue what can be queued now, skip what can't ever be, and see whether the run is over."""
        moved = True
        while moved:
            moved = False
            for job in run.jobs:
                if not job.result and job.job is None and self._settle_or_queue(run, job):
                    moved = True
        if not run.result and all(job.result for job in run.jobs):
            run.result = _overall(run)

    def _settle_or_queue(self, run: WorkflowRun, job: RunJob) -> bool:
        """Tells whether the job moved."""
        if run.canceled:
            job.result = str(JobResult.CANCELED)
            return True
        needed = [each for need in job.definition.needs for each in run.of(need)]
        if not all(each.result for each in needed):
            return False
        if any(each.result != JobResult.SUCCEEDED and not _forgiven(each) for each in needed):
            job.result = SKIPPED
            return True
        siblings = run.of(job.definition.id)
        under_way = sum(1 for each in siblings if each.job is not None and not each.result)
        if job.definition.matrix is not None and under_way >= job.definition.matrix.max_parallel:
            return False
        self._queue(run, job)
        return True

    def _queue(self, run: WorkflowRun, job: RunJob) -> None:
        github = _github(run, job.definition.id)

        def completed(ended: Job) -> None:
            if job.job is ended:
                self._completed(run, job, ended)

        job.job = self._service.new_job(
            run.repository,
            _labels(job.definition.labels, job.matrix, github),
            group=str(evaluate(job.definition.group, job.matrix, github)),
            name=job.name,
            workflow_ref=run.workflow_ref,
            run_id=run.id,
            event=run.event,
            timeout=_seconds(job.definition.timeout_minutes, job.matrix, github) or DEFAULT_JOB_TIMEOUT,
            payload=_payload(run, job.definition, job.matrix),
            on_completed=completed,
        )
        self._service.jobs.add(job.job)

    def _completed(self, run: WorkflowRun, job: RunJob, ended: Job) -> None:
        job.result = str(ended.result)
        matrix = job.definition.matrix
        if matrix is not None and matrix.fail_fast and job.result == JobResult.FAILED and not _forgiven(job):
            self._cancel_jobs(run, [each for each in run.of(job.definition.id) if each is not job])
        self._advance(run)

    def _cancel_jobs(self, run: WorkflowRun, jobs: Iterable[RunJob]) -> None:
        # Those that aren't queued yet end first, or else the end of the others would let them be queued.
        for job in jobs:
            if not job.result and job.job is None and (run.canceled or job.definition.matrix is not None):
                job.result = str(JobResult.CANCELED)
        for job in jobs:
            if not job.result and job.job is not None:
                self._service.jobs.cancel(job.job)


def _forgiven(job: RunJob) -> bool:
    return job.continue_on_error and job.result == JobResult.FAILED


def _overall(run: WorkflowRun) -> str:
    results = {job.result for job in run.jobs if not _forgiven(job)}
    for worst in (JobResult.FAILED, JobResult.CANCELED):
        if worst in results:
            return str(worst)
    return str(JobResult.SUCCEEDED)


def _github(run: WorkflowRun, job_id: str) -> dict[str, object]:
    kind, _, ref_name = run.ref.removeprefix("refs/").partition("/")
    return {
        "actor": run.repository.partition("/")[0],
        "event_name": run.event,
        "job": job_id,
        "ref": run.ref,
        "ref_name": ref_name,
        "ref_type": "tag" if kind == "tags" else "branch",
        "repository": run.repository,
        "repository_owner": run.repository.partition("/")[0],
        "run_attempt": run.attempt,
        "run_id": run.id,
        "run_number": run.number,
        "sha": run.sha,
        "workflow": run.workflow.name,
        "workflow_ref": run.workflow_ref,
    }


def _expand(run: WorkflowRun, definition: JobDefinition, matrix: Mapping[str, object]) -> tuple[RunJob, int]:
    """Make the job of one combination, and find out now whether its texts can be filled in, and how large they get."""
    github = _github(run, definition.id)
    try:
        _labels(definition.labels, matrix, github)
        _seconds(definition.timeout_minutes, matrix, github)
        size = len(msgspec.json.encode(_payload(run, definition, matrix)))
        job = RunJob(
            definition,
            matrix,
            _display_name(definition, matrix, github),
            evaluate(definition.continue_on_error, matrix, github) == "true",
        )
        return job, size
    except ValueError as error:
        raise WorkflowError(run.workflow.path, definition.line, f"job {definition.id!r}: {error}") from None


def _display_name(definition: JobDefinition, matrix: Mapping[str, object], github: Mapping[str, object]) -> str:
    name = str(evaluate(definition.name or definition.id, matrix, github))
    if not matrix or names_matrix(definition.name):
        return name
    shown = [value for value in matrix.values() if not isinstance(value, (dict, list))]
    return f"{name} ({', '.join(render(value) for value in shown)})" if shown else name


def _labels(labels: tuple[str, ...], matrix: Mapping[str, object], github: Mapping[str, object]) -> list[str]:
    """What ``runs-on`` asks for; one expression alone may stand for a list of labels."""
    found: list[str] = []
    for label in labels:
        value = matrix_value(label, matrix)
        names = list(map(render, value)) if isinstance(value, list) else [str(evaluate(label, matrix, github))]
        if not names or not all(names):
            raise ValueError(f"runs-on: {label.strip() or repr(label)} is empty")
        found.extend(names)
    return found


def _seconds(minutes: str, matrix: Mapping[str, object], github: Mapping[str, object]) -> float:
    """``timeout-minutes`` in seconds; 0 when there is none."""
    if not minutes:
        return 0.0
    text = evaluate(minutes, matrix, github)
    try:
        seconds = float(str(text)) * 60
    except ValueError:
        raise ValueError(f"timeout-minutes {text!r} is not a number") from None
    if not 0 < seconds < math.inf:
        raise ValueError(f"timeout-minutes {text!r} is not a number above 0")
    return seconds


def _payload(run: WorkflowRun, definition: JobDefinition, matrix: Mapping[str, object]) -> dict[str, object]:
    """What the runner program gets to do."""
    github = _github(run, definition.id)

    size = 0

    def filled(text: str) -> Text:
        nonlocal size
        found = evaluate(text, matrix, github)
        size += len(found) if isinstance(found, str) else sum(map(len, found))
        if size > _MAX_SIZE:
            raise ValueError(f"its texts are longer than {_MAX_SIZE} characters")
        return found

    def variables(env: tuple[Variable, ...]) -> list[list[object]]:
        return [[name, filled(text)] for name, text in env]

    def step(each: StepDefinition) -> dict[str, object]:
        if each.uses:
            return {"name": each.name, "uses": each.uses}
        return {
            "name": filled(each.name),
            "run": filled(each.run),
            "shell": each.shell,
            "workingDirectory": filled(each.working_directory),
            "env": variables(each.env),
            "continueOnError": evaluate(each.continue_on_error, matrix, github) == "true",
            "timeoutSeconds": _seconds(each.timeout_minutes, matrix, github),
        }

    return {
        "env": variables((*run.workflow.env, *definition.env)),
        "github": github,
        "steps": [step(each) for each in definition.steps],
    }
