"""What can be set on the simulated service. All durations are seconds."""

from __future__ import annotations

from enum import StrEnum

import msgspec

__all__ = ["AssignmentMode", "Settings"]


class AssignmentMode(StrEnum):
    """How a job finds its scale set (``docs/spec/actions-service.md`` 5.5)."""

    #: github.com: jobs are assigned by the service, up to the last ``X-ScaleSetMaxCapacity``.
    AUTOMATIC = "automatic"
    #: GitHub Enterprise Server: jobs are offered with ``JobAvailable`` and belong to the scale set that acquires them.
    ACQUIRE = "acquire"


class Settings(msgspec.Struct, kw_only=True):
    """Behaviour of the service. May be changed at any time; a running timer keeps the duration it was set with."""

    mode: AssignmentMode = AssignmentMode.AUTOMATIC
    #: How long a poll without a message is held before it is answered 202.
    poll_hold: float = 50.0
    #: A session that wasn't polled, refreshed or used for this long is dropped.
    session_expiry: float = 90.0
    admin_token_lifetime: float = 3600.0
    queue_token_lifetime: float = 3000.0
    #: A job that no runner took within this time after its assignment is taken back ...
    assignment_timeout: float = 600.0
    #: ... and assigned anew after these delays, one for each time; after the last of them it ends as ``canceled``.
    reassign_delays: list[float] = msgspec.field(default_factory=lambda: [30.0, 60.0, 120.0])
    #: Time between a scale set's acquiring a job and the job's assignment.
    acquire_delay: float = 0.0
    #: An offered job that nobody acquired is offered again after this long (its offer may have been lost).
    offer_repeat: float = 60.0
    #: A runner with a job that isn't heard of for this long is given up, and its job ends as ``failed``.
    lost_runner_timeout: float = 60.0
    #: A runner that was told to cancel and doesn't report for this long is given up, and its job ends as ``canceled``.
    cancel_timeout: float = 300.0
    #: A registered runner that isn't connected for this long is removed by the service itself.
    offline_runner_expiry: float = 86400.0
    #: Status for removing a runner that is gone: 204 and 404 are both seen in the field.
    gone_runner_status: int = 404
    #: Status for removing a busy runner: 400 or 409 (open question 1 of the specification).
    busy_runner_status: int = 400
    #: Whether scale sets may have labels besides their name (3.3; GHES needs 3.18 and a feature flag).
    custom_labels: bool = True
    #: Runners that report an older version are told that theirs is deprecated. Empty: any version will do.
    minimum_runner_version: str = ""
    #: The first message id of every scale set's queue.
    first_message_id: int = 100000001
