"""A scale set's message queue (5.3, 5.4): what happened to jobs is collected, packed into messages and kept.

A message stays until it is deleted, across sessions. What isn't packed yet isn't visible to anyone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from runherd.simulator.model import Job, JobState

__all__ = ["MAX_JOB_MESSAGES", "JobEvent", "Message", "MessageQueue", "rfc3339"]

#: The most job messages that one message carries.
MAX_JOB_MESSAGES = 50

_ZERO_TIME = "0001-01-01T00:00:00Z"


def rfc3339(moment: datetime | None) -> str:
    """A time as it goes over the wire; ``None`` is Go's zero time."""
    return moment.isoformat().replace("+00:00", "Z") if moment is not None else _ZERO_TIME


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One job message: ``fields`` is the JSON object, fixed when the event happened."""

    type: str
    job: Job
    fields: dict[str, object]

    @classmethod
    def of(cls, kind: str, job: Job, **extra: object) -> JobEvent:
        """``kind`` is ``JobAvailable``, ``JobAssigned``, ``JobStarted`` or ``JobCompleted``."""
        fields: dict[str, object] = {
            "messageType": kind,
            "runnerRequestId": job.request_id,
            "repositoryName": job.repository,
            "ownerName": job.owner,
            "jobId": job.job_id,
            "jobWorkflowRef": job.workflow_ref,
            "jobDisplayName": job.name,
            "workflowRunId": job.run_id,
            "eventName": job.event,
            "requestLabels": job.labels,
            "queueTime": rfc3339(job.queue_time),
            "scaleSetAssignTime": rfc3339(job.assign_time),
            "runnerAssignTime": rfc3339(job.runner_assign_time),
            "finishTime": rfc3339(job.finish_time),
        }
        fields.update(extra)
        return cls(kind, job, fields)

    def is_void(self) -> bool:
        """An offer of a job that is no longer to be had: not worth sending."""
        return self.type == "JobAvailable" and self.job.state is not JobState.WAITING


@dataclass(slots=True)
class Message:
    """A packed message, ready to be sent as often as it is asked for."""

    id: int
    body: str
    statistics: dict[str, int]
    type: str = "RunnerScaleSetJobMessages"

    def to_json(self) -> dict[str, object]:
        """The envelope of 5.4: the body is a string that holds JSON."""
        return {
            "messageId": self.id,
            "messageType": self.type,
            "body": self.body,
            "statistics": self.statistics,
        }


@dataclass(slots=True, eq=False)
class MessageQueue:
    """Messages of one scale set, ids rising from ``next_id``."""

    next_id: int
    #: Undeleted messages by id, oldest first.
    messages: dict[int, Message] = field(default_factory=dict)
    #: Events that no message carries yet.
    pending: deque[JobEvent] = field(default_factory=deque)
    #: Request ids of the jobs that ``pending`` offers.
    pending_offers: set[int] = field(default_factory=set)
    #: Called when an event arrives or the session ends; each held poll has one.
    waiters: set[Callable[[], None]] = field(default_factory=set)

    def add(self, event: JobEvent) -> None:
        self.pending.append(event)
        if event.type == "JobAvailable":
            self.pending_offers.add(event.job.request_id)
        self.wake()

    def wake(self) -> None:
        """Let all held polls look again."""
        for waiter in tuple(self.waiters):
            waiter()

    def next_after(self, last_id: int, statistics: Callable[[], dict[str, int]]) -> Message | None:
        """The oldest undeleted message whose id is above ``last_id``; a new one is packed when there is none."""
        for message_id, message in self.messages.items():
            if message_id > last_id:
                return message
        events: list[dict[str, object]] = []
        while self.pending and len(events) < MAX_JOB_MESSAGES:
            event = self.pending.popleft()
            if event.type == "JobAvailable":
                self.pending_offers.discard(event.job.request_id)
            if not event.is_void():
                events.append(event.fields)
        if not events:
            return None
        message = Message(self.next_id, msgspec.json.encode(events).decode(), statistics())
        self.next_id += 1
        self.messages[message.id] = message
        return message if message.id > last_id else None

    def delete(self, message_id: int) -> bool:
        """Forget a message for good. Tells whether there was one."""
        return self.messages.pop(message_id, None) is not None
