"""Faults on demand and by seed: what real services do now and then, brought about when a test wants it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import StrEnum
from random import Random

import msgspec

__all__ = ["ANYWHERE", "Fault", "FaultKind", "Faults"]


class FaultKind(StrEnum):
    """What goes wrong. The first group can happen on every call, the others where their comment says."""

    #: Answer ``status`` without acting; with a typed exception when ``exception`` names one.
    STATUS = "status"
    #: Act ``seconds`` later.
    DELAY = "delay"
    #: Never act, never answer.
    HANG = "hang"
    #: Close the connection without acting.
    DROP_BEFORE = "drop_before"
    #: Act, and close the connection instead of answering.
    DROP_AFTER = "drop_after"
    #: Act, and answer with the right status and no body.
    EMPTY_BODY = "empty_body"
    #: Act, and answer with the right status and a page of HTML.
    HTML_BODY = "html_body"
    #: The token that the call uses expires just now: it is refused until its owner gets another one.
    EXPIRED_TOKEN = "expired_token"  # noqa: S105  # the name of a fault

    #: runners.delete: the runner counts as busy.
    BUSY_RUNNER = "busy_runner"
    #: messages.get, messages.delete, jobs.acquire, sessions.refresh: the session is gone.
    EVICTED_SESSION = "evicted_session"
    #: sessions.create, sessions.refresh: an answer without a queue URL.
    NO_QUEUE_URL = "no_queue_url"
    #: sessions.create, messages.get: statistics of an earlier moment.
    STALE_STATISTICS = "stale_statistics"
    #: sessions.create, messages.get: ``amount`` assigned jobs too many.
    INFLATED_STATISTICS = "inflated_statistics"
    #: messages.get: a message is dropped, and never seen by anyone.
    LOST_MESSAGE = "lost_message"
    #: messages.get: a message whose body is not JSON. It is in order when it is asked for again.
    UNDECODABLE_MESSAGE = "undecodable_message"
    #: messages.get: a job is offered that is not to be had.
    STALE_OFFER = "stale_offer"
    #: messages.get: a job that still runs is reported as completed.
    FALSE_COMPLETION = "false_completion"
    #: jit_config.generate: the runner will connect and wait, and never be given a job.
    STARVED_RUNNER = "starved_runner"
    #: runner.connect: the runner program is told that its version is deprecated.
    OUTDATED_RUNNER = "outdated_runner"


#: The kinds that can happen on every call.
ANYWHERE = frozenset(
    {
        FaultKind.STATUS,
        FaultKind.DELAY,
        FaultKind.HANG,
        FaultKind.DROP_BEFORE,
        FaultKind.DROP_AFTER,
        FaultKind.EMPTY_BODY,
        FaultKind.HTML_BODY,
        FaultKind.EXPIRED_TOKEN,
    }
)

_SESSION_CALLS = frozenset({"messages.get", "messages.delete", "jobs.acquire", "sessions.refresh"})

#: Where the other kinds can happen.
_PLACES: dict[FaultKind, frozenset[str]] = {
    FaultKind.BUSY_RUNNER: frozenset({"runners.delete"}),
    FaultKind.EVICTED_SESSION: _SESSION_CALLS,
    FaultKind.NO_QUEUE_URL: frozenset({"sessions.create", "sessions.refresh"}),
    FaultKind.STALE_STATISTICS: frozenset({"sessions.create", "messages.get"}),
    FaultKind.INFLATED_STATISTICS: frozenset({"sessions.create", "messages.get"}),
    FaultKind.LOST_MESSAGE: frozenset({"messages.get"}),
    FaultKind.UNDECODABLE_MESSAGE: frozenset({"messages.get"}),
    FaultKind.STALE_OFFER: frozenset({"messages.get"}),
    FaultKind.FALSE_COMPLETION: frozenset({"messages.get"}),
    FaultKind.STARVED_RUNNER: frozenset({"jit_config.generate"}),
    FaultKind.OUTDATED_RUNNER: frozenset({"runner.connect"}),
}


def _service_calls(operation: str) -> frozenset[str]:
    """``operation`` alone, unless it is a call that real clients of the service never make."""
    return frozenset() if operation.startswith(("runner.", "admin.")) else frozenset({operation})


_RANGES = (
    ("scale_set_id", 0, math.inf),
    ("times", 1, math.inf),
    ("after", 0, math.inf),
    ("probability", 0.0, 1.0),
    ("status", 200, 599),
    ("retry_after", -1, math.inf),
    ("seconds", 0.0, math.inf),
    ("amount", 0, math.inf),
)


class Fault(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One fault, or one source of faults. Raises ``ValueError`` for a field that is out of its range."""

    kind: FaultKind
    #: Which call it happens on (``jit_config.generate``); empty: every call of the service where the kind makes sense.
    #: The runner program's calls (``runner.*``) and the administrator's (``admin.*``) must be named to be met.
    operation: str = ""
    #: Only calls that concern this scale set; 0: all.
    scale_set_id: int = 0
    #: How often it happens; ``None``: without end.
    times: int | None = 1
    #: How many calls that it could have met pass unharmed first.
    after: int = 0
    #: How likely it meets a call, drawn from the injected randomness.
    probability: float = 1.0
    status: int = 500
    exception: str = ""
    #: Seconds in a ``Retry-After`` header; negative: no such header.
    retry_after: int = -1
    seconds: float = 1.0
    amount: int = 10

    def __post_init__(self) -> None:
        for name, least, most in _RANGES:
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                limits = f"at least {least}" if most == math.inf else f"from {least} to {most}"
                raise ValueError(f"{name} must be {limits}, not {value}")


class Faults:
    """The faults that are to happen, oldest first. A fault that is used up is forgotten."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._faults: list[Fault] = []
        #: The calls that there are; empty: faults may name any.
        self.operations: frozenset[str] = frozenset()
        #: How often each kind has happened.
        self.happened: dict[FaultKind, int] = {}

    def add(self, fault: Fault) -> Fault:
        """Raises ``ValueError`` for an operation that doesn't exist, and for a kind that can't happen on it."""
        if self.operations and fault.operation and fault.operation not in self.operations:
            known = ", ".join(sorted(self.operations))
            raise ValueError(f"{fault.operation!r} is not an operation; there are: {known}")
        if fault.kind is FaultKind.EXPIRED_TOKEN and fault.operation.startswith(("runner.", "admin.")):
            raise ValueError(f"{fault.kind} can't happen on {fault.operation}: its token does not expire")
        places = _PLACES.get(fault.kind)
        if places is not None and fault.operation and fault.operation not in places:
            raise ValueError(f"{fault.kind} can't happen on {fault.operation}, only on {', '.join(sorted(places))}")
        self._faults.append(fault)
        return fault

    def add_random(self, rate: float, kinds: Iterable[FaultKind] = FaultKind) -> None:
        """Let each of ``kinds`` happen without end, with probability ``rate`` for every call that it can meet."""
        for kind in kinds:
            self.add(Fault(kind=kind, times=None, probability=rate))

    def clear(self) -> None:
        """From now on nothing goes wrong."""
        self._faults.clear()

    def pending(self) -> list[Fault]:
        return list(self._faults)

    def anywhere(self, operation: str, scale_set_id: int) -> list[Fault]:
        """The faults that happen to this call, of the kinds that can happen on every call."""
        if not self._faults:
            return []
        return [
            fault
            for fault in tuple(self._faults)
            if fault.kind in ANYWHERE and self._meets(fault, operation, scale_set_id)
        ]

    def happens(self, kind: FaultKind, operation: str, scale_set_id: int) -> Fault | None:
        """Asked at the place where ``kind`` would make a difference: whether it happens to this call."""
        if self._faults:
            for fault in tuple(self._faults):
                if fault.kind is kind and self._meets(fault, operation, scale_set_id):
                    return fault
        return None

    def _meets(self, fault: Fault, operation: str, scale_set_id: int) -> bool:
        if fault.operation:
            if fault.operation != operation:
                return False
        elif operation not in _PLACES.get(fault.kind, _service_calls(operation)):
            return False
        if fault.scale_set_id not in (0, scale_set_id):
            return False
        if fault.after > 0:
            fault.after -= 1
            return False
        if fault.probability < 1.0 and self._random.random() >= fault.probability:
            return False
        if fault.times is not None:
            fault.times -= 1
            if fault.times <= 0:
                self._faults.remove(fault)
        self.happened[fault.kind] = self.happened.get(fault.kind, 0) + 1
        return True
