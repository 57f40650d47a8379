"""What really happened, written down as it happens, and what of it should not have happened.

Tests ask :meth:`Ledger.violations` at their end instead of trusting the state of the system that they test.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from runherd.simulator.model import Job, Runner

__all__ = ["Entry", "Ledger", "Violation", "ViolationKind"]


class ViolationKind(StrEnum):
    """What can go wrong in a way that a user would feel."""

    #: A job was given to a runner while another one had it, or after its end.
    JOB_STARTED_TWICE = "job_started_twice"
    #: A registration was taken away (with its scale set) from a runner that had a job.
    REMOVED_WHILE_BUSY = "removed_while_busy"
    #: A runner vanished while it had a job.
    LOST_WHILE_BUSY = "lost_while_busy"
    #: A JIT configuration was used while its runner was connected, or after its runner had a job.
    CONFIGURATION_USED_TWICE = "configuration_used_twice"
    #: A registration that nobody in the tested system knows of.
    OWNED_BY_NOBODY = "owned_by_nobody"


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that should not have happened."""

    kind: ViolationKind
    #: Seconds of the service's time.
    at: float
    runner: str
    job_id: str
    detail: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the ledger: ``event`` is a verb such as ``registered``, ``started``, ``removed``."""

    at: float
    event: str
    runner: str
    job_id: str
    detail: str


class Ledger:
    """Entries (the newest ``keep`` of them), counts by event, and all violations."""

    def __init__(self, time: Callable[[], float], keep: int = 100_000) -> None:
        self._time = time
        self.entries: deque[Entry] = deque(maxlen=keep)
        self.counts: dict[str, int] = {}
        self._violations: list[Violation] = []
        self._registered: dict[int, Runner] = {}
        # By request id: the runner that has the job, or None once the job has ended.
        self._holders: dict[int, str | None] = {}

    def record(self, event: str, runner: Runner | None = None, job: Job | None = None, detail: str = "") -> None:
        """Write one entry."""
        self.counts[event] = self.counts.get(event, 0) + 1
        name = runner.name if runner else ""
        self.entries.append(Entry(self._time(), event, name, job.job_id if job else "", detail))

    def registered(self, runner: Runner) -> None:
        self._registered[runner.id] = runner
        self.record("registered", runner)

    def removed(self, runner: Runner, by: str) -> None:
        """A registration ended: ``by`` says at whose request."""
        self._registered.pop(runner.id, None)
        self.record("removed", runner, runner.job, by)
        if runner.job is not None:
            self._violate(ViolationKind.REMOVED_WHILE_BUSY, runner, runner.job, by)

    def started(self, job: Job, runner: Runner) -> None:
        if job.request_id in self._holders:
            holder = self._holders[job.request_id]
            detail = f"{holder} has it" if holder else "it has ended already"
            self._violate(ViolationKind.JOB_STARTED_TWICE, runner, job, detail)
        self._holders[job.request_id] = runner.name
        self.record("started", runner, job)

    def completed(self, job: Job) -> None:
        self._holders[job.request_id] = None
        self.record("completed", job.runner, job, str(job.result))

    def lost(self, runner: Runner) -> None:
        self.record("lost", runner, runner.job)
        if runner.job is not None:
            self._violate(ViolationKind.LOST_WHILE_BUSY, runner, runner.job, "not heard of any more")

    def used_twice(self, runner: Runner, detail: str) -> None:
        self.record("refused", runner, runner.job, detail)
        self._violate(ViolationKind.CONFIGURATION_USED_TWICE, runner, runner.job, detail)

    def violations(self, *, owned: Collection[str] | None = None, ignore: Iterable[str] = ()) -> list[Violation]:
        """Everything that went wrong so far, oldest first.

        ``owned`` names the runners that the tested system knows of: every other registration is a violation.
        ``None`` leaves that question out. ``ignore`` names kinds that the test brings about itself.
        """
        ignored = set(ignore)
        found = [violation for violation in self._violations if violation.kind not in ignored]
        if owned is not None and ViolationKind.OWNED_BY_NOBODY not in ignored:
            found.extend(
                Violation(ViolationKind.OWNED_BY_NOBODY, self._time(), runner.name, "", f"id {runner.id}")
                for runner in self._registered.values()
                if runner.name not in owned
            )
        return found

    def _violate(self, kind: ViolationKind, runner: Runner, job: Job | None, detail: str) -> None:
        self._violations.append(Violation(kind, self._time(), runner.name, job.job_id if job else "", detail))
