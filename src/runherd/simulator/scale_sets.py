"""Runner groups and runner scale sets (3)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec

from runherd.simulator.errors import ServiceError, bad_request
from runherd.simulator.job_queue import JobQueue
from runherd.simulator.message_queue import MessageQueue, rfc3339
from runherd.simulator.model import RunnerGroup, ScaleSet, Scope
from runherd.simulator.runner_pool import RunnerPool
from runherd.simulator.sessions import Sessions
from runherd.simulator.settings import Settings

__all__ = ["LabelInput", "ScaleSetInput", "ScaleSets"]


class LabelInput(msgspec.Struct):
    """A label as clients send it."""

    name: str = ""
    type: str = "System"


class _RunnerSettingInput(msgspec.Struct, rename={"disable_update": "disableUpdate"}):
    disable_update: bool = False


class ScaleSetInput(msgspec.Struct, kw_only=True, rename="camel"):
    """What clients send to create or change a scale set; absent and zero values mean "not supplied" (3.2).

    ``createdOn`` and statistics are the service's own, and ignored.
    """

    name: str = ""
    runner_group_id: int = 0
    labels: list[LabelInput] | None = None
    runner_setting: _RunnerSettingInput | None = msgspec.field(name="RunnerSetting", default=None)


class ScaleSets:
    """All scopes' groups and scale sets. Ids of scale sets are unique in the whole service."""

    def __init__(self, settings: Settings, now: Callable[[], datetime]) -> None:
        self._settings = settings
        self._now = now
        self._next_id = 1
        self._groups: dict[Scope, list[RunnerGroup]] = {}
        self.by_id: dict[int, ScaleSet] = {}
        self.jobs: JobQueue
        self.runners: RunnerPool
        self.sessions: Sessions

    def groups(self, scope: Scope) -> list[RunnerGroup]:
        """The scope's runner groups; the first one is its default group."""
        return self._groups.setdefault(scope, [RunnerGroup(1, "Default", is_default=True)])

    def add_group(self, scope: Scope, name: str) -> RunnerGroup:
        """Make a runner group, as an administrator does in the service's user interface."""
        groups = self.groups(scope)
        group = RunnerGroup(groups[-1].id + 1, name)
        groups.append(group)
        return group

    def list_group(self, scope: Scope, group_id: int, name: str | None = None) -> list[ScaleSet]:
        """The scale sets of a group (0: of all groups), of that name if one is given."""
        return [
            scale_set
            for scale_set in self.by_id.values()
            if scale_set.scope == scope
            and group_id in (0, scale_set.group.id)
            and (name is None or scale_set.name.lower() == name.lower())
        ]

    def get(self, scope: Scope, scale_set_id: int) -> ScaleSet:
        """Raises 404 ``RunnerScaleSetNotFoundException``."""
        scale_set = self.by_id.get(scale_set_id)
        if scale_set is None or scale_set.scope != scope:
            raise ServiceError(
                404, "RunnerScaleSetNotFoundException", f"No runner scale set found with identifier {scale_set_id}."
            )
        return scale_set

    def create(self, scope: Scope, given: ScaleSetInput) -> ScaleSet:
        """Raises 400 when the name is missing or taken (``RunnerScaleSetExistsException``), or the group unknown."""
        if not given.name:
            raise bad_request("A runner scale set needs a name.")
        group = self._group(scope, given.runner_group_id or 1)
        self._refuse_duplicate(scope, group, given.name)
        scale_set = ScaleSet(
            id=self._next_id,
            scope=scope,
            name=given.name,
            group=group,
            labels=self._labels(given),
            disable_update=given.runner_setting is not None and given.runner_setting.disable_update,
            created_on=self._now(),
            queue=MessageQueue(self._settings.first_message_id),
        )
        self._next_id += 1
        self.by_id[scale_set.id] = scale_set
        self.jobs.scale_set_changed(scale_set)
        return scale_set

    def update(self, scope: Scope, scale_set_id: int, given: ScaleSetInput) -> ScaleSet:
        """Change what is supplied. Raises what :meth:`get` and :meth:`create` raise."""
        scale_set = self.get(scope, scale_set_id)
        group = self._group(scope, given.runner_group_id) if given.runner_group_id else scale_set.group
        name = given.name or scale_set.name
        if (group, name.lower()) != (scale_set.group, scale_set.name.lower()):
            self._refuse_duplicate(scope, group, name)
        scale_set.name, scale_set.group = name, group
        if given.labels:
            scale_set.labels = self._labels(given)
        if given.runner_setting is not None and given.runner_setting.disable_update:
            scale_set.disable_update = True
        self.jobs.scale_set_changed(scale_set)
        return scale_set

    def delete(self, scope: Scope, scale_set_id: int) -> None:
        """Delete a scale set with its queue, session and runners (3.3). Raises 404."""
        scale_set = self.get(scope, scale_set_id)
        del self.by_id[scale_set_id]
        scale_set.deleted = True
        if scale_set.session is not None:
            self.sessions.end(scale_set, scale_set.session, "deleted")
        for runner in list(scale_set.runners.values()):
            self.runners.release(runner, "scale set deleted")
        self.jobs.drop_scale_set(scale_set)

    def statistics(self, scale_set: ScaleSet) -> dict[str, int]:
        """The counts of 5.4, always counted anew: assigned = waiting + running, registered = busy + idle."""
        running = len(scale_set.running)
        registered = len(scale_set.runners)
        return {
            "totalAvailableJobs": self.jobs.available(scale_set),
            "totalAcquiredJobs": len(scale_set.acquired),
            "totalAssignedJobs": len(scale_set.waiting) + running,
            "totalRunningJobs": running,
            "totalRegisteredRunners": registered,
            "totalBusyRunners": running,
            "totalIdleRunners": registered - running,
        }

    def to_json(self, scale_set: ScaleSet, service_url: str) -> dict[str, object]:
        """A scale set as the service shows it (3.2)."""
        return {
            "id": scale_set.id,
            "name": scale_set.name,
            "runnerGroupId": scale_set.group.id,
            "runnerGroupName": scale_set.group.name,
            "labels": scale_set.labels,
            "runnerSetting": {"disableUpdate": scale_set.disable_update, "ephemeral": True},
            "createdOn": rfc3339(scale_set.created_on),
            "runnerJitConfigUrl": f"{service_url}_apis/runtime/runnerscalesets/{scale_set.id}/generatejitconfig",
            "statistics": self.statistics(scale_set),
        }

    def _group(self, scope: Scope, group_id: int) -> RunnerGroup:
        for group in self.groups(scope):
            if group.id == group_id:
                return group
        raise ServiceError(400, "RunnerGroupNotFoundException", f"No runner group found with identifier {group_id}.")

    def _refuse_duplicate(self, scope: Scope, group: RunnerGroup, name: str) -> None:
        if self.list_group(scope, group.id, name):
            raise ServiceError(
                400, "RunnerScaleSetExistsException", f"A runner scale set {name} exists in runner group {group.name}."
            )

    def _labels(self, given: ScaleSetInput) -> list[dict[str, str]]:
        labels = given.labels if given.labels and self._settings.custom_labels else [LabelInput(given.name)]
        return [{"type": label.type or "System", "name": label.name} for label in labels]
