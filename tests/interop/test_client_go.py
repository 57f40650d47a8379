"""What programs written with ``k8s.io/client-go`` expect, of the embedded server and of the real control plane.

The checks are in ``client-go/``; what the real control plane does decides what they may expect.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from runherd.api.crds import crd_json, crd_names
from runherd.local.apiserver.credentials import Authority, ServingCertificate, write_kubeconfig
from runherd.local.apiserver.logs import LogRequest
from runherd.local.apiserver.server import ApiServer
from runherd.local.apiserver.sqlite_journal import sqlite_store
from runherd.local.apiserver.store import Limits, Store
from runherd.wire.clock import SystemClock
from runherd.wire.server import Server as Listener
from tests.api.manifests import minimal, with_defaults
from tests.controlplane.command_lines import CONTROLLERS
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.plugin import ControlPlaneFactory
from tests.interop.go_program import go_program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TOKEN = "the-token"
REAL = "control plane"
CHECKS = (
    "version and discovery",
    "typed objects",
    "dynamic objects",
    "pods",
    "errors",
    "concurrent updates",
    "patches",
    "custom resources",
    "finalizers",
    "collections",
    "garbage collection",
    "end of a namespace",
    "selective informers",
    "paging",
    "watches",
    "leader election",
    "core events",
    "newer events",
    "pod logs",
)
#: These are carried out with both ways in which an informer can begin.
INFORMER_CHECKS = ("informers", "dynamic informers", "informers and cuts", "random writes")
LOST_HISTORY = "lost history"

SERVERS = ["memory", "sqlite", pytest.param(REAL, marks=pytest.mark.control_plane)]


@dataclass
class Target:
    """A server that the program is run against, and what it does when a check asks for it."""

    kubeconfig: Path
    flags: list[str]
    answers: Mapping[str, Callable[[], object]]


@pytest.fixture(scope="module")
def program(pytestconfig: pytest.Config) -> Path:
    return go_program("client-go", pytestconfig)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The flags that name the definitions of the custom kinds, and an object of each."""
    folder = tmp_path_factory.mktemp("kinds")
    encoded = [crd_json(name) for name in crd_names()]
    (folder / "crds").write_bytes(b'{"apiVersion":"v1","kind":"List","items":[' + b",".join(encoded) + b"]}")
    (folder / "samples").write_bytes(msgspec.json.encode([_sample(msgspec.json.decode(each)) for each in encoded]))
    return ["-crds", str(folder / "crds"), "-samples", str(folder / "samples")]


def _sample(definition: dict[str, Any]) -> dict[str, Any]:
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return {
        "apiVersion": "actions.github.com/v1alpha1",
        "kind": definition["spec"]["names"]["kind"],
        "metadata": {},
        "spec": with_defaults(schema, minimal(schema)),
    }


class _TalkingPod:
    """The log of a pod that writes a line, and another when it is told to."""

    def __init__(self) -> None:
        self.second_line = asyncio.Event()

    async def open(self, request: LogRequest) -> AsyncIterator[bytes]:
        async def lines() -> AsyncIterator[bytes]:
            yield b"first\n"
            if request.follow:
                await self.second_line.wait()
            if self.second_line.is_set():
                yield b"second\n"

        return lines()


@asynccontextmanager
async def _embedded(store: Store, folder: Path) -> AsyncIterator[Target]:
    clock = SystemClock()
    authority = Authority.create(clock)
    certificate = ServingCertificate(authority, clock, "127.0.0.1")
    pod = _TalkingPod()
    api = ApiServer(store, random=Random(0), clock=clock, token=TOKEN, pod_logs=pod.open)
    await api.start()
    listener = Listener(api.handle, tls=certificate.context, body_limit=api.body_limit, too_large=api.too_large)
    await listener.start()
    write_kubeconfig(folder / "kubeconfig", listener.url, authority, TOKEN)
    try:
        yield Target(folder / "kubeconfig", ["-logs"], {"write the second line": pod.second_line.set})
    finally:
        await listener.close()
        await api.close()


def _on_control_plane(control_plane: ControlPlane) -> Target:
    # The garbage collector looks for new kinds every half minute, and when it starts.
    answers = {"notice new kinds": control_plane.restart_controller_manager, "forget history": control_plane.compact}
    return Target(control_plane.admin_kubeconfig, ["-accounts"], answers)


@asynccontextmanager
async def _target(request: pytest.FixtureRequest, folder: Path, limits: Limits | None = None) -> AsyncIterator[Target]:
    if request.param == REAL:
        yield _on_control_plane(request.getfixturevalue("control_plane_with_controllers"))
        return
    store = Store(limits=limits)
    if request.param == "sqlite":
        store, _ = sqlite_store(folder / "data", SystemClock(), limits)
    async with _embedded(store, folder) as target:
        yield target


@pytest.fixture(params=SERVERS)
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Target]:
    async with _target(request, tmp_path) as target:
        yield target


@pytest.fixture(params=SERVERS)
async def forgetful_server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Target]:
    """One that keeps little history, or none that it is told to forget."""
    if request.param == REAL:
        factory: ControlPlaneFactory = request.getfixturevalue("control_plane_factory")
        yield _on_control_plane(factory(apiserver_flags=["--watch-cache=false"], controllers=CONTROLLERS))
        return
    async with _target(request, tmp_path, Limits(events=100)) as target:
        yield target


async def carry_out(program: Path, target: Target, files: list[str], *arguments: str) -> dict[str, Any]:
    """Run one check and return what the program says of it; fails when it doesn't pass."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        program,
        "-kubeconfig",
        target.kubeconfig,
        *target.flags,
        *files,
        *arguments,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    errors = asyncio.create_task(process.stderr.read())
    result: dict[str, Any] = {}
    try:
        async for line in process.stdout:
            result = json.loads(line)
            if "ask" in result:
                await asyncio.to_thread(target.answers.get(result["ask"], lambda: None))
                process.stdin.write(b"done\n")
        status = await process.wait()
    except BaseException:
        process.kill()
        raise
    if status != 0 or not result.get("passed"):
        told = json.dumps(result, indent=1)
        pytest.fail(f"the program ended with {status} and said\n{told}\n{(await errors).decode()}", pytrace=False)
    return result


async def test_every_check_of_the_program_is_carried_out_here(program: Path) -> None:
    process = await asyncio.create_subprocess_exec(program, "-list", stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert set(output.decode().splitlines()) == {*CHECKS, *INFORMER_CHECKS, LOST_HISTORY}


async def test_the_embedded_server_knows_the_fields_of_the_messages(program: Path) -> None:
    process = await asyncio.create_subprocess_exec(program, "-fields", stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    known = resources.files("runherd.local.apiserver").joinpath("protobuf_fields.json").read_text()
    assert output.decode() == known, "write it anew with the program's flag -fields"


@pytest.mark.parametrize("check", CHECKS)
async def test_check(program: Path, server: Target, files: list[str], check: str) -> None:
    result = await carry_out(program, server, files, check)
    assert "skipped" not in result or (check == "pod logs" and "-logs" not in server.flags)


@pytest.mark.parametrize("watch_list", [True, False], ids=["watch-list", "list-and-watch"])
@pytest.mark.parametrize("check", INFORMER_CHECKS)
async def test_informer_check(program: Path, server: Target, files: list[str], check: str, watch_list: bool) -> None:
    await carry_out(program, server, files, f"-watch-list={json.dumps(watch_list)}", check)


@pytest.mark.parametrize("watch_list", [True, False], ids=["watch-list", "list-and-watch"])
async def test_informers_begin_anew_where_history_is_lost(
    program: Path, forgetful_server: Target, files: list[str], watch_list: bool
) -> None:
    await carry_out(program, forgetful_server, files, f"-watch-list={json.dumps(watch_list)}", LOST_HISTORY)
