"""The command as its users run it: in a process of its own."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from runherd.cli.main import main
from runherd.wire.network import NetworkTransport
from runherd.wire.tls import client_context
from runherd.wire.transport import Request

_PATIENCE = 60.0


async def _started(*arguments: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "runherd", "apiserver", *arguments, stdout=pipe, stderr=pipe
    )
    assert process.stdout is not None
    async with asyncio.timeout(_PATIENCE):
        line = (await process.stdout.readline()).decode()
    assert line.startswith("serving on https://127.0.0.1:"), await process.communicate()
    return process


async def _stopped(process: asyncio.subprocess.Process) -> None:
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(_PATIENCE):
        _, errors = await process.communicate()
    assert (process.returncode, errors) == (0, b"")


def _config(kubeconfig: Path) -> Any:
    return yaml.safe_load(kubeconfig.read_text())


def _files(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.iterdir())


async def _call(kubeconfig: Path, method: str, path: str, body: object = None) -> Any:
    config = _config(kubeconfig)
    cluster = config["clusters"][0]["cluster"]
    roots = base64.b64decode(cluster["certificate-authority-data"])
    transport = NetworkTransport(tls=client_context(roots=roots, system_roots=False))
    headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}", "Content-Type": "application/json"}
    data = json.dumps(body).encode() if body is not None else b""
    try:
        response = await transport.request(Request(method, cluster["server"] + path, headers, data))
    finally:
        await transport.close()
    return json.loads(response.body)


async def test_it_serves_until_it_is_told_to_stop_and_goes_on_with_its_data(tmp_path: Path) -> None:
    data, kubeconfig = tmp_path / "data", tmp_path / "kubeconfig"
    arguments = ("--data", str(data), "--listen", "127.0.0.1:0", "--kubeconfig", str(kubeconfig))
    process = await _started(*arguments)
    assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600
    maps = "/api/v1/namespaces/default/configmaps"
    await _call(kubeconfig, "POST", maps, {"metadata": {"name": "a"}})
    second = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "runherd", "apiserver", *arguments, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(_PATIENCE):
        _, errors = await second.communicate()
    assert second.returncode == 1
    assert f"the data directory {data} is in use by process {process.pid}".encode() in errors
    token = _config(kubeconfig)["users"][0]["user"]["token"]
    await _stopped(process)
    process = await _started(*arguments)
    assert _config(kubeconfig)["users"][0]["user"]["token"] == token
    assert [each["metadata"]["name"] for each in (await _call(kubeconfig, "GET", maps))["items"]] == ["a"]
    await _stopped(process)


async def test_without_data_it_is_in_memory(tmp_path: Path) -> None:
    process = await _started("--kubeconfig", str(tmp_path / "kubeconfig"))
    assert _files(tmp_path) == ["kubeconfig"]
    assert (await _call(tmp_path / "kubeconfig", "GET", "/api/v1/nodes"))["items"] == []
    await _stopped(process)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "give --kubeconfig, the file to write, or --data"),
        (["--kubeconfig", "x", "--listen", "nowhere"], "must be host:port"),
        (["--backup", "x"], "--backup needs --data"),
        (["--kubeconfig", "/nonexistent/x"], "/nonexistent/"),
        (["--kubeconfig", "x", "--listen", "203.0.113.1:0"], "203.0.113.1"),
    ],
)
def test_what_can_not_be_is_told(arguments: list[str], text: str) -> None:
    result = CliRunner().invoke(main, ["apiserver", *arguments])
    assert result.exit_code != 0
    assert text in result.output
