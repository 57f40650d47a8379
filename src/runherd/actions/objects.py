"""What the service keeps: scale sets, runner groups, runners, sessions (``docs/spec/actions-service.md`` 3 to 5)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec

__all__ = [
    "DEFAULT_RUNNER_GROUP_ID",
    "ZERO_TIME",
    "JitRunnerConfig",
    "Label",
    "RunnerGroup",
    "RunnerReference",
    "RunnerScaleSet",
    "RunnerSetting",
    "ServiceObject",
    "Session",
    "Statistics",
    "Time",
]

#: The id of the runner group called "Default".
DEFAULT_RUNNER_GROUP_ID = 1

#: How the service writes "not yet".
ZERO_TIME = datetime(1, 1, 1, tzinfo=UTC)

#: A time always has a zone.
Time = Annotated[datetime, msgspec.Meta(tz=True)]


def _folded(name: str) -> str:
    """The name of a field in JSON, in lower case as :func:`runherd.actions.decoding.parse` leaves it."""
    return name.replace("_", "")


class ServiceObject(msgspec.Struct, frozen=True, kw_only=True, rename=_folded):
    """Base of all objects of the service: immutable; what the service leaves out has its zero value."""


class Label(ServiceObject, frozen=True, kw_only=True):
    """A label that jobs name in ``runs-on``."""

    name: str = ""
    type: str = "System"


class RunnerSetting(ServiceObject, frozen=True, kw_only=True):
    """How the runners of a scale set behave."""

    disable_update: bool = False


class Statistics(ServiceObject, frozen=True, kw_only=True):
    """Counts of a scale set; ``total_assigned_jobs`` (waiting for a runner plus running) is the one to scale by."""

    total_available_jobs: int = 0
    total_acquired_jobs: int = 0
    total_assigned_jobs: int = 0
    total_running_jobs: int = 0
    total_registered_runners: int = 0
    total_busy_runners: int = 0
    total_idle_runners: int = 0


class RunnerScaleSet(ServiceObject, frozen=True, kw_only=True):
    """A scale set. ``name`` is unique inside a runner group; ``id`` is 0 for one that isn't created yet."""

    id: int = 0
    name: str = ""
    runner_group_id: int = 0
    runner_group_name: str = ""
    labels: tuple[Label, ...] = ()
    runner_setting: RunnerSetting = RunnerSetting()
    created_on: Time = ZERO_TIME
    runner_jit_config_url: str = ""
    statistics: Statistics | None = None

    def body(self) -> bytes:
        """As it is sent: zero values left out, but for the two keys that are always there (3.1)."""
        sent: dict[str, Any] = {}
        if self.id:
            sent["id"] = self.id
        if self.name:
            sent["name"] = self.name
        if self.runner_group_id:
            sent["runnerGroupId"] = self.runner_group_id
        if self.runner_group_name:
            sent["runnerGroupName"] = self.runner_group_name
        if self.labels:
            sent["labels"] = [{"type": label.type or "System", "name": label.name} for label in self.labels]
        sent["RunnerSetting"] = {"disableUpdate": True} if self.runner_setting.disable_update else {}
        sent["createdOn"] = self.created_on
        return msgspec.json.encode(sent)


class RunnerGroup(ServiceObject, frozen=True, kw_only=True):
    """A runner group: who may use the runners in it is decided on GitHub."""

    id: int = 0
    name: str = ""
    size: int = 0
    is_default_group: bool = False


class RunnerReference(ServiceObject, frozen=True, kw_only=True):
    """A registered runner."""

    id: int = 0
    name: str = ""
    runner_scale_set_id: int = 0


class JitRunnerConfig(ServiceObject, frozen=True, kw_only=True):
    """A registration, and the (secret) configuration that one runner process starts with. ``repr`` hides the latter."""

    runner: RunnerReference = RunnerReference()
    encoded_jit_config: str = ""

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("runner", self.runner)]

    def __repr__(self) -> str:
        return f"JitRunnerConfig(runner={self.runner!r})"


class Session(ServiceObject, frozen=True, kw_only=True):
    """A message session as the service describes it. ``repr`` shows neither the queue's address nor its token."""

    session_id: UUID = UUID(int=0)
    owner_name: str = ""
    runner_scale_set: RunnerScaleSet | None = None
    message_queue_url: str = ""
    message_queue_access_token: str = ""
    statistics: Statistics | None = None

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in ("session_id", "owner_name", "statistics")]

    def __repr__(self) -> str:
        return f"Session({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"
