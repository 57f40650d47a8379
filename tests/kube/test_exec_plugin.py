from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from runherd.kube.errors import CredentialError
from runherd.kube.exec_plugin import ExecConfig, ExecPlugin
from tests.kube.exec_program import V1, Program, credential


class StoppedClock:
    """A wall clock that a test moves."""

    def __init__(self) -> None:
        self.time = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time


def plugin_of(program: Program, clock: StoppedClock | None = None, **config: Any) -> ExecPlugin:
    defaults: dict[str, Any] = {
        "command": program.path,
        "api_version": V1,
        "environment": {"PATH": "/usr/bin:/bin"},
        "origin": '/config: user "me"',
    }
    return ExecPlugin(ExecConfig(**defaults | config), clock or StoppedClock())


async def test_a_token_is_kept_until_it_expires(tmp_path: Path) -> None:
    clock = StoppedClock()
    program = Program(
        tmp_path,
        credential(token="one", expirationTimestamp="2026-01-01T01:00:00Z"),
        credential(token="two", expirationTimestamp="2026-01-01T02:00:00Z"),
    )
    plugin = plugin_of(program, clock)
    first = await plugin.current()
    assert first.token == "one"
    clock.time += timedelta(minutes=59)
    assert await plugin.current() is first
    assert len(program.calls) == 1
    clock.time += timedelta(minutes=1)
    assert (await plugin.current()).token == "two"
    assert len(program.calls) == 2


async def test_a_token_without_expiry_is_kept_for_good(tmp_path: Path) -> None:
    clock = StoppedClock()
    program = Program(tmp_path, credential(token="one"), credential(token="two"))
    plugin = plugin_of(program, clock)
    await plugin.current()
    clock.time += timedelta(days=365)
    assert (await plugin.current()).token == "one"


async def test_a_rejected_credential_is_renewed_once_for_all_who_had_it(tmp_path: Path) -> None:
    program = Program(tmp_path, credential(token="one"), credential(token="two"), credential(token="three"))
    plugin = plugin_of(program)
    rejected = await plugin.current()
    renewed = await asyncio.gather(*(plugin.renew(rejected) for _ in range(5)))
    assert {each.token for each in renewed} == {"two"}
    assert (await plugin.renew(rejected)).token == "two"
    assert len(program.calls) == 2


async def test_one_program_runs_however_many_wait(tmp_path: Path) -> None:
    program = Program(tmp_path, credential(token="one"))
    plugin = plugin_of(program)
    waiting = [asyncio.create_task(plugin.current()) for _ in range(10)]
    await asyncio.sleep(0)
    waiting[0].cancel()  # whoever caused the run may leave; the others get their credential
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert all(not isinstance(each, BaseException) and each.token == "one" for each in results[1:])
    assert len(program.calls) == 1


async def test_certificates(tmp_path: Path) -> None:
    program = Program(tmp_path, credential(clientCertificateData="CERT", clientKeyData="KEY"))
    got = await plugin_of(program).current()
    assert (got.token, got.certificate, got.key) == ("", b"CERT", b"KEY")


@pytest.mark.parametrize("version", [V1, "client.authentication.k8s.io/v1beta1"])
async def test_what_the_program_is_given(tmp_path: Path, version: str) -> None:
    program = Program(tmp_path, credential(version, token="one"))
    plugin = plugin_of(
        program,
        api_version=version,
        args=("--for", "me and you"),
        environment={"PATH": "/usr/bin:/bin", "PROFILE": "dev"},
        cluster={"server": "https://api.test", "certificate-authority-data": b"PEM", "config": {"a": [1]}},
    )
    await plugin.current()
    assert program.calls == ["--for me and you"]
    assert program.seen("profile") == "dev"
    assert json.loads(program.seen("info")) == {
        "kind": "ExecCredential",
        "apiVersion": version,
        "spec": {
            "interactive": False,
            "cluster": {
                "server": "https://api.test",
                "certificate-authority-data": "UEVN",
                "config": {"a": [1]},
            },
        },
    }


async def test_the_cluster_is_told_only_to_those_who_ask(tmp_path: Path) -> None:
    program = Program(tmp_path, credential(token="one"))
    await plugin_of(program).current()
    assert json.loads(program.seen("info"))["spec"] == {"interactive": False}


async def test_a_program_that_asks_nobody_has_no_standard_input(tmp_path: Path) -> None:
    program = Program(tmp_path, credential(token="one"), before="cat > stdin")
    await plugin_of(program).current()
    assert program.seen("stdin") == ""


async def test_the_program_is_looked_for_on_the_path_of_its_own_environment(tmp_path: Path) -> None:
    program = Program(tmp_path, credential(token="one"))
    plugin = plugin_of(program, command="plugin", environment={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert (await plugin.current()).token == "one"


SECRET = "s3cr3t-s3cr3t"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (SECRET, "printed something that is no ExecCredential in JSON"),
        ({"kind": "Status", "token": SECRET}, "printed an object that is no ExecCredential"),
        (credential("client.authentication.k8s.io/v1beta1", token=SECRET), f"of another version than {V1}"),
        ({"kind": "ExecCredential", "apiVersion": V1, "spec": SECRET}, "without status"),
        (credential(clientKeyData=SECRET), "a key without its certificate"),
        (credential(clientCertificateData=SECRET, token="x"), "a certificate without its key"),
        (credential(), "with neither token nor certificate"),
        (credential(token=SECRET, expirationTimestamp="tomorrow"), "no ExecCredential in JSON"),
        (credential(token=[SECRET]), "no ExecCredential in JSON"),
    ],
)
async def test_what_can_not_be_used_is_an_error_that_does_not_show_it(
    tmp_path: Path, answer: Any, message: str
) -> None:
    program = Program(tmp_path, answer)
    with pytest.raises(CredentialError, match=message) as caught:
        await plugin_of(program).current()
    assert SECRET not in str(caught.value)
    assert str(caught.value).startswith('/config: user "me": credential plugin ')
    assert not caught.value.request_sent


async def test_a_program_that_fails_is_quoted_but_not_its_credentials(tmp_path: Path) -> None:
    token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln"
    before = f"""printf 'log in first\\033[2J; refused: Bearer {token}' >&2; echo {SECRET}; exit 3"""
    program = Program(tmp_path, credential(token="one"), before=before)
    with pytest.raises(CredentialError) as caught:
        await plugin_of(program).current()
    text = str(caught.value)
    assert "failed with exit code 3: log in first?[2J; refused: Bearer [redacted]" in text
    assert token not in text
    assert SECRET not in text


async def test_a_program_that_failed_is_run_again_for_the_next_request(tmp_path: Path) -> None:
    program = Program(tmp_path, credential(token="one"), before='[ "$(wc -l < calls)" -gt 1 ] || exit 1')
    plugin = plugin_of(program)
    with pytest.raises(CredentialError):
        await plugin.current()
    assert (await plugin.current()).token == "one"


async def test_a_program_that_does_not_exist_comes_with_its_install_hint() -> None:
    config = ExecConfig("no-such-plugin", V1, environment={"PATH": "/bin"}, install_hint="get it\x1b[1m here\nnow")
    with pytest.raises(
        CredentialError, match=re.escape("can't be run: No such file or directory\nget it?[1m here\nnow")
    ):
        await ExecPlugin(config, StoppedClock()).current()


async def test_a_program_that_hangs_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runherd.kube.exec_plugin._DEADLINE", 0.05)
    program = Program(tmp_path, credential(token="one"), before="echo $$ > pid; exec sleep 1000")
    with pytest.raises(CredentialError, match=r"did not end within 0\.05 s"):
        await plugin_of(program).current()
    pids = program.seen("pid").split() if "pid" in program.files else []  # maybe it was too slow to write its own
    assert not any(psutil.pid_exists(int(pid)) for pid in pids)


def test_a_plugin_shows_no_secrets() -> None:
    config: Mapping[str, Any] = {"args": (SECRET,), "environment": {"X": SECRET}, "cluster": {"x": SECRET}}
    assert SECRET not in repr(ExecConfig("plugin", V1, **config))
