"""Two managers in processes of their own, one lease, and a real API server."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from runherd.api.core import CONFIG_MAPS, LEASES, ConfigMap, Lease
from runherd.api.times import parse_micro_time
from runherd.kube.client import Client
from tests.controlplane.control_plane import ControlPlane
from tests.kube.on_control_plane import client_of, config_of
from tests.runtime.manager_process import LEASE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

ROOT = Path(__file__).parent.parent.parent


class Setting:
    """The namespace, what is written in it, and the processes that write."""

    def __init__(self, control_plane: ControlPlane, namespace: str, client: Client, logs: Path) -> None:
        self.namespace = namespace
        self.client = client
        #: Who wrote, in the order of the server's versions, with that version.
        self.writes: list[tuple[int, str]] = []
        self.maps: dict[str, ConfigMap] = {}
        self.lease: Lease | None = None
        self._kubeconfig = control_plane.admin_kubeconfig
        self._logs = logs
        self._changed = asyncio.Event()

    async def start(self, identity: str, *, pause: float = 0.0) -> asyncio.subprocess.Process:
        with (self._logs / f"{identity}.log").open("wb") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "tests.runtime.manager_process", "--kubeconfig", str(self._kubeconfig)),
                *("--namespace", self.namespace, "--identity", identity, "--pause", str(pause)),
                cwd=ROOT,
                stderr=log,
            )

    def log_of(self, identity: str) -> str:
        return (self._logs / f"{identity}.log").read_text()

    async def make_work(self, count: int = 8) -> None:
        for number in range(count):
            body = {"metadata": {"name": f"work-{number}", "labels": {"work": ""}}}
            await self.client.create(CONFIG_MAPS, body, self.namespace)

    async def until(self, condition: Callable[[], bool], within: float = 40.0) -> None:
        """Wait until ``condition`` holds of what was seen."""
        async with asyncio.timeout(within):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def writes_of(self, identity: str) -> list[int]:
        return [version for version, writer in self.writes if writer == identity]

    def leads(self, identity: str) -> bool:
        return self.lease is not None and self.lease.spec.holder_identity == identity

    async def follow_writes(self) -> None:
        async with self.client.watch(CONFIG_MAPS, self.namespace, send_initial_events=True) as events:
            async for event in events:
                if event.type in ("ADDED", "MODIFIED"):
                    self.maps[event.object.metadata.name] = event.object
                    if "by" in event.object.data:
                        self.writes.append((int(event.resource_version), event.object.data["by"]))
                self._changed.set()

    async def follow_lease(self) -> None:
        async with self.client.watch(LEASES, self.namespace, send_initial_events=True) as events:
            async for event in events:
                if event.type in ("ADDED", "MODIFIED") and event.object.metadata.name == LEASE:
                    self.lease = event.object
                self._changed.set()


@pytest.fixture
async def setting(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> AsyncIterator[Setting]:
    async with client_of(config_of(control_plane.admin_kubeconfig)) as client:
        setting = Setting(control_plane, namespace, client, tmp_path)
        followers = [asyncio.create_task(setting.follow_writes()), asyncio.create_task(setting.follow_lease())]
        yield setting
        for follower in followers:
            follower.cancel()
        await asyncio.wait(followers)


@asynccontextmanager
async def process(setting: Setting, identity: str, pause: float = 0.0) -> AsyncIterator[asyncio.subprocess.Process]:
    started = await setting.start(identity, pause=pause)
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
            await started.wait()


async def test_after_kill_9_the_other_takes_over_within_the_lease(setting: Setting) -> None:
    await setting.make_work()
    async with process(setting, "one") as one:
        await setting.until(lambda: len(setting.writes_of("one")) > 50)
        async with process(setting, "two"):
            await setting.until(lambda: '"waiting for leadership"' in setting.log_of("two"))
            one.kill()
            await one.wait()
            assert setting.lease is not None
            assert setting.leads("one")
            last_renewal = setting.lease.spec.renew_time
            await setting.until(lambda: setting.leads("two"))
            taken = setting.lease.spec.acquire_time
            assert last_renewal is not None
            assert taken is not None
            # Not before the lease ran out; and then at the next look at it, or the one after.
            waited = parse_micro_time(taken) - parse_micro_time(last_renewal)
            assert timedelta(seconds=2.9) < waited < timedelta(seconds=3 + 0.3 * 2.2 * 2 + 3)
            assert setting.lease.spec.lease_transitions == 1
            await setting.until(lambda: len(setting.writes_of("two")) > 50)
            assert max(setting.writes_of("one")) < min(setting.writes_of("two"))


@pytest.mark.parametrize("round_", range(3))
async def test_a_process_frozen_past_its_lease_makes_no_write_after_waking(setting: Setting, round_: int) -> None:
    await setting.make_work()
    async with process(setting, "one") as one, process(setting, "two") as two:
        await setting.until(lambda: any(len(setting.writes_of(who)) > 50 for who in ("one", "two")))
        first, frozen, second = ("one", one, "two") if setting.leads("one") else ("two", two, "one")
        # In the middle of its writes, several of which are always under way.
        os.kill(frozen.pid, signal.SIGSTOP)
        await setting.until(lambda: len(setting.writes_of(second)) > 50)
        os.kill(frozen.pid, signal.SIGCONT)
        async with asyncio.timeout(30):
            assert await frozen.wait() == 1
        assert "continued after the leader's lease ran out" in setting.log_of(first)
        written = len(setting.writes_of(second))
        await setting.until(lambda: len(setting.writes_of(second)) > written + 50)
        assert max(setting.writes_of(first)) < min(setting.writes_of(second))


async def test_a_process_frozen_for_less_than_its_lease_goes_on(setting: Setting) -> None:
    await setting.make_work()
    async with process(setting, "one") as one:
        await setting.until(lambda: len(setting.writes_of("one")) > 50)
        os.kill(one.pid, signal.SIGSTOP)
        await setting.client.create(CONFIG_MAPS, {"metadata": {"name": "meanwhile"}}, setting.namespace)
        os.kill(one.pid, signal.SIGCONT)
        written = len(setting.writes_of("one"))
        await setting.until(lambda: len(setting.writes_of("one")) > written + 50)
        assert one.returncode is None


async def test_sigterm_finishes_what_runs_releases_the_lease_and_exits_0(setting: Setting) -> None:
    await setting.make_work(2)
    async with process(setting, "one", pause=2.0) as one:
        await setting.until(lambda: sum("begun" in found.data for found in setting.maps.values()) == 2)
        one.send_signal(signal.SIGTERM)
        async with asyncio.timeout(10):
            assert await one.wait() == 0
        await setting.until(lambda: not setting.leads("one"))
        assert setting.lease is not None
        assert setting.lease.spec.holder_identity == ""
        await setting.until(lambda: sum("count" in found.data for found in setting.maps.values()) == 2)
        for found in setting.maps.values():
            if "work" in found.metadata.labels:
                assert found.data == {"begun": "1", "by": "one", "count": "1"}
        async with process(setting, "two"):
            await setting.until(lambda: setting.leads("two"))
