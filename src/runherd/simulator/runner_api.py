"""The small protocol between the service and the runner program (:mod:`runherd.simulator.runner`). It is ours alone.

All calls are ``POST`` with a JSON object that holds ``runnerId`` and ``token`` from the JIT configuration.

- ``connect``: with ``version``; answers ``connection``, a number that the later calls repeat.
- ``poll``: with ``busy`` (whether it has its job); held until there is news, at most ``HOLD`` seconds:
  ``{"job": ...}`` for a runner that waits, ``{"cancel": true}`` for one that works, ``{}`` for neither. A working
  one may send ``steps``, its report so far.
- ``finish``: with ``result`` and ``steps``: the job is over, and with it the registration.
- ``disconnect``: the program ends without having had a job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from runherd.simulator.context import Context, wait_for_wake
from runherd.simulator.errors import ServiceError
from runherd.simulator.exchange import Call, json_response
from runherd.simulator.faults import FaultKind
from runherd.simulator.model import Job, JobResult, Runner
from runherd.simulator.router import Route
from runherd.wire.transport import Response

__all__ = ["HOLD", "runner_api_routes"]

#: How long a poll without news is held, in seconds. Must stay below ``Settings.lost_runner_timeout``.
HOLD = 20.0


class _RunnerCall(msgspec.Struct, rename="camel"):
    runner_id: int
    token: str
    connection: int = 0
    busy: bool = False
    version: str = ""
    result: JobResult | None = None
    steps: list[dict[str, Any]] = []


def runner_api_routes(context: Context) -> list[Route]:
    """Paths are relative to the host."""
    api = _RunnerApi(context)
    return [
        Route("POST", "_runner/connect", "runner.connect", api.connect),
        Route("POST", "_runner/poll", "runner.poll", api.poll),
        Route("POST", "_runner/finish", "runner.finish", api.finish),
        Route("POST", "_runner/disconnect", "runner.disconnect", api.disconnect),
    ]


def _job_order(job: Job) -> dict[str, object]:
    steps: list[dict[str, object]] = [{"name": f"Sleep {job.seconds:g} s", "run": f"sleep {job.seconds:g}"}]
    return {
        "requestId": job.request_id,
        "jobId": job.job_id,
        "name": job.name,
        "repository": f"{job.owner}/{job.repository}",
        **(job.payload or {"env": [], "steps": steps, "github": {}}),
    }


class _RunnerApi:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._service = context.service

    async def connect(self, call: Call) -> Response:
        given = call.decode(_RunnerCall)
        pool = self._service.runners
        runner = pool.by_id.get(given.runner_id)
        if runner is not None and self._context.faults.happens(
            FaultKind.OUTDATED_RUNNER, "runner.connect", runner.scale_set.id
        ):
            raise pool.outdated(runner, given.version)
        runner = pool.connect(given.runner_id, given.token, given.version)
        return json_response({"connection": runner.connections, "name": runner.name})

    async def poll(self, call: Call) -> Response:
        given = call.decode(_RunnerCall)
        runner = self._connected(given)
        if runner.job is not None and given.steps:
            runner.job.steps = given.steps
        has_job = given.busy
        deadline = asyncio.get_running_loop().time() + HOLD

        def subscribe(wake: Callable[[], None]) -> Callable[[], None]:
            runner.wake = wake

            def unsubscribe() -> None:
                if runner.wake is wake:
                    runner.wake = None

            return unsubscribe

        self._service.runners.attend(runner)
        try:
            while True:
                news = self._news(runner, has_job=has_job)
                if news or not await wait_for_wake(subscribe, deadline):
                    return json_response(news)
        except asyncio.CancelledError:
            # The program is gone. One that waited for a job is free to come back, and its job (if one was given to it
            # just now) will be missed in time.
            if runner.job is None:
                self._service.runners.disconnect(runner)
            raise
        finally:
            self._service.runners.leave(runner)

    async def finish(self, call: Call) -> Response:
        given = call.decode(_RunnerCall)
        runner = self._connected(given)
        if runner.job is not None:
            runner.job.steps = given.steps
        self._service.runners.finish(runner, given.result or JobResult.FAILED)
        return json_response({})

    async def disconnect(self, call: Call) -> Response:
        self._service.runners.disconnect(self._connected(call.decode(_RunnerCall)))
        return json_response({})

    def _connected(self, given: _RunnerCall) -> Runner:
        """The runner whose program calls. Raises 401 and 404 (removed, or given up as lost)."""
        runner = self._service.runners.by_id.get(given.runner_id)
        if runner is None:
            raise ServiceError(404, "TaskAgentNotFoundException", f"Runner {given.runner_id} was removed.")
        if runner.token != given.token:
            raise ServiceError(401, "VssUnauthorizedException", "The configuration is not of this service.")
        if not runner.connected or runner.connections != given.connection:
            raise ServiceError(404, "TaskAgentNotFoundException", f"Runner {runner.name} is not connected any more.")
        return runner

    def _news(self, runner: Runner, *, has_job: bool) -> dict[str, object]:
        """What a waiting program (``has_job`` false) or a working one must know now."""
        if runner.removed:
            raise ServiceError(404, "TaskAgentNotFoundException", f"Runner {runner.name} was removed.")
        if runner.job is None:
            return {}
        if not has_job:
            return {"job": _job_order(runner.job)}
        return {"cancel": True} if runner.job.cancel_requested else {}
