"""The administrator's calls to the Actions service: groups, scale sets, runners, sessions (3.2, 4.1, 5.2)."""

from __future__ import annotations

from typing import Any

import msgspec

from runherd.simulator.context import Context
from runherd.simulator.errors import unauthorized
from runherd.simulator.exchange import NO_CONTENT, Call, integer, json_response
from runherd.simulator.faults import FaultKind
from runherd.simulator.model import Runner, ScaleSet, Session
from runherd.simulator.queue_api import faulty_statistics
from runherd.simulator.router import Route
from runherd.simulator.runner_pool import encode_jit_config
from runherd.simulator.scale_sets import ScaleSetInput
from runherd.wire.transport import Response

__all__ = ["service_api_routes"]

_SETS = "tenant/{t}/_apis/runtime/runnerscalesets"
_AGENTS = "tenant/{t}/_apis/distributedtask/pools/{p}/agents"


class _JitInput(msgspec.Struct, rename="camel"):
    name: str = ""
    work_folder: str = ""


class _SessionInput(msgspec.Struct, rename="camel"):
    owner_name: str = ""


def service_api_routes(context: Context) -> list[Route]:
    """Paths are relative to the host; the service URL of a scope is ``<host>/tenant/<number>/``."""
    api = _ServiceApi(context)

    def of_set(_call: Call, parameters: tuple[Any, ...]) -> int:
        return int(parameters[1]) if parameters[1].isdigit() else 0

    def of_runner(_call: Call, parameters: tuple[Any, ...]) -> int:
        runner = context.service.runners.by_id.get(int(parameters[2])) if parameters[2].isdigit() else None
        return runner.scale_set.id if runner is not None else 0

    return [
        Route("GET", "tenant/{t}/_apis/runtime/runnergroups", "groups.list", api.list_groups),
        Route("GET", _SETS, "scale_sets.list", api.list_scale_sets),
        Route("POST", _SETS, "scale_sets.create", api.create_scale_set),
        Route("GET", _SETS + "/{id}", "scale_sets.get", api.get_scale_set, of_set),
        Route("PATCH", _SETS + "/{id}", "scale_sets.update", api.update_scale_set, of_set),
        Route("DELETE", _SETS + "/{id}", "scale_sets.delete", api.delete_scale_set, of_set),
        Route("POST", _SETS + "/{id}/generatejitconfig", "jit_config.generate", api.generate_jit_config, of_set),
        Route("GET", _AGENTS, "runners.list", api.list_runners),
        Route("GET", _AGENTS + "/{id}", "runners.get", api.get_runner, of_runner),
        Route("DELETE", _AGENTS + "/{id}", "runners.delete", api.delete_runner, of_runner),
        Route("POST", _SETS + "/{id}/sessions", "sessions.create", api.create_session, of_set),
        Route("PATCH", _SETS + "/{id}/sessions/{s}", "sessions.refresh", api.refresh_session, of_set),
        Route("DELETE", _SETS + "/{id}/sessions/{s}", "sessions.delete", api.delete_session, of_set),
        Route("POST", _SETS + "/{id}/acquirejobs", "jobs.acquire", api.acquire_jobs, of_set),
        Route("GET", _SETS + "/{id}/acquirablejobs", "jobs.acquirable", api.acquirable_jobs, of_set),
    ]


def _list(values: list[Any]) -> Response:
    return json_response({"count": len(values), "value": values})


def _reference(runner: Runner) -> dict[str, object]:
    return {
        "id": runner.id,
        "name": runner.name,
        "runnerScaleSetId": runner.scale_set.id,
        "status": "online" if runner.connected else "offline",
        "ephemeral": True,
    }


class _ServiceApi:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._service = context.service

    async def list_groups(self, call: Call, tenant: str) -> Response:
        scope = self._context.administered(call, tenant)
        name = call.query.get("groupName")
        return _list(
            [
                {
                    "id": group.id,
                    "name": group.name,
                    "size": sum(len(each.runners) for each in self._service.scale_sets.list_group(scope, group.id)),
                    "isDefaultGroup": group.is_default,
                }
                for group in self._service.scale_sets.groups(scope)
                if name is None or group.name.lower() == name.lower()
            ]
        )

    async def list_scale_sets(self, call: Call, tenant: str) -> Response:
        scope = self._context.administered(call, tenant)
        group_id = call.integer("runnerGroupId", 0)
        found = self._service.scale_sets.list_group(scope, group_id, call.query.get("name"))
        return _list([self._shown(call, scale_set) for scale_set in found])

    async def create_scale_set(self, call: Call, tenant: str) -> Response:
        scope = self._context.administered(call, tenant)
        return json_response(self._shown(call, self._service.scale_sets.create(scope, call.decode(ScaleSetInput))))

    async def get_scale_set(self, call: Call, tenant: str, scale_set_id: str) -> Response:
        return json_response(self._shown(call, self._context.scale_set(call, tenant, scale_set_id)))

    async def update_scale_set(self, call: Call, tenant: str, scale_set_id: str) -> Response:
        scale_set = self._context.scale_set(call, tenant, scale_set_id)
        self._service.scale_sets.update(scale_set.scope, scale_set.id, call.decode(ScaleSetInput))
        return json_response(self._shown(call, scale_set))

    async def delete_scale_set(self, call: Call, tenant: str, scale_set_id: str) -> Response:
        scale_set = self._context.scale_set(call, tenant, scale_set_id)
        self._service.scale_sets.delete(scale_set.scope, scale_set.id)
        return NO_CONTENT

    async def generate_jit_config(self, call: Call, tenant: str, scale_set_id: str) -> Response:
        scale_set = self._context.scale_set(call, tenant, scale_set_id)
        given = call.decode(_JitInput)
        runner = self._service.runners.register(scale_set, given.name, given.work_folder)
        if self._context.faults.happens(FaultKind.STARVED_RUNNER, "jit_config.generate", scale_set.id):
            runner.starved = True
        return json_response({"runner": _reference(runner), "encodedJITConfig": encode_jit_config(runner, call.base)})

    async def list_runners(self, call: Call, tenant: str, _pool: str) -> Response:
        scope = self._context.administered(call, tenant)
        name = call.query.get("agentName")
        if name is not None:
            runner = self._service.runners.find(scope, name)
            return _list([_reference(runner)] if runner is not None else [])
        every = self._service.runners.by_id.values()
        return _list([_reference(runner) for runner in every if runner.scale_set.scope == scope])

    async def get_runner(self, call: Call, tenant: str, _pool: str, runner_id: str) -> Response:
        scope = self._context.administered(call, tenant)
        return json_response(_reference(self._service.runners.get(scope, integer(runner_id, "runner id"))))

    async def delete_runner(self, call: Call, tenant: str, _pool: str, runner_id: str) -> Response:
        scope = self._context.administered(call, tenant)
        number = integer(runner_id, "runner id")
        runner = self._service.runners.by_id.get(number)
        if runner is not None and self._context.faults.happens(
            FaultKind.BUSY_RUNNER, "runners.delete", runner.scale_set.id
        ):
            raise self._service.runners.still_running(runner)
        self._service.runners.remove(scope, number)
        return NO_CONTENT

    async def create_session(self, call: Call, tenant: str, scale_set_id: str) -> Response:
        scale_set = self._context.scale_set(call, tenant, scale_set_id)
        session = self._service.sessions.create(scale_set, call.decode(_SessionInput).owner_name)
        return json_response(self._session(call, scale_set, session, "sessions.create"))

    async def refresh_session(self, call: Call, tenant: str, scale_set_id: str, session_id: str) -> Response:
        scale_set = self._context.scale_set(call, tenant, scale_set_id)
        if self._context.faults.happens(FaultKind.EVICTED_SESSION, "sessions.refresh", scale_set.id):
            self._service.sessions.evict(scale_set)
        session = self._service.sessions.refresh(scale_set, session_id)
        return json_response(self._session(call, scale_set, session, "sessions.refresh"))

    async def delete_session(self, call: Call, tenant: str, scale_set_id: str, session_id: str) -> Response:
        scale_set = self._context.scale_set(call, tenant, scale_set_id)
        self._service.sessions.delete(scale_set, session_id)
        return NO_CONTENT

    async def acquire_jobs(self, call: Call, tenant: str, scale_set_id: str) -> Response:
        """Authenticated by the queue token, unlike its neighbours (5.3)."""
        scale_set = self._service.scale_sets.by_id.get(integer(scale_set_id, "runner scale set id"))
        if scale_set is None or self._context.tenants.scope(tenant) != scale_set.scope:
            raise unauthorized("The message queue token is not valid (any more).")
        if self._context.faults.happens(FaultKind.EVICTED_SESSION, "jobs.acquire", scale_set.id):
            self._service.sessions.evict(scale_set)
        self._service.sessions.authenticate_for(scale_set, call.authorization())
        return _list(self._service.jobs.acquire(scale_set, call.decode(list[int])))

    async def acquirable_jobs(self, call: Call, tenant: str, scale_set_id: str) -> Response:
        scale_set = self._context.scale_set(call, tenant, scale_set_id)
        jobs = self._service.jobs.waiting_for(scale_set)
        if not jobs:
            return NO_CONTENT
        return _list(
            [
                {
                    "acquireJobUrl": f"urn:runherd:job:{job.request_id}",
                    "messageType": "JobAvailable",
                    "runnerRequestId": job.request_id,
                    "repositoryName": job.repository,
                    "ownerName": job.owner,
                    "jobWorkflowRef": job.workflow_ref,
                    "eventName": job.event,
                    "requestLabels": job.labels,
                }
                for job in jobs
            ]
        )

    def _shown(self, call: Call, scale_set: ScaleSet) -> dict[str, object]:
        return self._service.scale_sets.to_json(scale_set, self._context.tenants.service_url(call, scale_set.scope))

    def _session(self, call: Call, scale_set: ScaleSet, session: Session, operation: str) -> dict[str, object]:
        shown: dict[str, object] = {
            "sessionId": session.id,
            "ownerName": session.owner_name,
            "runnerScaleSet": self._shown(call, scale_set),
            "messageQueueUrl": self._context.tenants.queue_url(call, session.id),
            "messageQueueAccessToken": session.token,
            "statistics": faulty_statistics(
                self._context.faults, operation, scale_set, self._service.scale_sets.statistics(scale_set)
            ),
        }
        if self._context.faults.happens(FaultKind.NO_QUEUE_URL, operation, scale_set.id):
            del shown["messageQueueUrl"]
        return shown
