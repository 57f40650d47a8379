"""A manager in a process of its own: ``python -m tests.runtime.manager_process`` with a kubeconfig and an identity.

While it leads, it writes its name into every config map of a namespace that is labelled ``work``, again and again.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path
from random import SystemRandom

import structlog

from runherd.api.core import CONFIG_MAPS
from runherd.kube.client import Client
from runherd.kube.config import load_kubeconfig
from runherd.kube.connection import connect, open_transport
from runherd.kube.limiter import WriteLimiter
from runherd.kube.patch import MergePatch
from runherd.runtime.cache import Cache
from runherd.runtime.controller import Controller
from runherd.runtime.leader_election import LeaderElectionConfig, LeaderElector
from runherd.runtime.logging import configure_logging
from runherd.runtime.manager import Manager
from runherd.runtime.metrics import Metrics
from runherd.runtime.rate_limiter import rate_limiter
from runherd.runtime.reconciler import Result
from runherd.runtime.request import Request
from runherd.runtime.write_gate import GatedTransport, LeadershipLostError, WriteGate, end_if_continued_too_late
from runherd.wire.clock import SystemClock

LEASE = "manager-process"


class Writer:
    """Counts in a config map, in two writes with a pause between them, and signs both."""

    def __init__(self, manager: Manager, identity: str, pause: float) -> None:
        self._manager = manager
        self._identity = identity
        self._pause = pause

    async def reconcile(self, request: Request) -> Result | None:
        known = self._manager.cache.get(CONFIG_MAPS, request.name, request.namespace)
        if known is None or "work" not in known.metadata.labels:
            return None
        count = str(int(known.data.get("count", "0")) + 1)
        await self._write(request, begun=count)
        await asyncio.sleep(self._pause)
        await self._write(request, count=count)
        return Result(requeue_after=0.005)

    async def _write(self, request: Request, **data: str) -> None:
        patch = MergePatch({"data": {**data, "by": self._identity}})
        await self._manager.client.patch(
            CONFIG_MAPS, request.name, request.namespace, patch=patch, field_manager=self._identity
        )


async def run(kubeconfig: Path, namespace: str, identity: str, pause: float) -> None:
    clock, random, metrics = SystemClock(), SystemRandom(), Metrics()
    config = load_kubeconfig(environment={}, home=None, kubeconfig=kubeconfig)
    gate = WriteGate(clock)
    client = Client(
        GatedTransport(open_transport(config, clock=clock), gate),
        config.server,
        limiter=WriteLimiter(),
        clock=clock,
        random=random,
        observer=metrics.rest_client(),
    )
    elector = LeaderElector(
        connect(config, limiter=None, clock=clock, random=random),
        LeaderElectionConfig(LEASE, namespace, identity, lease_duration=3, renew_deadline=2.0, retry_period=0.3),
        gate,
        clock=clock,
        random=random,
        metrics=metrics,
    )
    manager = Manager(client, Cache(client, random=random, namespaces=[namespace]), elector=elector)
    controller = Controller(
        "configmap",
        Writer(manager, identity, pause),
        rate_limiter=rate_limiter(),
        metrics=metrics,
        random=random,
        max_concurrent_reconciles=4,
    )
    manager.add_controller(controller.for_(CONFIG_MAPS))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, manager.stop)
    end_if_continued_too_late(gate)
    await manager.run()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--identity", required=True)
    parser.add_argument("--pause", type=float, default=0.0)
    options = parser.parse_args()
    configure_logging(SystemClock(), level="info", format_="json")
    try:
        asyncio.run(run(options.kubeconfig, options.namespace, options.identity, options.pause))
    except LeadershipLostError as error:
        structlog.get_logger("main").info("exiting", error=str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
