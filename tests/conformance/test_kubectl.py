"""The real kubectl on the embedded server, over TLS."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from runherd.local.apiserver.credentials import Authority, ServingCertificate, write_kubeconfig
from runherd.local.apiserver.logs import LogRequest
from runherd.local.apiserver.server import ApiServer
from runherd.local.apiserver.store import Store
from runherd.wire.clock import SystemClock
from runherd.wire.server import Server
from tests.conformance.api import GROUP, definitions, widget

_PATIENCE = 60.0
_POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - {name: main, image: "example.com/web:1", env: [{name: A, value: "1"}]}
"""


@dataclass
class Kubectl:
    """Runs kubectl against one server."""

    program: Path
    kubeconfig: Path
    directory: Path

    async def start(self, *arguments: str, **environment: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            self.program,
            *arguments,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            cwd=self.directory,
            env={
                "KUBECONFIG": str(self.kubeconfig),
                "HOME": str(self.directory),
                "PATH": "/usr/bin:/bin",
                **environment,
            },
        )

    async def attempt(self, *arguments: str, stdin: str = "", **environment: str) -> tuple[int, str, str]:
        """Exit status, output and errors."""
        process = await self.start(*arguments, **environment)
        async with asyncio.timeout(_PATIENCE):
            output, errors = await process.communicate(stdin.encode())
        return process.returncode or 0, output.decode(), errors.decode()

    async def __call__(self, *arguments: str, stdin: str = "", **environment: str) -> str:
        """The output; anything but success fails the test."""
        status, output, errors = await self.attempt(*arguments, stdin=stdin, **environment)
        assert status == 0, f"kubectl {' '.join(arguments)}: {errors}"
        return output

    async def json(self, *arguments: str) -> Any:
        return json.loads(await self(*arguments, "-o", "json"))


async def _logs(request: LogRequest) -> AsyncIterator[bytes]:
    async def lines() -> AsyncIterator[bytes]:
        count = 5 if request.tail_lines is None else request.tail_lines
        for number in range(5 - count, 5):
            yield f"{request.container} {number}\n".encode()
        if request.follow:
            await asyncio.sleep(0)
            yield b"and the end\n"

    if request.previous:
        raise LookupError("there is no previous container")
    return lines()


@pytest.fixture
async def run(kubectl: Path, tmp_path: Path) -> AsyncIterator[Kubectl]:
    """kubectl, on a server of the test's own that has the test kinds."""
    clock = SystemClock()
    authority = Authority.create(clock)
    certificate = ServingCertificate(authority, clock, "127.0.0.1")
    api = ApiServer(Store(), random=Random(0), clock=clock, token="the-token", pod_logs=_logs)
    await api.start()
    server = Server(api.handle, tls=certificate.context, body_limit=api.body_limit, too_large=api.too_large)
    await server.start()
    write_kubeconfig(tmp_path / "kubeconfig", server.url, authority, "the-token")
    result = Kubectl(kubectl, tmp_path / "kubeconfig", tmp_path)
    await result("create", "-f", "-", stdin=yaml.safe_dump_all(definitions()))
    yield result
    await server.close()
    await api.close()


async def _running(run: Kubectl) -> None:
    await run("apply", "-f", "-", stdin=_POD)
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "web"},
        "target": {"kind": "Node", "name": "n1"},
    }
    await run("create", "--raw", "/api/v1/namespaces/default/pods/web/binding", "-f", "-", stdin=json.dumps(binding))
    status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    await run("patch", "pod", "web", "--subresource=status", "--type=merge", "-p", json.dumps(status))


async def test_without_the_token_there_is_nothing_to_see(run: Kubectl) -> None:
    config = yaml.safe_load(run.kubeconfig.read_text())
    config["users"][0]["user"]["token"] = "wrong"
    run.kubeconfig.write_text(yaml.safe_dump(config))
    status, _, errors = await run.attempt("get", "pods")
    assert status != 0
    assert "Unauthorized" in errors or "provide credentials" in errors


async def test_get(run: Kubectl) -> None:
    await run(
        "create",
        "-f",
        "-",
        stdin=yaml.safe_dump_all([widget("a", labels={"x": "1"}), widget("b", {"size": 3, "color": "green"})]),
    )
    lines = (await run("get", "widgets")).splitlines()
    assert [line.split()[:3] for line in lines] == [["NAME", "SIZE", "COLOR"], ["a", "1", "red"], ["b", "3", "green"]]
    assert (await run("get", "wg", "-o", "wide")).splitlines()[0].split() == ["NAME", "SIZE", "COLOR", "READY", "AGE"]
    assert yaml.safe_load(await run("get", "widget", "b", "-o", "yaml"))["spec"]["size"] == 3
    assert await run("get", f"widgets.{GROUP}", "-l", "x=1", "-o", "name") == f"widget.{GROUP}/a\n"
    assert await run("get", "widgets", "--field-selector", "spec.color=green", "-o", "name") == f"widget.{GROUP}/b\n"
    assert await run("get", "widgets", "-o", "jsonpath={.items[*].metadata.name}") == "a b"
    assert (await run("get", "widgets", "--show-labels", "--no-headers")).split()[4] == "x=1"
    assert (await run("get", "widgets", "--chunk-size=1", "-o", "name")).split() == [
        f"widget.{GROUP}/a",
        f"widget.{GROUP}/b",
    ]
    assert "a " in await run("get", "all")
    status, _, errors = await run.attempt("get", "widgets", "none")
    assert (status, errors) == (1, f'Error from server (NotFound): widgets.{GROUP} "none" not found\n')


async def test_get_and_watch(run: Kubectl) -> None:
    await run("create", "-f", "-", stdin=yaml.safe_dump(widget("a")))
    watching = await run.start(
        "get", "widgets", "-w", "--no-headers", "-o", "custom-columns=N:.metadata.name,S:.spec.size"
    )
    table = await run.start("get", "widgets", "-w")
    assert watching.stdout is not None
    assert table.stdout is not None
    try:
        async with asyncio.timeout(_PATIENCE):
            assert (await watching.stdout.readline()).split() == [b"a", b"1"]
            assert (await table.stdout.readline()).split()[0] == b"NAME"
            assert (await table.stdout.readline()).split()[:2] == [b"a", b"1"]
            await run("patch", "widget", "a", "--type=merge", "-p", '{"spec":{"size":7}}')
            assert (await watching.stdout.readline()).split() == [b"a", b"7"]
            assert (await table.stdout.readline()).split()[:2] == [b"a", b"7"]
    finally:
        for process in (watching, table):
            process.kill()
            await process.communicate()


async def test_apply(run: Kubectl) -> None:
    assert await run("apply", "-f", "-", stdin=_POD) == "pod/web created\n"
    assert await run("apply", "-f", "-", stdin=_POD) == "pod/web unchanged\n"
    changed = _POD.replace("web:1", "web:2").replace("app: web", "app: web, tier: front")
    assert await run("apply", "-f", "-", stdin=changed) == "pod/web configured\n"
    pod = await run.json("get", "pod", "web")
    assert pod["spec"]["containers"][0]["image"] == "example.com/web:2"
    assert pod["metadata"]["labels"] == {"app": "web", "tier": "front"}
    await run("apply", "-f", "-", stdin=_POD)
    assert (await run.json("get", "pod", "web"))["metadata"]["labels"] == {"app": "web"}
    assert await run("apply", "-f", "-", stdin=yaml.safe_dump(widget("a"))) == f"widget.{GROUP}/a created\n"
    assert (
        await run("apply", "-f", "-", stdin=yaml.safe_dump(widget("a", {"size": 2})))
        == f"widget.{GROUP}/a configured\n"
    )
    status, _, errors = await run.attempt(
        "apply", "-f", "-", stdin=yaml.safe_dump(widget("a", {"size": 2, "bogus": 1}))
    )
    assert status == 1
    assert 'unknown field "spec.bogus"' in errors
    status, _, errors = await run.attempt("apply", "--server-side", "-f", "-", stdin=_POD)
    assert status == 1
    assert "server-side apply is not supported" in errors
    unknown = yaml.safe_dump({**widget("a"), "kind": "Unheard"})
    status, _, errors = await run.attempt("apply", "-f", "-", stdin=unknown)
    assert status == 1
    assert 'no matches for kind "Unheard"' in errors


async def test_create_edit_patch_label_and_annotate(run: Kubectl) -> None:
    await run("create", "-f", "-", stdin=yaml.safe_dump(widget("a")))
    status, _, errors = await run.attempt("create", "-f", "-", stdin=yaml.safe_dump(widget("a")))
    assert (status, "AlreadyExists" in errors) == (1, True)
    editor = run.directory / "editor"
    editor.write_text('#!/bin/sh\nsed -i "s/size: 1/size: 5/" "$1"\n')
    editor.chmod(0o700)
    assert await run("edit", "widget", "a", EDITOR=str(editor)) == f"widget.{GROUP}/a edited\n"
    assert (await run.json("get", "widget", "a"))["spec"]["size"] == 5
    await run("label", "widget", "a", "x=1")
    await run("annotate", "widget", "a", "note=some text")
    await run("label", "widget", "a", "--overwrite", "x=2")
    metadata = (await run.json("get", "widget", "a"))["metadata"]
    assert (metadata["labels"], metadata["annotations"]) == ({"x": "2"}, {"note": "some text"})
    await run("label", "widget", "a", "x-")
    assert "labels" not in (await run.json("get", "widget", "a"))["metadata"]
    await run("patch", "widget", "a", "--type=json", "-p", '[{"op":"replace","path":"/spec/size","value":6}]')
    await run("patch", "widget", "a", "--subresource=status", "--type=merge", "-p", '{"status":{"phase":"Up"}}')
    assert await run("get", "widget", "a", "-o", "jsonpath={.spec.size} {.status.phase}") == "6 Up"
    await run("replace", "-f", "-", stdin=await run("get", "widget", "a", "-o", "json"))
    await run("apply", "-f", "-", stdin=_POD)
    await run("patch", "pod", "web", "-p", '{"spec":{"containers":[{"name":"main","image":"example.com/web:3"}]}}')
    assert (await run.json("get", "pod", "web"))["spec"]["containers"][0]["env"] == [{"name": "A", "value": "1"}]


async def test_what_kubectl_makes_itself(run: Kubectl) -> None:
    """It sends these as protobuf."""
    await run("create", "namespace", "other")
    await run("create", "configmap", "a", "--from-literal=k=v", "-n", "other")
    assert (await run.json("get", "configmap", "a", "-n", "other"))["data"] == {"k": "v"}
    await run("create", "secret", "generic", "a", "--from-literal=k=v")
    assert (await run.json("get", "secret", "a"))["data"] == {"k": "dg=="}
    await run("create", "serviceaccount", "a")
    await run("create", "role", "a", "--verb=get,list", "--resource=pods")
    await run("create", "rolebinding", "a", "--role=a", "--serviceaccount=default:a")
    assert "default/a" in await run("get", "rolebinding", "a", "-o", "wide")
    await run("run", "web", "--image=example.com/web:1", "--env=A=1", "--restart=Never")
    spec = (await run.json("get", "pod", "web"))["spec"]
    assert spec["restartPolicy"] == "Never"
    assert spec["containers"][0]["env"] == [{"name": "A", "value": "1"}]


async def test_describe_events_and_explain(run: Kubectl) -> None:
    await _running(run)
    pod = await run.json("get", "pod", "web")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "web.1", "namespace": "default"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "default",
            "name": "web",
            "uid": pod["metadata"]["uid"],
        },
        "reason": "Pulled",
        "message": "the image was pulled",
        "type": "Normal",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    await run("create", "-f", "-", stdin=json.dumps(event))
    described = await run("describe", "pod", "web")
    assert "Node:         n1/" in described
    assert "the image was pulled" in described
    assert "the image was pulled" in await run("events", "--for", "pod/web")
    assert "pod/web" in await run("get", "events")
    await run("create", "-f", "-", stdin=yaml.safe_dump(widget("a")))
    assert "Size:     1" in await run("describe", "widget", "a")
    assert "<integer>" in await run("explain", "widget.spec.size")
    assert "containers\t<[]Container>" in await run("explain", "pod.spec")


async def test_delete_and_wait(run: Kubectl) -> None:
    await _running(run)
    assert await run("wait", "pod/web", "--for=condition=Ready", "--timeout=20s") == "pod/web condition met\n"
    held = widget("a", finalizers=["runherd.dev/x"])
    await run("create", "-f", "-", stdin=yaml.safe_dump(held))
    await run("delete", "widget", "a", "--wait=false")
    assert "deletionTimestamp" in (await run.json("get", "widget", "a"))["metadata"]
    waiting = asyncio.ensure_future(run("wait", "widget/a", "--for=delete", "--timeout=30s"))
    await run("patch", "widget", "a", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    await waiting
    await run("delete", "pod", "web", "--wait=false", "--grace-period=5")
    assert (await run.json("get", "pod", "web"))["metadata"]["deletionGracePeriodSeconds"] == 5
    await run("delete", "pod", "web", "--grace-period=0", "--force")
    assert await run("get", "pods", "-o", "name") == ""
    await run("create", "-f", "-", stdin=yaml.safe_dump_all([widget("a"), widget("b")]))
    await run("delete", "widgets", "--all")
    assert await run("get", "widgets", "-o", "name") == ""
    await run("create", "-f", "-", stdin="{apiVersion: v1, kind: Namespace, metadata: {name: other}}")
    await run("delete", "namespace", "other")
    await run("delete", "crd", f"gadgets.{GROUP}")


async def test_logs(run: Kubectl) -> None:
    await _running(run)
    assert await run("logs", "web") == "".join(f"main {number}\n" for number in range(5))
    assert await run("logs", "web", "--tail=2") == "main 3\nmain 4\n"
    assert (await run("logs", "web", "-f")).endswith("and the end\n")
    status, _, errors = await run.attempt("logs", "web", "-p")
    assert (status, "there is no previous container" in errors) == (1, True)
    status, _, errors = await run.attempt("logs", "web", "-c", "none")
    assert (status, "container none is not valid for pod web" in errors) == (1, True)


async def test_what_is_not_supported_says_so(run: Kubectl) -> None:
    await _running(run)
    for arguments in (("exec", "web", "--", "true"), ("attach", "web"), ("port-forward", "web", "8080:80")):
        status, _, errors = await run.attempt(*arguments)
        assert status != 0
        assert "not supported by runherd's embedded API server" in errors, arguments
    status, _, errors = await run.attempt("delete", "pod", "web", "--cascade=foreground")
    assert (status, "foreground deletion" in errors) == (1, True)


async def test_api_resources_and_version(run: Kubectl) -> None:
    names = (await run("api-resources", "-o", "name")).split()
    assert {
        "pods",
        "leases.coordination.k8s.io",
        f"widgets.{GROUP}",
        "customresourcedefinitions.apiextensions.k8s.io",
    } <= set(names)
    assert f"{GROUP}/v1" in (await run("api-versions")).split()
    assert (await run.json("version"))["serverVersion"]["major"] == "1"
    assert await run("get", "--raw", "/readyz") == "ok"
