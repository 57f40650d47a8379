"""The things that the service keeps: scopes, groups, scale sets, runners, sessions and jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runherd.simulator.message_queue import MessageQueue
    from runherd.simulator.timers import Timer

__all__ = ["Demand", "Job", "JobResult", "JobState", "Runner", "RunnerGroup", "ScaleSet", "Scope", "Session"]


@dataclass(frozen=True, slots=True)
class Scope:
    """What a config URL points at (1.1). Exactly one of the three shapes; compare with :meth:`of`."""

    enterprise: str = ""
    organization: str = ""
    repository: str = ""

    @classmethod
    def of(cls, path: str) -> Scope:
        """The scope that the path of a config URL names. Raises ``ValueError`` when it names none."""
        match [part.lower() for part in path.strip("/").split("/")]:
            case ["enterprises", enterprise] if enterprise:
                return cls(enterprise=enterprise)
            case [organization, repository] if organization and repository:
                return cls(organization=organization, repository=repository)
            case [organization] if organization:
                return cls(organization=organization)
        raise ValueError(f"{path!r} names no enterprise, organization or repository")

    def covers(self, owner: str, repository: str) -> bool:
        """Whether jobs of the repository ``owner/repository`` may run on runners of this scope.

        An enterprise covers every organization: which ones belong to it isn't simulated.
        """
        if self.enterprise:
            return True
        return self.organization == owner.lower() and self.repository in ("", repository.lower())

    def __str__(self) -> str:
        if self.enterprise:
            return f"enterprises/{self.enterprise}"
        return f"{self.organization}/{self.repository}" if self.repository else self.organization


@dataclass(slots=True, eq=False)
class RunnerGroup:
    """A runner group of one scope. Id 1 is the scope's default group."""

    id: int
    name: str
    is_default: bool = False


class JobState(StrEnum):
    """Where a job is on its way. ``waiting`` jobs count as available in statistics."""

    WAITING = "waiting"
    ACQUIRED = "acquired"
    ASSIGNED = "assigned"
    RUNNING = "running"
    BACKOFF = "backoff"
    COMPLETED = "completed"


class JobResult(StrEnum):
    """How a job ended, in the words of ``JobCompleted`` messages."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"


@dataclass(frozen=True, slots=True)
class Demand:
    """What a job asks of a scale set: jobs of equal demand are interchangeable for assignment."""

    owner: str
    repository: str
    labels: frozenset[str]
    group: str = ""


@dataclass(slots=True, eq=False)
class Job:
    """One job as the service queues it. ``payload`` is what the runner program gets; the service never looks inside."""

    request_id: int
    job_id: str
    name: str
    owner: str
    repository: str
    workflow_ref: str
    run_id: int
    event: str
    labels: tuple[str, ...]
    demand: Demand
    queue_time: datetime
    #: Seconds after which the service cancels it, counted from its start.
    timeout: float
    #: How long a model runner pretends to work on it.
    seconds: float = 0.0
    payload: dict[str, object] = field(default_factory=dict, repr=False)
    #: Told once, with the job, when it is completed.
    on_completed: Callable[[Job], None] | None = field(default=None, repr=False)
    state: JobState = JobState.WAITING
    scale_set: ScaleSet | None = field(default=None, repr=False)
    runner: Runner | None = field(default=None, repr=False)
    runner_id: int = 0
    runner_name: str = ""
    assign_time: datetime | None = None
    runner_assign_time: datetime | None = None
    finish_time: datetime | None = None
    result: JobResult | None = None
    cancel_requested: bool = False
    #: How many times an assignment was taken back because no runner took the job.
    timeouts: int = 0
    #: What the runner last reported about the job's steps.
    steps: list[dict[str, object]] = field(default_factory=list, repr=False)
    timer: Timer | None = field(default=None, repr=False)


@dataclass(slots=True, eq=False)
class Runner:
    """One registration. It lives from the JIT configuration to its job's end, or to its removal."""

    id: int
    name: str
    scale_set: ScaleSet = field(repr=False)
    #: The secret inside its JIT configuration.
    token: str = field(repr=False)
    work_folder: str
    registered_at: float
    connected: bool = False
    #: How often it was connected: a program whose number is not the latest has been replaced.
    connections: int = 0
    had_job: bool = False
    removed: bool = False
    #: Set by a fault: it connects and waits, and never gets a job.
    starved: bool = False
    #: Calls that its program holds open just now: it can't get lost meanwhile.
    attended: int = 0
    version: str = ""
    job: Job | None = field(default=None, repr=False)
    #: Called when something changed that the runner's program or model waits for.
    wake: Callable[[], None] | None = field(default=None, repr=False)
    timer: Timer | None = field(default=None, repr=False)

    @property
    def state(self) -> str:
        """``offline``, ``idle``, ``busy`` or ``removed``."""
        if self.removed:
            return "removed"
        if self.job is not None:
            return "busy"
        return "idle" if self.connected else "offline"


@dataclass(slots=True, eq=False)
class Session:
    """A scale set's message session."""

    id: str
    owner_name: str
    token: str = field(repr=False)
    token_expires: datetime
    last_used: float
    #: From the latest poll's ``X-ScaleSetMaxCapacity``; no jobs are assigned before the first poll.
    capacity: int = 0
    #: Polls that are being held just now: they keep the session alive.
    polls: int = 0
    ended: bool = False


@dataclass(slots=True, eq=False)
class ScaleSet:
    """A runner scale set, with the jobs and runners it has just now, each keyed by its id and in order of arrival."""

    id: int
    scope: Scope
    name: str
    group: RunnerGroup
    labels: list[dict[str, str]]
    disable_update: bool
    created_on: datetime
    queue: MessageQueue = field(repr=False)
    session: Session | None = None
    deleted: bool = False
    acquired: dict[int, Job] = field(default_factory=dict, repr=False)
    waiting: dict[int, Job] = field(default_factory=dict, repr=False)
    running: dict[int, Job] = field(default_factory=dict, repr=False)
    runners: dict[int, Runner] = field(default_factory=dict, repr=False)
    #: The statistics that were last sent to a client, for faults that repeat them.
    told_statistics: dict[str, int] | None = field(default=None, repr=False)
    #: Connected runners without a job that may get one.
    idle: dict[int, Runner] = field(default_factory=dict, repr=False)

    def label_names(self) -> frozenset[str]:
        """What ``runs-on`` may name: the labels and the scale set's own name, in lower case."""
        return frozenset([self.name.lower(), *(label["name"].lower() for label in self.labels)])

    def matches(self, demand: Demand) -> bool:
        """Whether jobs of ``demand`` may come here."""
        return (
            self.scope.covers(demand.owner, demand.repository)
            and demand.labels <= self.label_names()
            and demand.group in ("", self.group.name.lower())
        )

    def free_capacity(self) -> int:
        """How many more jobs the service may assign. Zero without a live session."""
        if self.session is None:
            return 0
        return self.session.capacity - len(self.acquired) - len(self.waiting) - len(self.running)
