"""What keeps the file and its log small, and what a full disk does."""

import asyncio
import logging
import os
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from runherd.local.apiserver import sqlite_database
from runherd.local.apiserver.sqlite_database import Database
from runherd.local.apiserver.sqlite_journal import FILE_NAME, SqliteJournal
from runherd.local.apiserver.store import Limits, Store, StoreError, StoreFullError
from tests.local.apiserver.sqlite_stores import EPOCH, contents, opened, pod, put, query, remove

LOG_NAME = f"{FILE_NAME}-wal"


async def on_thread(journal: SqliteJournal, statement: str) -> int:
    assert journal._thread is not None
    assert journal._database is not None
    return await journal._thread.run(journal._database._scalar, statement)


async def test_the_log_is_emptied_when_it_gets_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_database, "CHECKPOINT_SIZE", 256 * 1024)
    sizes = []
    async with opened(tmp_path, limits=Limits(events=10)) as (store, journal):
        for n in range(300):
            await store.write(pod(f"{n % 3}"), put(b"x" * 5000))
            await on_thread(journal, "SELECT 1")
            sizes.append((tmp_path / LOG_NAME).stat().st_size)
        # Three objects and ten events, 5 KB each: the same pages over and over.
        assert (tmp_path / FILE_NAME).stat().st_size < 256 * 1024
    assert 0 in sizes
    assert max(sizes) <= 256 * 1024 + 16 * 8192


@pytest.mark.slow
async def test_space_of_deleted_objects_goes_back_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_database, "CHECKPOINT_SIZE", 64 * 1024)
    monkeypatch.setattr(sqlite_database, "UNUSED_PAGES", 16)
    monkeypatch.setattr(sqlite_database, "VACUUM_PAGES", 8)
    async with opened(tmp_path, limits=Limits(events=10)) as (store, journal):
        for _ in range(2):
            await asyncio.gather(*(store.write(pod(f"{n}"), put(b"x" * 5000)) for n in range(500)))
            await on_thread(journal, "SELECT 1")
            assert (tmp_path / FILE_NAME).stat().st_size > 2_000_000
            await asyncio.gather(*(store.write(pod(f"{n}"), remove) for n in range(500)))
            for _ in range(20):
                await store.write(pod("last"), put(b"y" * 5000))
            assert journal._thread is not None
            assert journal._database is not None
            await journal._thread.run(journal._database.maintain, lambda: True)
            assert await on_thread(journal, "PRAGMA freelist_count") <= 16
            assert (tmp_path / FILE_NAME).stat().st_size < 500_000
            await store.write(pod("last"), remove)
    assert query(tmp_path, "PRAGMA integrity_check") == [("ok",)]


async def test_the_connection_maps_nothing_and_acknowledges_what_is_on_the_disk(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_, journal):
        settings = ("mmap_size", "synchronous", "wal_autocheckpoint", "auto_vacuum", "page_size")
        assert [await on_thread(journal, f"PRAGMA {name}") for name in settings] == [0, 2, 0, 2, 8192]


async def test_another_program_can_not_open_the_file_meanwhile(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, _):
        await store.write(pod("a"), put())
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            query(tmp_path, "SELECT * FROM versions")


async def test_a_file_that_another_program_has_open_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path):
        pass
    other = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=r"another program has .*store\.db open"):
            async with opened(tmp_path):
                pass
    finally:
        other.close()


@pytest.mark.parametrize("seed", range(3))
async def test_a_full_file_refuses_writes_and_nothing_else(seed: int, tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, journal):
        await store.write(pod("a"), put(b"a"))
        pages = await on_thread(journal, "PRAGMA page_count")
        await on_thread(journal, f"PRAGMA max_page_count = {pages + seed}")
        await check_full(store)
        await on_thread(journal, "PRAGMA max_page_count = 1000000")
        await store.write(pod("big"), put(b"x" * 100_000))
        before = contents(store)
    async with opened(tmp_path) as (store, _):
        assert contents(store) == before


async def check_full(store: Store) -> None:
    """Large writes fail for lack of space; reads and watches don't notice, and no part of a batch is seen."""
    cursor = store.watch("pods", store.revision)
    revision = store.revision
    writes = [store.write(pod(f"new{n}"), put(b"x" * 1_000_000)) for n in range(20)]
    for outcome in await asyncio.gather(*writes, return_exceptions=True):
        assert isinstance(outcome, StoreFullError), outcome
        assert "no space is left" in str(outcome)
    assert store.revision == revision
    assert cursor.take() == []
    assert contents(store)["pods default/a"] == b"a"


@contextmanager
def small_disk(directory: Path, size: str) -> Iterator[Path]:
    """A file system of its own, that can be filled. Skips the test where we may not mount one."""
    directory.mkdir()
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: a really full disk, for which root has to mount a small one")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "runherd-test", str(directory)],
        check=False,
        capture_output=True,
        text=True,
    )
    if mounted.returncode != 0:
        pytest.skip(f"NOT TESTED: a really full disk, since no small one could be mounted: {mounted.stderr.strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)


@asynccontextmanager
async def opened_on(disk: Path) -> AsyncIterator[tuple[Store, SqliteJournal]]:
    async with opened(disk / "data", limits=Limits(events=5)) as opening:
        yield opening


async def test_a_full_disk_refuses_writes_and_nothing_else(tmp_path: Path) -> None:
    """The log can't grow; later it can't be copied into the file either."""
    with small_disk(tmp_path / "disk", "6m") as disk:
        async with opened_on(disk) as (store, _):
            await store.write(pod("a"), put(b"a"))
            ballast = fill(disk)
            acknowledged = {"pods default/a": b"a"}
            refused = 0
            for n in range(100):
                try:
                    await store.write(pod(f"small{n}"), put(b"%d" % n))
                except StoreFullError:
                    refused += 1
                else:
                    acknowledged[f"pods default/small{n}"] = b"%d" % n
            assert refused > 50
            assert contents(store) == acknowledged
            await check_full(store)
            ballast.unlink()
            await store.write(pod("after"), put(b"after"))
            acknowledged["pods default/after"] = b"after"
            assert contents(store) == acknowledged
            fill(disk)
        # Opened on a full disk, after a close that could write nothing.
        async with opened_on(disk) as (store, _):
            assert contents(store) == acknowledged


def fill(disk: Path) -> Path:
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError as error:
            assert error.strerror == "No space left on device"  # noqa: PT017 - it is what filling ends with
    return ballast


async def test_a_log_that_can_not_be_emptied_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sqlite_database, "CHECKPOINT_SIZE", 16 * 1024)
    with small_disk(tmp_path / "disk", "6m") as disk:
        async with opened_on(disk) as (store, journal):
            await store.write(pod("a"), put(b"x" * 10))
            database = journal._database
            assert database is not None
            acknowledged = 0
            ballast: Path | None = None
            with caplog.at_level(logging.WARNING):
                try:
                    for n in range(1000):
                        await store.write(pod(f"{n}"), put(b"%d" % n * 2000))
                        acknowledged += 1
                        if n == 20:
                            # What was written so far is in the file; what comes now finds no space there.
                            ballast = disk / "ballast"
                            free = os.statvfs(disk)
                            ballast.write_bytes(bytes((free.f_bavail - 30) * free.f_bsize))
                except StoreFullError:
                    pass
            assert acknowledged > 20
            assert ballast is not None
            assert store.count("pods") == acknowledged + 1
            ballast.unlink()
            await store.write(pod("after"), put())
            before = contents(store)
        async with opened_on(disk) as (store, _):
            assert contents(store) == before
        assert not any(b"x" * 10 in record.getMessage().encode() for record in caplog.records)


async def test_a_log_that_can_not_be_emptied_does_not_grow_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sqlite_database, "CHECKPOINT_SIZE", 16 * 1024)
    monkeypatch.setattr(sqlite_database, "MAXIMUM_LOG_SIZE", 128 * 1024)
    failing = True

    def checkpoint(database: Database) -> None:
        if failing:
            raise sqlite3.OperationalError("disk I/O error")
        database.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    monkeypatch.setattr(Database, "_checkpoint", checkpoint)
    async with opened(tmp_path) as (store, journal):
        refusal: StoreError | None = None
        for n in range(100):
            try:
                await store.write(pod(f"{n}"), put(b"x" * 5000))
            except StoreError as error:
                refusal = error
                break
            await on_thread(journal, "SELECT 1")
        assert "disk I/O error" in str(refusal)
        assert (tmp_path / LOG_NAME).stat().st_size < 256 * 1024
        failing = False
        await store.write(pod("after"), put())
        await on_thread(journal, "SELECT 1")
        assert (tmp_path / LOG_NAME).stat().st_size < 128 * 1024
        before = contents(store)
    assert len([record for record in caplog.records if "could not be emptied" in record.message]) == 1
    async with opened(tmp_path) as (store, _):
        assert contents(store) == before


def test_a_database_is_opened_and_closed_by_one_thread(tmp_path: Path) -> None:
    database, loaded = Database.open(tmp_path / FILE_NAME, Limits(), EPOCH)
    assert loaded.revision == 0
    database.close()
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]
