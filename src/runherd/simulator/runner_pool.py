"""Runner registrations and what becomes of them (4.1, 4.2): registered, connected, busy, gone."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import partial
from random import Random

import msgspec

from runherd.simulator.errors import ServiceError
from runherd.simulator.job_queue import JobQueue
from runherd.simulator.ledger import Ledger
from runherd.simulator.model import JobResult, Runner, ScaleSet, Scope
from runherd.simulator.settings import Settings
from runherd.simulator.timers import Timers

__all__ = ["RunnerPool", "decode_jit_config", "encode_jit_config"]


def encode_jit_config(runner: Runner, url: str) -> str:
    """The opaque text that the runner program takes. ``url`` is where the program finds the service."""
    content = {
        "url": url,
        "runnerId": runner.id,
        "runnerName": runner.name,
        "token": runner.token,
        "workFolder": runner.work_folder,
    }
    return base64.b64encode(msgspec.json.encode(content)).decode()


def decode_jit_config(encoded: str) -> tuple[int, str]:
    """The runner's id and its secret. Raises ``ValueError`` when ``encoded`` is none of ours."""
    try:
        content = msgspec.json.decode(base64.b64decode(encoded, validate=True), type=dict)
        return int(content["runnerId"]), str(content["token"])
    except (KeyError, TypeError, ValueError, msgspec.DecodeError) as error:
        raise ValueError("not a JIT configuration of this service") from error


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in text.split("."))


class RunnerPool:
    """All registrations. Methods that a runner's own program calls are named after what it does."""

    def __init__(self, settings: Settings, timers: Timers, random: Random, ledger: Ledger) -> None:
        self._settings = settings
        self._timers = timers
        self._random = random
        self._ledger = ledger
        self._next_id = 1
        self.by_id: dict[int, Runner] = {}
        self._by_name: dict[tuple[Scope, str], Runner] = {}
        # Runners that are gone, by id: what their configurations may no longer do. Oldest first, bounded.
        self._gone: dict[int, Runner] = {}
        self.jobs: JobQueue

    def register(self, scale_set: ScaleSet, name: str, work_folder: str) -> Runner:
        """Make a registration. Raises 409 ``TaskAgentExistsException`` when the name is taken."""
        if not name:
            raise ServiceError(400, "VssServiceException", "A runner needs a name.")
        key = (scale_set.scope, name.lower())
        if key in self._by_name:
            raise ServiceError(409, "TaskAgentExistsException", f"A runner exists with the same name {name}.")
        runner = Runner(
            id=self._next_id,
            name=name,
            scale_set=scale_set,
            token=f"{self._random.getrandbits(160):040x}",
            work_folder=work_folder or "_work",
            registered_at=self._timers.time(),
        )
        self._next_id += 1
        self.by_id[runner.id] = runner
        self._by_name[key] = runner
        scale_set.runners[runner.id] = runner
        self._ledger.registered(runner)
        self._expire_when_offline(runner)
        return runner

    def find(self, scope: Scope, name: str) -> Runner | None:
        """The registration of that name, whatever its letters' case."""
        return self._by_name.get((scope, name.lower()))

    def get(self, scope: Scope, runner_id: int) -> Runner:
        """Raises 404 ``TaskAgentNotFoundException``."""
        runner = self.by_id.get(runner_id)
        if runner is None or runner.scale_set.scope != scope:
            raise ServiceError(404, "TaskAgentNotFoundException", f"Runner {runner_id} not found.")
        return runner

    def remove(self, scope: Scope, runner_id: int) -> None:
        """Remove a registration at a client's request. Refused while the runner has a job."""
        try:
            runner = self.get(scope, runner_id)
        except ServiceError:
            if self._settings.gone_runner_status == 204:
                return
            raise
        if runner.job is not None:
            raise self.still_running(runner)
        self.release(runner, "removed by a client")

    def still_running(self, runner: Runner) -> ServiceError:
        """The refusal to remove a busy runner."""
        self._ledger.record("removal_refused", runner, runner.job)
        return ServiceError(
            self._settings.busy_runner_status,
            "TaskAgentJobStillRunningException",
            f"Runner {runner.name} is currently running a job and cannot be deleted.",
        )

    def release(self, runner: Runner, by: str) -> None:
        """End a registration. Ending it twice changes nothing."""
        if runner.removed:
            return
        runner.removed = True
        self._cancel_timer(runner)
        self._ledger.removed(runner, by)
        del self.by_id[runner.id]
        del self._by_name[(runner.scale_set.scope, runner.name.lower())]
        runner.scale_set.runners.pop(runner.id, None)
        runner.scale_set.idle.pop(runner.id, None)
        self._gone[runner.id] = runner
        if len(self._gone) > 50_000:
            del self._gone[next(iter(self._gone))]
        if runner.wake is not None:
            runner.wake()

    def connect(self, runner_id: int, token: str, version: str = "", wake: Callable[[], None] | None = None) -> Runner:
        """A runner's program comes with its JIT configuration.

        Raises 401 for a configuration that isn't ours, 404 for one whose registration was removed, 409 for one that
        is in use or had a job, 426 (``TaskAgentVersionNotSupportedException``) for an outdated program.
        """
        runner = self.by_id.get(runner_id) or self._gone.get(runner_id)
        if runner is None or runner.token != token:
            raise ServiceError(401, "VssUnauthorizedException", "The configuration is not of this service.")
        if runner.had_job:
            self._ledger.used_twice(runner, "its runner had a job already")
            raise ServiceError(409, "TaskAgentSessionConflictException", f"Runner {runner.name} had its job already.")
        if runner.removed:
            self._ledger.record("refused", runner, None, "removed")
            raise ServiceError(404, "TaskAgentNotFoundException", f"Runner {runner.name} was removed.")
        if runner.connected:
            self._ledger.used_twice(runner, "its runner is connected")
            raise ServiceError(409, "TaskAgentSessionConflictException", f"Runner {runner.name} is connected already.")
        if _version(version) < _version(self._settings.minimum_runner_version):
            raise self.outdated(runner, version)
        runner.connected = True
        runner.connections += 1
        runner.version = version
        runner.wake = wake
        self._ledger.record("connected", runner)
        self.heard_of(runner)
        if not runner.starved:
            runner.scale_set.idle[runner.id] = runner
            self.jobs.dispatch(runner.scale_set)
        return runner

    def outdated(self, runner: Runner, version: str) -> ServiceError:
        """The refusal of an outdated runner program."""
        self._ledger.record("outdated", runner, None, version)
        return ServiceError(
            426,
            "TaskAgentVersionNotSupportedException",
            f"Runner version v{version or 'unknown'} is deprecated and cannot receive messages.",
        )

    def heard_of(self, runner: Runner) -> None:
        """A connected runner gave a sign of life."""
        if runner.removed:
            return
        self._cancel_timer(runner)
        if not runner.attended:
            runner.timer = self._timers.after(self._settings.lost_runner_timeout, partial(self.lose, runner))

    def attend(self, runner: Runner) -> None:
        """A call of the runner's program is held open now: until :meth:`leave` it can't get lost."""
        runner.attended += 1
        self.heard_of(runner)

    def leave(self, runner: Runner) -> None:
        """The call that :meth:`attend` spoke of is over."""
        runner.attended -= 1
        if runner.connected:
            self.heard_of(runner)

    def disconnect(self, runner: Runner) -> None:
        """The connection ended. With a job the runner counts as lost; without one it may come back."""
        if not runner.connected or runner.removed:
            return
        if runner.job is not None:
            self.lose(runner)
            return
        runner.connected = False
        runner.wake = None
        runner.scale_set.idle.pop(runner.id, None)
        self._ledger.record("disconnected", runner)
        self._expire_when_offline(runner)

    def lose(self, runner: Runner) -> None:
        """Nothing was heard of the runner for too long. A job that it has fails, and its registration ends."""
        if runner.job is None:
            self.disconnect(runner)
            return
        self._ledger.lost(runner)
        self.jobs.complete(runner.job, JobResult.CANCELED if runner.job.cancel_requested else JobResult.FAILED)

    def finish(self, runner: Runner, result: JobResult) -> None:
        """The runner reports its job's end, which also ends its registration. Raises 404 when it has no job."""
        if runner.job is None:
            raise ServiceError(404, "VssServiceException", f"Runner {runner.name} has no job (any more).")
        self.jobs.complete(runner.job, result)

    def _expire_when_offline(self, runner: Runner) -> None:
        self._cancel_timer(runner)
        expire = partial(self.release, runner, "offline for too long")
        runner.timer = self._timers.after(self._settings.offline_runner_expiry, expire)

    @staticmethod
    def _cancel_timer(runner: Runner) -> None:
        if runner.timer is not None:
            runner.timer.cancel()
            runner.timer = None
