"""A runner without a program: what tests in virtual time have instead of processes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from runherd.simulator.errors import ServiceError
from runherd.simulator.faults import FaultKind
from runherd.simulator.model import Job, JobResult, Runner
from runherd.simulator.runner_pool import decode_jit_config
from runherd.simulator.simulator import Simulator

__all__ = ["ModelRunner"]


class ModelRunner:
    """One runner program, modelled. Either :meth:`run` it, or step through :meth:`connect`, :meth:`next_job`,
    :meth:`finish`; :meth:`crash` is a SIGKILL and :meth:`disconnect` a SIGTERM before there was a job.
    """

    def __init__(self, simulator: Simulator, jit_config: str, version: str = "2.330.0") -> None:
        """Raises ``ValueError`` for a configuration that isn't the simulator's."""
        self._simulator = simulator
        self._pool = simulator.service.runners
        self._id, self._token = decode_jit_config(jit_config)
        self._version = version
        self._runner: Runner | None = None
        self._changed = asyncio.Event()

    def connect(self) -> None:
        """Raises :class:`ServiceError` where the service refuses the program, as ``RunnerPool.connect`` says."""
        self._simulator.service.timers.run_due()
        runner = self._pool.by_id.get(self._id)
        if runner is not None and self._simulator.faults.happens(
            FaultKind.OUTDATED_RUNNER, "runner.connect", runner.scale_set.id
        ):
            raise self._pool.outdated(runner, self._version)
        self._runner = self._pool.connect(self._id, self._token, self._version, self._changed.set)
        self._pool.attend(self._runner)

    async def next_job(self) -> Job:
        """Wait for the job. Raises :class:`ServiceError` 404 when the registration is removed meanwhile."""
        runner = self._connected()
        while runner.job is None:
            if runner.removed:
                raise ServiceError(404, "TaskAgentNotFoundException", f"Runner {runner.name} was removed.")
            await self._wait()
        return runner.job

    async def work(self, seconds: float) -> bool:
        """Let ``seconds`` of the job pass; ends early, and tells ``False``, when the job is canceled."""
        runner = self._connected()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while loop.time() < deadline:
            if runner.job is None or runner.job.cancel_requested:
                return False
            try:
                async with asyncio.timeout_at(deadline):
                    await self._wait()
            except TimeoutError:
                break
        return runner.job is not None and not runner.job.cancel_requested

    def finish(self, result: JobResult = JobResult.SUCCEEDED) -> None:
        """Report the job's end, which ends the registration too. Raises :class:`ServiceError` 404 without a job."""
        self._simulator.service.timers.run_due()
        self._pool.finish(self._connected(), result)
        self._leave()

    def disconnect(self) -> None:
        """End the connection. The registration stays, unless there is a job: then the runner is lost with it."""
        runner = self._leave()
        if runner is not None:
            self._pool.disconnect(runner)

    def crash(self) -> None:
        """End without a word. The service notices an idle runner's end at once, a busy one's after a while."""
        runner = self._leave()
        if runner is not None and runner.job is None:
            self._pool.disconnect(runner)

    async def run(
        self,
        *,
        result: JobResult = JobResult.SUCCEEDED,
        on_job: Callable[[Job], Awaitable[None]] | None = None,
    ) -> int:
        """Be the program from start to end; returns its exit code. Being cancelled is a crash.

        The job takes as long as it says (``Job.seconds``); ``on_job`` is awaited before.
        """
        try:
            self.connect()
            job = await self.next_job()
            if on_job is not None:
                await on_job(job)
            completed = await self.work(job.seconds)
            self.finish(result if completed else JobResult.CANCELED)
        except ServiceError as error:
            self.crash()
            return 7 if error.status == 426 else 1
        except asyncio.CancelledError:
            self.crash()
            raise
        return 0

    def _leave(self) -> Runner | None:
        runner, self._runner = self._runner, None
        if runner is not None:
            self._pool.leave(runner)
        return runner

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _connected(self) -> Runner:
        if self._runner is None:
            raise RuntimeError("the runner isn't connected; call connect() first")
        return self._runner
