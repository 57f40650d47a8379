"""The servers that the conformance suite runs on. What the real one does decides."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
import yaml

from runherd.local.apiserver.server import ApiServer
from runherd.local.apiserver.sqlite_journal import sqlite_store
from runherd.local.apiserver.store import Store
from runherd.wire.clock import SystemClock
from runherd.wire.in_process import InProcessTransport
from runherd.wire.network import NetworkTransport
from runherd.wire.server import Server
from runherd.wire.tls import client_context
from tests.conformance.api import GROUP, Api, definitions
from tests.controlplane.control_plane import ControlPlane

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(params=["memory", "sqlite", "http", pytest.param("real", marks=pytest.mark.control_plane)])
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Api]:
    """A client of each of the servers in turn, with a namespace of the test's own and the test kinds installed.

    The embedded one is called in process on a store in memory and in SQLite, and over HTTP on SQLite.
    """
    backend: str = request.param
    store = Store() if backend == "memory" else sqlite_store(tmp_path / "store", SystemClock())[0]
    if backend == "real":
        opened = _on_control_plane(request.getfixturevalue("control_plane_with_controllers"))
    elif backend == "http":
        opened = _over_http(store)
    else:
        opened = _in_process(store)
    async with opened as client:
        await _install(client)
        created = await client.create(
            "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "test-"}}
        )
        client.namespace = created["metadata"]["name"]
        if client.is_real:
            await client.until(client.core("serviceaccounts", "default"), lambda answer: answer.status == 200)
        yield client
        await client.call("DELETE", f"/api/v1/namespaces/{client.namespace}")


async def _install(api: Api) -> None:
    for definition in definitions():
        name = definition["metadata"]["name"]
        if (await api.call("GET", f"{_CRDS}/{name}")).status == 404:
            await api.create(_CRDS, definition)
    for definition in definitions():
        plural = definition["spec"]["names"]["plural"]
        await api.until(f"/apis/{GROUP}/v1/{plural}", lambda answer: answer.status == 200)


@asynccontextmanager
async def _embedded(store: Store) -> AsyncIterator[ApiServer]:
    server = ApiServer(store, random=Random(0))
    await server.start()
    try:
        yield server
    finally:
        await server.close()


@asynccontextmanager
async def _in_process(store: Store) -> AsyncIterator[Api]:
    async with _embedded(store) as server:
        transport = InProcessTransport(server.handle)
        yield Api(transport, "http://embedded")
        await transport.close()


@asynccontextmanager
async def _over_http(store: Store) -> AsyncIterator[Api]:
    async with _embedded(store) as server:
        listener = Server(server.handle, body_limit=server.body_limit, too_large=server.too_large)
        await listener.start()
        transport = NetworkTransport()
        yield Api(transport, listener.url)
        await transport.close()
        await listener.close()


@asynccontextmanager
async def _on_control_plane(control_plane: ControlPlane) -> AsyncIterator[Api]:
    user = yaml.safe_load(control_plane.admin_kubeconfig.read_text())["users"][0]["user"]
    certificate, key = (base64.b64decode(user[f"client-{what}-data"]) for what in ("certificate", "key"))
    tls = client_context(roots=control_plane.ca_data, system_roots=False, certificate=certificate, key=key)
    transport = NetworkTransport(tls=tls)
    yield Api(transport, control_plane.url, is_real=True)
    await transport.close()
