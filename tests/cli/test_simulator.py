"""``runherd simulator`` as a program."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from runherd.cli.main import main
from runherd.wire.network import NetworkTransport
from runherd.wire.tls import client_context
from runherd.wire.transport import Request
from tests.simulator.client import Client


@asynccontextmanager
async def program(*options: str) -> AsyncIterator[tuple[str, str]]:
    """Run it; the printed config URL and token. It must end by itself on SIGTERM."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "runherd", "simulator", *options, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(20):
            printed = [(await process.stdout.readline()).decode().split()[-1] for _ in range(2)]
        yield printed[0], printed[1]
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_it_prints_what_a_client_needs(tmp_path: Path) -> None:
    workflow = tmp_path / "ci.yml"
    workflow.write_text("jobs: {a: {runs-on: one, steps: [{run: x}]}}")
    async with program("--mode", "acquire", "--owner", "acme/app", "--workflow", str(workflow)) as (url, token):
        assert url.startswith("http://127.0.0.1:")
        assert url.endswith("/acme/app")
        transport = NetworkTransport()
        client = Client(transport, url.removesuffix("/acme/app"), "acme/app")
        await client.login(token)
        scale_set = await client.create_set("one")
        assert (await client.ok("GET", f"sets/{scale_set}"))["statistics"]["totalAvailableJobs"] == 1
        settings = await client.send("GET", f"{client.base}/_simulator/settings", token=token)
        assert json.loads(settings.body)["mode"] == "acquire"
        await transport.close()


async def test_https_with_a_certificate_of_its_own_that_is_kept(tmp_path: Path) -> None:
    for _ in range(2):
        async with program("--tls", str(tmp_path / "tls"), "--token", "t") as (url, token):
            assert url.startswith("https://127.0.0.1:")
            assert token == "t"
            roots = (tmp_path / "tls" / "tls.crt").read_bytes()
            transport = NetworkTransport(tls=client_context(roots=roots, system_roots=False))
            answer = await transport.request(Request("GET", f"{url}/nothing"))
            assert answer.status == 404
            await transport.close()
    assert (tmp_path / "tls" / "tls.key").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--listen", "nowhere"], "must be host:port"),
        (["--listen", "192.0.2.1:0"], "can't listen on 192.0.2.1:0"),
        (["--workflow", "WORKFLOW"], "ci.yml:1: a workflow needs jobs"),
        (["--repository", "acme", "--workflow", "GOOD"], "must be owner/name"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(options: list[str], text: str, tmp_path: Path) -> None:
    (tmp_path / "ci.yml").write_text("name: x")
    (tmp_path / "good.yml").write_text("jobs: {a: {runs-on: one, steps: [{run: x}]}}")
    places = {"WORKFLOW": str(tmp_path / "ci.yml"), "GOOD": str(tmp_path / "good.yml")}
    result = CliRunner().invoke(main, ["simulator", *(places.get(option, option) for option in options)])
    assert result.exit_code != 0
    assert text in result.output
