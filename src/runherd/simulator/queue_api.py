"""The message queue's calls (5.3): poll and acknowledge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from runherd.simulator.context import Context, wait_for_wake
from runherd.simulator.exchange import NO_CONTENT, Call, integer, json_response
from runherd.simulator.faults import FaultKind, Faults
from runherd.simulator.message_queue import JobEvent, Message
from runherd.simulator.model import JobResult, ScaleSet, Session
from runherd.simulator.router import Route
from runherd.wire.transport import Response

__all__ = ["faulty_statistics", "queue_api_routes"]

_POLL = "messages.get"


def queue_api_routes(context: Context) -> list[Route]:
    """Paths are relative to the host."""
    api = _QueueApi(context)

    def of_session(call: Call, _parameters: tuple[Any, ...]) -> int:
        return context.service.sessions.scale_set_id(call.query.get("sessionId", ""))

    return [
        Route("GET", "scalesets/message", _POLL, api.poll, of_session),
        Route("DELETE", "scalesets/message/{id}", "messages.delete", api.delete, of_session),
    ]


def faulty_statistics(
    faults: Faults, operation: str, scale_set: ScaleSet, statistics: dict[str, int]
) -> dict[str, int]:
    """``statistics`` as they are, or as faults make them."""
    previous, scale_set.told_statistics = scale_set.told_statistics, statistics
    if faults.happens(FaultKind.STALE_STATISTICS, operation, scale_set.id):
        return previous or dict.fromkeys(statistics, 0)
    inflated = faults.happens(FaultKind.INFLATED_STATISTICS, operation, scale_set.id)
    if inflated is not None:
        return {**statistics, "totalAssignedJobs": statistics["totalAssignedJobs"] + inflated.amount}
    return statistics


class _QueueApi:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._service = context.service

    async def poll(self, call: Call) -> Response:
        scale_set, session = self._authenticate(call, _POLL)
        last_id = call.integer("lastMessageId", 0)
        capacity = call.headers.get("X-ScaleSetMaxCapacity")
        if capacity is not None:
            session.capacity = integer(capacity, "X-ScaleSetMaxCapacity")
            self._service.jobs.fill(scale_set)
        self._make_false_events(scale_set)
        message = await self._held(call, scale_set, session, last_id)
        if message is None:
            return Response(202)
        shown = message.to_json()
        shown["statistics"] = faulty_statistics(self._context.faults, _POLL, scale_set, message.statistics)
        if self._context.faults.happens(FaultKind.UNDECODABLE_MESSAGE, _POLL, scale_set.id):
            shown["body"] = message.body[: len(message.body) // 2]
        return json_response(shown)

    async def delete(self, call: Call, message_id: str) -> Response:
        scale_set, _ = self._authenticate(call, "messages.delete")
        scale_set.queue.delete(integer(message_id, "message id"))
        return NO_CONTENT

    def _authenticate(self, call: Call, operation: str) -> tuple[ScaleSet, Session]:
        session_id, token = call.query.get("sessionId", ""), call.authorization()
        scale_set, session = self._service.sessions.authenticate(session_id, token)
        if self._context.faults.happens(FaultKind.EVICTED_SESSION, operation, scale_set.id):
            self._service.sessions.evict(scale_set)
            self._service.sessions.authenticate(session_id, token)
        return scale_set, session

    async def _held(self, call: Call, scale_set: ScaleSet, session: Session, last_id: int) -> Message | None:
        """Hold the poll until there is a message, for as long as the service holds polls."""
        deadline = asyncio.get_running_loop().time() + self._service.settings.poll_hold

        def subscribe(wake: Callable[[], None]) -> Callable[[], None]:
            scale_set.queue.waiters.add(wake)
            return lambda: scale_set.queue.waiters.discard(wake)

        session.polls += 1
        try:
            while True:
                message = self._next_message(scale_set, last_id)
                if message is not None or not await wait_for_wake(subscribe, deadline):
                    return message
                # The session may have ended, or its token been replaced, while we waited.
                self._service.sessions.authenticate(session.id, call.authorization())
        finally:
            session.polls -= 1
            session.last_used = asyncio.get_running_loop().time()

    def _next_message(self, scale_set: ScaleSet, last_id: int) -> Message | None:
        while True:
            message = scale_set.queue.next_after(last_id, lambda: self._service.scale_sets.statistics(scale_set))
            if message is None or not self._context.faults.happens(FaultKind.LOST_MESSAGE, _POLL, scale_set.id):
                return message
            scale_set.queue.delete(message.id)

    def _make_false_events(self, scale_set: ScaleSet) -> None:
        faults = self._context.faults
        if faults.happens(FaultKind.STALE_OFFER, _POLL, scale_set.id):
            gone = self._service.new_job("acme/gone", [scale_set.name], name="gone")
            event = JobEvent.of("JobAvailable", gone, acquireJobUrl=f"urn:runherd:job:{gone.request_id}")
            scale_set.queue.add(event)
        if scale_set.running and faults.happens(FaultKind.FALSE_COMPLETION, _POLL, scale_set.id):
            job = next(iter(scale_set.running.values()))
            result = str(JobResult.SUCCEEDED)
            scale_set.queue.add(
                JobEvent.of("JobCompleted", job, result=result, runnerId=job.runner_id, runnerName=job.runner_name)
            )
