"""The simulator's own administration over HTTP: run workflows, look at what happens, make things go wrong.

All paths are under ``/_simulator/`` and ask for ``Authorization: Bearer <admin token>``.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec

from runherd.simulator.context import Context
from runherd.simulator.errors import ServiceError, bad_request, unauthorized
from runherd.simulator.exchange import NO_CONTENT, Call, integer, json_response
from runherd.simulator.faults import Fault
from runherd.simulator.message_queue import rfc3339
from runherd.simulator.model import Job, Runner, ScaleSet
from runherd.simulator.router import Endpoint, Route
from runherd.simulator.runs import RunJob, Runs, WorkflowRun
from runherd.simulator.settings import Settings
from runherd.simulator.workflow import parse_workflow
from runherd.simulator.yaml_nodes import WorkflowError
from runherd.wire.transport import Response

__all__ = ["admin_api_routes"]


class _JobsInput(msgspec.Struct, forbid_unknown_fields=True):
    repository: str
    labels: Annotated[list[Annotated[str, msgspec.Meta(min_length=1)]], msgspec.Meta(min_length=1)]
    count: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1
    seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    name: str = "job"


def admin_api_routes(context: Context, runs: Runs, token: str) -> list[Route]:
    """Paths are relative to the host. With an empty ``token`` every call is refused."""
    api = _AdminApi(context, runs)

    def guarded(endpoint: Callable[..., Awaitable[Response]]) -> Endpoint:
        async def check(call: Call, *parameters: str) -> Response:
            given = call.authorization()
            if not token or not hmac.compare_digest(given.encode(), token.encode()):
                raise unauthorized("The simulator's admin token is wrong or missing.")
            return await endpoint(call, *parameters)

        return check

    table: list[tuple[str, str, Callable[..., Awaitable[Response]]]] = [
        ("POST", "workflows", api.start_workflow),
        ("GET", "runs", api.list_runs),
        ("GET", "runs/{id}", api.get_run),
        ("POST", "runs/{id}/cancel", api.cancel_run),
        ("POST", "runs/{id}/rerun", api.rerun),
        ("POST", "runs/{id}/rerun-failed-jobs", api.rerun_failed),
        ("POST", "runs/{id}/jobs/{index}/rerun", api.rerun_job),
        ("POST", "jobs", api.queue_jobs),
        ("GET", "jobs", api.list_jobs),
        ("POST", "jobs/{id}/cancel", api.cancel_job),
        ("GET", "scale-sets", api.list_scale_sets),
        ("POST", "scale-sets/{id}/evict-session", api.evict_session),
        ("GET", "runners", api.list_runners),
        ("GET", "ledger", api.ledger),
        ("GET", "faults", api.list_faults),
        ("POST", "faults", api.add_fault),
        ("DELETE", "faults", api.clear_faults),
        ("GET", "settings", api.get_settings),
        ("PATCH", "settings", api.change_settings),
    ]
    return [Route(method, f"_simulator/{path}", f"admin.{path}", guarded(each)) for method, path, each in table]


def _not_found(what: str) -> ServiceError:
    return ServiceError(404, "VssServiceException", f"There is no {what}.")


def _shown_job(job: Job) -> dict[str, object]:
    return {
        "requestId": job.request_id,
        "jobId": job.job_id,
        "name": job.name,
        "repository": f"{job.owner}/{job.repository}",
        "labels": job.labels,
        "state": str(job.state),
        "result": job.result,
        "scaleSet": job.scale_set.name if job.scale_set is not None else None,
        "runnerName": job.runner_name,
        "queueTime": rfc3339(job.queue_time),
        "steps": job.steps,
    }


def _shown_run_job(job: RunJob) -> dict[str, object]:
    queued = _shown_job(job.job) if job.job is not None else {}
    return {**queued, "name": job.name, "state": job.state, "result": job.result or None}


def _shown_run(run: WorkflowRun) -> dict[str, object]:
    return {
        "id": run.id,
        "workflow": run.workflow.name,
        "repository": run.repository,
        "attempt": run.attempt,
        "result": run.result or None,
        "jobs": [_shown_run_job(job) for job in run.jobs],
    }


def _shown_runner(runner: Runner) -> dict[str, object]:
    return {
        "id": runner.id,
        "name": runner.name,
        "scaleSet": runner.scale_set.name,
        "state": runner.state,
        "version": runner.version,
        "jobId": runner.job.job_id if runner.job is not None else None,
    }


class _AdminApi:
    def __init__(self, context: Context, runs: Runs) -> None:
        self._service = context.service
        self._faults = context.faults
        self._runs = runs

    async def start_workflow(self, call: Call) -> Response:
        path = call.query.get("path", ".github/workflows/ci.yml")
        repository = call.query.get("repository", "acme/app")
        try:
            workflow = parse_workflow(call.body, path)
            run = self._runs.start(
                workflow,
                repository=repository,
                ref=call.query.get("ref", "refs/heads/main"),
                event=call.query.get("event", "push"),
            )
        except (WorkflowError, ValueError) as error:
            raise bad_request(str(error)) from None
        return json_response(_shown_run(run), 201)

    async def list_runs(self, _call: Call) -> Response:
        return json_response([_shown_run(run) for run in self._runs.by_id.values()])

    async def get_run(self, _call: Call, run_id: str) -> Response:
        return json_response(_shown_run(self._run(run_id)))

    async def cancel_run(self, _call: Call, run_id: str) -> Response:
        run = self._run(run_id)
        self._runs.cancel(run)
        return json_response(_shown_run(run))

    async def rerun(self, _call: Call, run_id: str) -> Response:
        return self._run_again(run_id, lambda run: self._runs.rerun(run))

    async def rerun_failed(self, _call: Call, run_id: str) -> Response:
        return self._run_again(run_id, lambda run: self._runs.rerun(run, failed_only=True))

    async def rerun_job(self, _call: Call, run_id: str, index: str) -> Response:
        """``index`` is the job's place in the run's list of jobs."""
        number = integer(index, "index")
        if not 0 <= number < len(self._run(run_id).jobs):
            raise _not_found(f"job {index} in run {run_id}")
        return self._run_again(run_id, lambda run: self._runs.rerun_job(run, run.jobs[number]))

    async def queue_jobs(self, call: Call) -> Response:
        given = call.decode(_JobsInput)
        try:
            jobs = [
                self._service.new_job(given.repository, given.labels, name=given.name, seconds=given.seconds)
                for _ in range(given.count)
            ]
        except ValueError as error:
            raise bad_request(str(error)) from None
        for job in jobs:
            self._service.jobs.add(job)
        return json_response([_shown_job(job) for job in jobs], 201)

    async def list_jobs(self, _call: Call) -> Response:
        return json_response([_shown_job(job) for job in self._service.jobs.open.values()])

    async def cancel_job(self, _call: Call, request_id: str) -> Response:
        job = self._service.jobs.open.get(integer(request_id, "job"))
        if job is None:
            raise _not_found(f"open job {request_id}")
        self._service.jobs.cancel(job)
        return json_response(_shown_job(job))

    async def list_scale_sets(self, _call: Call) -> Response:
        return json_response([self._shown_scale_set(each) for each in self._service.scale_sets.by_id.values()])

    async def evict_session(self, _call: Call, scale_set_id: str) -> Response:
        scale_set = self._service.scale_sets.by_id.get(integer(scale_set_id, "scale set"))
        if scale_set is None or not self._service.sessions.evict(scale_set):
            raise _not_found(f"session of a scale set {scale_set_id}")
        return NO_CONTENT

    async def list_runners(self, _call: Call) -> Response:
        return json_response([_shown_runner(runner) for runner in self._service.runners.by_id.values()])

    async def ledger(self, _call: Call) -> Response:
        ledger = self._service.ledger
        return json_response({"counts": ledger.counts, "violations": ledger.violations()})

    async def list_faults(self, _call: Call) -> Response:
        return json_response({"pending": self._faults.pending(), "happened": self._faults.happened})

    async def add_fault(self, call: Call) -> Response:
        try:
            return json_response(self._faults.add(call.decode(Fault)), 201)
        except ValueError as error:
            raise bad_request(str(error)) from None

    async def clear_faults(self, _call: Call) -> Response:
        self._faults.clear()
        return NO_CONTENT

    async def get_settings(self, _call: Call) -> Response:
        return json_response(self._service.settings)

    async def change_settings(self, call: Call) -> Response:
        """Takes the settings that are to change, named as in :class:`Settings`."""
        given: dict[str, Any] = call.decode(dict)
        try:
            changed = msgspec.convert({**msgspec.to_builtins(self._service.settings), **given}, Settings)
        except msgspec.ValidationError as error:
            raise bad_request(str(error)) from None
        for name in given:
            if name not in Settings.__struct_fields__:
                raise bad_request(f"There is no setting {name!r}.")
            setattr(self._service.settings, name, getattr(changed, name))
        return json_response(self._service.settings)

    def _run(self, run_id: str) -> WorkflowRun:
        run = self._runs.by_id.get(integer(run_id, "run"))
        if run is None:
            raise _not_found(f"run {run_id}")
        return run

    def _run_again(self, run_id: str, again: Callable[[WorkflowRun], None]) -> Response:
        run = self._run(run_id)
        try:
            again(run)
        except ValueError as error:
            raise ServiceError(409, "VssServiceException", str(error)) from None
        return json_response(_shown_run(run))

    def _shown_scale_set(self, scale_set: ScaleSet) -> dict[str, object]:
        session = scale_set.session
        return {
            "id": scale_set.id,
            "scope": str(scale_set.scope),
            "name": scale_set.name,
            "group": scale_set.group.name,
            "labels": [label["name"] for label in scale_set.labels],
            "sessionOwner": session.owner_name if session is not None else None,
            "capacity": session.capacity if session is not None else 0,
            "undeletedMessages": len(scale_set.queue.messages),
            "statistics": self._service.scale_sets.statistics(scale_set),
        }
