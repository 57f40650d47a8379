import asyncio
import sqlite3
import stat
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from runherd.local.apiserver import sqlite_backup
from runherd.local.apiserver.sqlite_errors import BackupError
from runherd.local.apiserver.sqlite_journal import FILE_NAME
from runherd.local.apiserver.store import CompactedError, StoreError
from runherd.local.apiserver.writer_thread import WriterThread
from tests.local.apiserver.sqlite_stores import contents, opened, pod, put, query, remove

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATEST = "SELECT name, max(revision) FROM versions GROUP BY name"


def restore(backup: Path, directory: Path) -> None:
    directory.mkdir(exist_ok=True)
    (directory / FILE_NAME).write_bytes(backup.read_bytes())


async def test_a_backup_is_one_private_file_with_everything_in_it(tmp_path: Path) -> None:
    target = tmp_path / "copies" / "b"
    target.parent.mkdir()
    async with opened(tmp_path / "data") as (store, journal):
        for n in range(100):
            await store.write(pod(f"{n}"), put(b"%d" % n * 1000))
        await store.write(pod("0"), remove)
        await journal.backup(target)
        expected = contents(store)
        assert stat.S_IMODE(target.stat().st_mode) == 0o600
        assert list(target.parent.iterdir()) == [target]
    restore(target, tmp_path / "restored")
    async with opened(tmp_path / "restored") as (store, _):
        assert contents(store) == expected


async def test_writes_go_on_during_a_backup_which_is_as_of_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_backup, "STEP_PAGES", 1)
    run_pending = WriterThread.run_pending
    steps = 0

    def run_pending_and_one_more(thread: WriterThread) -> None:
        """After each of the first steps something is written, if need be by waiting for it."""
        nonlocal steps
        steps += 1
        if steps <= 60:
            job = thread._jobs.get(timeout=60)
            assert job is not None
            job()
        run_pending(thread)

    monkeypatch.setattr(WriterThread, "run_pending", run_pending_and_one_more)
    async with opened(tmp_path / "data") as (store, journal):
        await asyncio.gather(*(store.write(pod(f"{n:03}"), put(b"x" * 9000)) for n in range(300)))
        backup = asyncio.ensure_future(journal.backup(tmp_path / "backup"))
        written = 0
        while not backup.done():
            await store.write(pod(f"{written % 300:03}"), put(b"%d" % written * 2000))
            written += 1
        await backup
        last = store.revision
        assert steps > 300
    restore(tmp_path / "backup", tmp_path / "restored")
    # Of the writes, which were made one after the other, it has the first so many and no other.
    revisions = {str(name): int(str(revision)) for name, revision in query(tmp_path / "restored", LATEST)}
    expected = {f"{n:03}": n + 2 for n in range(300)}
    copied = max(revisions.values())
    assert 302 + 25 <= copied <= last
    expected |= {f"{(revision - 302) % 300:03}": revision for revision in range(302, copied + 1)}
    assert revisions == expected
    async with opened(tmp_path / "restored") as (store, _):
        assert store.count("pods") == 300


async def test_a_restored_backup_repeats_no_revision_even_with_a_clock_that_stands(tmp_path: Path) -> None:
    handed_out = set()
    async with opened(tmp_path / "data", NOON) as (store, journal):
        await store.write(pod("a"), put())
        before = store.revision
        await journal.backup(tmp_path / "backup")
        handed_out |= {(await store.write(pod(f"{n}"), put())).revision for n in range(50)}
    restore(tmp_path / "backup", tmp_path / "data")
    async with opened(tmp_path / "data", NOON) as (store, _):
        assert store.revision > max(handed_out)
        assert store.revision < 2**53
        for revision in {before, *handed_out}:
            with pytest.raises(CompactedError):
                store.watch("pods", revision)
        handed_out.add((await store.write(pod("b"), put())).revision)
        last = store.revision
    # It is a store like any other from now on.
    async with opened(tmp_path / "data", NOON) as (store, _):
        assert store.revision == last
        assert set(contents(store)) == {"pods default/a", "pods default/b"}
    # And restored once more, later.
    restore(tmp_path / "backup", tmp_path / "data")
    async with opened(tmp_path / "data", NOON + timedelta(hours=2)) as (store, _):
        assert (await store.write(pod("c"), put())).revision > max(handed_out)


async def test_a_backup_beside_the_log_of_the_store_that_it_replaces_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path / "data") as (store, journal):
        await store.write(pod("a"), put(b"old"))
        await journal.backup(tmp_path / "backup")
        await store.write(pod("a"), put(b"new"))
        log = (tmp_path / "data" / f"{FILE_NAME}-wal").read_bytes()
    restore(tmp_path / "backup", tmp_path / "killed")
    (tmp_path / "killed" / f"{FILE_NAME}-wal").write_bytes(log)
    with pytest.raises(StoreError, match=r"store\.db-wal is of the store that it replaces: move that away"):
        async with opened(tmp_path / "killed"):
            pass
    (tmp_path / "killed" / f"{FILE_NAME}-wal").unlink()
    async with opened(tmp_path / "killed") as (store, _):
        assert contents(store) == {"pods default/a": b"old"}


async def test_nothing_is_written_over_unless_asked(tmp_path: Path) -> None:
    target = tmp_path / "backup"
    target.write_bytes(b"precious")
    async with opened(tmp_path / "data") as (store, journal):
        await store.write(pod("a"), put())
        with pytest.raises(BackupError, match=f"{target} exists"):
            await journal.backup(target)
        assert target.read_bytes() == b"precious"
        await journal.backup(target, replace=True)
    with closing(sqlite3.connect(target)) as connection:
        assert connection.execute("SELECT count(*) FROM versions").fetchone() == (1,)


async def test_a_backup_to_where_nothing_can_be_written_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path / "data") as (store, journal):
        with pytest.raises(BackupError, match="can't be written"):
            await journal.backup(tmp_path / "missing" / "backup")
        await store.write(pod("a"), put())


async def test_a_snapshot_is_a_backup_that_nobody_else_sees(tmp_path: Path) -> None:
    async with opened(tmp_path / "data") as (store, journal):
        await store.write(pod("a"), put(b"x" * 1_000_000))
        chunks = await journal.snapshot()
        assert {path.name for path in (tmp_path / "data").iterdir()} == {"store.db", "store.db-wal", "lock"}
        await store.write(pod("b"), put())
        content = b"".join([chunk async for chunk in chunks])
    (tmp_path / "restored").mkdir()
    (tmp_path / "restored" / FILE_NAME).write_bytes(content)
    async with opened(tmp_path / "restored") as (store, _):
        assert contents(store) == {"pods default/a": b"x" * 1_000_000}


async def test_a_snapshot_ends_with_an_error_when_the_store_is_closed(tmp_path: Path) -> None:
    async with opened(tmp_path / "data") as (store, journal):
        await store.write(pod("a"), put(b"x" * 1_000_000))
        chunks = await journal.snapshot()
        assert len(await anext(chunks)) > 0
        await store.close()
        with pytest.raises(BackupError, match="closed"):
            await anext(chunks)


async def test_what_a_killed_backup_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / f".{FILE_NAME}.abc.partial").write_bytes(b"secret")
    (tmp_path / "else.partial").write_bytes(b"not ours")
    async with opened(tmp_path):
        assert not (tmp_path / f".{FILE_NAME}.abc.partial").exists()
        assert (tmp_path / "else.partial").exists()


@pytest.mark.parametrize("by", ["cancelling", "closing"])
async def test_a_backup_that_is_given_up_leaves_nothing(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_backup, "STEP_PAGES", 1)
    (tmp_path / "copies").mkdir()
    async with opened(tmp_path / "data") as (store, journal):
        await asyncio.gather(*(store.write(pod(f"{n}"), put(b"x" * 9000)) for n in range(300)))
        backup = asyncio.ensure_future(journal.backup(tmp_path / "copies" / "backup"))
        # The second write is acknowledged between two steps: the backup is under way.
        await store.write(pod("a"), put())
        await store.write(pod("b"), put())
        if by == "cancelling":
            backup.cancel()
            with pytest.raises(asyncio.CancelledError):
                await backup
            await store.write(pod("c"), put())
        else:
            await store.close()
            with pytest.raises(BackupError, match="closed before the backup"):
                await backup
        assert list((tmp_path / "copies").iterdir()) == []


async def test_backups_wait_for_each_other(tmp_path: Path) -> None:
    async with opened(tmp_path / "data") as (store, journal):
        await store.write(pod("a"), put())
        await asyncio.gather(*(journal.backup(tmp_path / f"{n}") for n in range(3)))
    sizes = {(tmp_path / f"{n}").stat().st_size for n in range(3)}
    assert len(sizes) == 1
