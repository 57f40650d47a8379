import asyncio
import json
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import click
import pytest
import trustme
import yaml

from runherd.cli.apiserver_backup import back_up
from runherd.local.apiserver.server import ApiServer
from runherd.local.apiserver.sqlite_journal import FILE_NAME, sqlite_store
from runherd.local.apiserver.store import Key
from runherd.wire.clock import SystemClock
from runherd.wire.in_process import InProcessTransport
from runherd.wire.server import Server
from runherd.wire.tls import server_context
from runherd.wire.transport import Request
from tests.local.apiserver.sqlite_stores import contents, opened, pod, put

TOKEN = "the-token"


@asynccontextmanager
async def serving(
    directory: Path, kubeconfig: Path, token: str = TOKEN, *, durable: bool = True
) -> AsyncIterator[None]:
    """A server on ``directory`` and the kubeconfig for it, with ``token`` (the right one by default)."""
    clock = SystemClock()
    store, journal = sqlite_store(directory, clock)
    server = ApiServer(
        store, random=Random(0), clock=clock, token=TOKEN, snapshot=journal.snapshot if durable else None
    )
    await server.start()
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    chain = b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
    listener = Server(server.handle, tls=server_context(chain, certificate.private_key_pem.bytes()))
    await listener.start()
    write_kubeconfig(kubeconfig, listener.url, authority, token)
    try:
        yield
    finally:
        await listener.close()
        await server.close()


def write_kubeconfig(path: Path, url: str, authority: trustme.CA, token: str) -> None:
    roots = path.with_suffix(".crt")
    authority.cert_pem.write_to_path(str(roots))
    cluster = {"server": url, "certificate-authority": str(roots)}
    document = {
        "current-context": "runherd",
        "contexts": [{"name": "runherd", "context": {"cluster": "runherd", "user": "admin"}}],
        "clusters": [{"name": "runherd", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": token}}],
    }
    path.write_text(yaml.safe_dump(document))


async def back_up_meanwhile(directory: Path, kubeconfig: Path, target: Path) -> None:
    await asyncio.to_thread(back_up, directory, kubeconfig, target, SystemClock())


async def what_is_in(backup: Path, directory: Path) -> dict[str, bytes]:
    restore(backup, directory)
    async with opened(directory) as (store, _):
        return contents(store)


def restore(backup: Path, directory: Path) -> None:
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    directory.mkdir()
    backup.rename(directory / FILE_NAME)


async def test_a_running_server_is_asked_for_it(tmp_path: Path) -> None:
    data, kubeconfig, target = tmp_path / "data", tmp_path / "kubeconfig", tmp_path / "copies" / "backup"
    target.parent.mkdir()
    async with serving(data, kubeconfig):
        await back_up_meanwhile(data, kubeconfig, target)
        assert list(target.parent.iterdir()) == [target]
        assert {path.name for path in data.iterdir()} == {"lock", "store.db", "store.db-wal"}
    assert set(await what_is_in(target, tmp_path / "restored")) == {
        f"namespaces {name}" for name in ("default", "kube-node-lease", "kube-public", "kube-system")
    }


async def test_without_a_server_the_directory_is_copied(tmp_path: Path) -> None:
    async with opened(tmp_path / "data") as (store, _):
        await store.write(pod("a"), put(b"a"))
    await back_up_meanwhile(tmp_path / "data", tmp_path / "none", tmp_path / "backup")
    assert await what_is_in(tmp_path / "backup", tmp_path / "restored") == {"pods default/a": b"a"}


async def test_a_backup_needs_the_token(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", tmp_path / "kubeconfig", "another-token"):
        with pytest.raises(click.ClickException, match="gives no backup: Unauthorized"):
            await back_up_meanwhile(tmp_path / "data", tmp_path / "kubeconfig", tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


async def test_a_server_that_has_no_backups_says_so(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", tmp_path / "kubeconfig", durable=False):
        with pytest.raises(click.ClickException, match="gives no backup: this server keeps its objects in memory"):
            await back_up_meanwhile(tmp_path / "data", tmp_path / "kubeconfig", tmp_path / "backup")


async def test_without_the_kubeconfig_the_error_tells_who_has_the_directory_and_what_to_do(tmp_path: Path) -> None:
    async with opened(tmp_path / "data"):
        with pytest.raises(click.ClickException, match=r"in use by process \d+.*name the kubeconfig"):
            await back_up_meanwhile(tmp_path / "data", tmp_path / "none", tmp_path / "backup")


async def test_a_server_that_is_gone_leaves_no_backup(tmp_path: Path) -> None:
    async with serving(tmp_path / "other", tmp_path / "kubeconfig"):
        pass
    (tmp_path / "copies").mkdir()
    async with opened(tmp_path / "data"):
        with pytest.raises(click.ClickException, match="no complete backup came from https://127"):
            await back_up_meanwhile(tmp_path / "data", tmp_path / "kubeconfig", tmp_path / "copies" / "backup")
    assert list((tmp_path / "copies").iterdir()) == []


def test_nothing_is_written_over_and_nothing_is_made_up(tmp_path: Path) -> None:
    (tmp_path / "backup").write_bytes(b"precious")
    with pytest.raises(click.ClickException, match="backup exists"):
        back_up(tmp_path / "data", tmp_path / "none", tmp_path / "backup", SystemClock())
    assert (tmp_path / "backup").read_bytes() == b"precious"
    with pytest.raises(click.ClickException, match="there is no store in"):
        back_up(tmp_path / "data", tmp_path / "none", tmp_path / "other", SystemClock())
    assert not (tmp_path / "data").exists()


async def test_only_reading_it_is_possible_and_a_failure_is_told(tmp_path: Path) -> None:
    clock = SystemClock()
    store, journal = sqlite_store(tmp_path, clock)
    server = ApiServer(store, random=Random(0), clock=clock, snapshot=journal.snapshot)
    await server.start()
    transport = InProcessTransport(server.handle)
    url = "http://embedded/runherd/backup"
    assert (await transport.request(Request("POST", url))).status == 405
    await store.close()
    answer = await transport.request(Request("GET", url))
    assert (answer.status, json.loads(answer.body)["message"]) == (503, "the store is not open")
    assert store.get(Key("namespaces", "", "default")) is not None
    await transport.close()
    await server.close()
