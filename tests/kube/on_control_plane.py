"""Clients of a real API server, for the tests in this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from runherd.kube.client import Client
from runherd.kube.config import ClientConfig, load_kubeconfig
from runherd.kube.connection import connect
from runherd.kube.limiter import WriteLimiter
from runherd.kube.rest import RequestObserver
from runherd.kube.retry import RetryPolicy
from runherd.wire.clock import SystemClock
from runherd.wire.network import NetworkTransport
from runherd.wire.tls import client_context
from runherd.wire.transport import Transport
from tests.support.cutting_proxy import CuttingProxy

__all__ = ["client_of", "client_over", "client_through", "config_map", "config_of", "proxy_to", "running_pod"]


def config_of(kubeconfig: Path) -> ClientConfig:
    return load_kubeconfig(environment={}, home=None, kubeconfig=kubeconfig)


@asynccontextmanager
async def client_of(config: ClientConfig, observer: RequestObserver | None = None) -> AsyncIterator[Client]:
    client = connect(config, limiter=WriteLimiter(), clock=SystemClock(), random=Random(1), observer=observer)
    try:
        yield client
    finally:
        await client.close()


def proxy_to(kubeconfig: Path, port: int) -> CuttingProxy:
    """A proxy that speaks TLS to the server on ``port``, as the user of ``kubeconfig``, and HTTP to its clients."""
    config = config_of(kubeconfig)
    tls = client_context(
        roots=config.certificate_authority,
        system_roots=False,
        certificate=config.client_certificate,
        key=config.client_key,
    )
    return CuttingProxy("127.0.0.1", port, tls=tls)


def client_over(transport: Transport, url: str, retry: RetryPolicy | None = None) -> Client:
    return Client(transport, url, limiter=WriteLimiter(), clock=SystemClock(), random=Random(1), retry=retry)


@asynccontextmanager
async def client_through(proxy: CuttingProxy, retry: RetryPolicy) -> AsyncIterator[Client]:
    client = client_over(NetworkTransport(), proxy.url, retry)
    try:
        yield client
    finally:
        await client.close()


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"test": "yes"}}, "data": data}


def running_pod(name: str) -> dict[str, Any]:
    """A pod that no node will ever run."""
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "example.test/image"}], "terminationGracePeriodSeconds": 30},
    }
