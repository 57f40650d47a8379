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
from tests.local.apiserver.sqlite_stores import contents, opened, pod, put, remove

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


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
    async with opened(tmp_path / "data") as (store, journal):
        await asyncio.gather(*(store.write(pod(f"{n}"), put(b"x" * 9000)) for n in range(300)))
        backup = asyncio.ensure_future(journal.backup(tmp_path / "backup"))
        written = 0
        while not backup.done():
            # Each of these is acknowledged while the backup is under way: it waits for one step, not for all.
            await store.write(pod(f"{written % 300}"), put(b"y" * 9000))
            written += 1
        await backup
        assert written > 50
        current = contents(store)
    restore(tmp_path / "backup", tmp_path / "restored")
    async with opened(tmp_path / "restored") as (store, _):
        restored = contents(store)
    # Consistent: of the writes, made one after the other, it has the first so many and no other.
    copied = [restored[f"pods default/{n}"][:1] for n in range(300)]
    assert restored.keys() == current.keys()
    if written <= 300:
        assert copied == sorted(copied, reverse=True)
    assert written - 2 <= copied.count(b"y") or written > 300


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
