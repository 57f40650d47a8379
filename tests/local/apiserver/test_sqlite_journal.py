import asyncio
import stat
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from runherd.local.apiserver.sqlite_errors import StoreLockedError
from runherd.local.apiserver.sqlite_journal import FILE_NAME
from runherd.local.apiserver.store import CompactedError, Key, Limits, Store, StoreClosedError
from tests.local.apiserver.sqlite_stores import contents, opened, pod, put, query, remove

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


async def test_what_was_acknowledged_is_there_after_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, _):
        await store.write(pod("a"), put(b"1"))
        await store.write(pod("a"), put(b"2"))
        await store.write(pod("gone"), put(b"g"))
        await store.write(pod("gone"), remove)
        await store.write(Key("nodes", "", "n"), put(b"n"))
        revisions = {r.key: r.revision for r in store.list("pods")}
        last = store.revision
    async with opened(tmp_path) as (store, _):
        assert contents(store) == {"pods default/a": b"2", "nodes n": b"n"}
        assert {r.key: r.revision for r in store.list("pods")} == revisions
        assert store.revision == last


async def test_a_watch_goes_on_where_it_was_before_the_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, _):
        await store.write(pod("a"), put(b"1"))
        then = store.revision
        await store.write(pod("a"), put(b"2"))
        await store.write(pod("a"), remove)
        await store.write(pod("a"), put(b"3"))
    async with opened(tmp_path) as (store, _):
        events = store.watch("pods", then).take()
        assert [(e.type, e.record.value, e.previous and e.previous.value) for e in events] == [
            ("MODIFIED", b"2", b"1"),
            ("DELETED", b"2", b"2"),
            ("ADDED", b"3", None),
        ]
        assert [r.value for r in store.list("pods", revision=then)] == [b"1"]


async def test_the_file_holds_current_objects_and_the_bounded_history_only(tmp_path: Path) -> None:
    limits = Limits(events=3)
    async with opened(tmp_path, limits=limits) as (store, _):
        await store.write(pod("kept"), put(b"k"))
        for n in range(20):
            await store.write(pod("a"), put(b"%d" % n))
        for name in "bcd":
            await store.write(pod(name), put())
            await store.write(pod(name), remove)
        last = store.revision
    # The last three events are: d's deletion and creation, c's deletion. That one replaced c's creation.
    rows = query(tmp_path, "SELECT name, deleted FROM versions ORDER BY revision")
    assert rows == [("kept", 0), ("a", 0), ("c", 0), ("c", 1), ("d", 0), ("d", 1)]
    async with opened(tmp_path, limits=limits) as (store, _):
        assert set(contents(store)) == {"pods default/kept", "pods default/a"}
        events = store.watch("pods", last - 3).take()
        assert [(e.type, e.record.key.name) for e in events] == [("DELETED", "c"), ("ADDED", "d"), ("DELETED", "d")]
        with pytest.raises(CompactedError):
            store.watch("pods", last - 4)


async def test_history_is_bounded_by_size_too_and_within_one_batch(tmp_path: Path) -> None:
    async with opened(tmp_path, limits=Limits(size=10)) as (store, _):
        await asyncio.gather(*(store.write(pod("a"), put(b"12345")) for _ in range(3)))
        await asyncio.gather(*(store.write(pod(name), put(b"1234567")) for name in "bcdef"))
    assert query(tmp_path, "SELECT name FROM versions ORDER BY revision") == [(name,) for name in "abcdef"]
    async with opened(tmp_path) as (store, _):
        # What larger limits would hold now is not mistaken for history without gaps.
        assert [e.record.key.name for e in store.watch("pods", store.revision - 1).take()] == ["f"]
        with pytest.raises(CompactedError):
            store.watch("pods", store.revision - 2)


async def test_a_batch_may_be_larger_than_a_statement(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, _):
        await asyncio.gather(*(store.write(pod(f"{n}"), put(b"%d" % n)) for n in range(1000)))
        before = contents(store)
    async with opened(tmp_path) as (store, _):
        assert len(before) == 1000
        assert contents(store) == before


async def test_opening_starts_at_the_clock_so_that_an_old_copy_repeats_no_revision(tmp_path: Path) -> None:
    async with opened(tmp_path / "a", NOON) as (store, _):
        await store.write(pod("common"), put())
        common = store.revision
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / FILE_NAME).write_bytes((tmp_path / "a" / FILE_NAME).read_bytes())
    async with opened(tmp_path / "a", NOON + timedelta(seconds=1)) as (store, _):
        handed_out = {(await store.write(pod(f"{n}"), put())).revision for n in range(10)}
    async with opened(tmp_path / "b", NOON + timedelta(seconds=2)) as (store, _):
        assert {(await store.write(pod(f"{n}"), put())).revision for n in range(10)}.isdisjoint(handed_out)
        # Who knows the common past goes on from it; who knows more than this copy has to start afresh.
        assert len(store.watch("pods", common).take()) == 10
        for revision in handed_out:
            with pytest.raises(CompactedError):
                store.watch("pods", revision)
            with pytest.raises(CompactedError):
                store.list("nodes", revision=revision)
    async with opened(tmp_path / "b", NOON + timedelta(seconds=3)) as (store, _):
        assert len(store.watch("pods", common).take()) == 10
        for revision in handed_out:
            with pytest.raises(CompactedError):
                store.watch("pods", revision)


async def test_revisions_go_up_when_the_clock_goes_back(tmp_path: Path) -> None:
    async with opened(tmp_path, NOON) as (store, _):
        last = (await store.write(pod("a"), put())).revision
    async with opened(tmp_path, NOON - timedelta(days=1)) as (store, _):
        assert store.revision == last
    async with opened(tmp_path, NOON + timedelta(days=1)) as (store, _):
        shown = store.revision
        assert shown > last
    async with opened(tmp_path, NOON) as (store, _):
        assert (await store.write(pod("b"), put())).revision > shown


async def test_what_reads_showed_is_remembered_even_if_nothing_was_written(tmp_path: Path) -> None:
    left = tmp_path / "left"
    left.mkdir()
    async with opened(tmp_path / "data", NOON) as (store, _):
        shown = store.revision
        for name in (FILE_NAME, f"{FILE_NAME}-wal"):
            (left / name).write_bytes((tmp_path / "data" / name).read_bytes())
    async with opened(left, NOON - timedelta(days=1)) as (store, _):
        assert (await store.write(pod("a"), put())).revision > shown


async def test_files_are_private_and_a_clean_stop_leaves_one(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "data"
    async with opened(directory) as (store, _):
        await store.write(Key("secrets", "default", "s"), put())
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in directory.iterdir()}
        # No shared memory: nothing is mapped.
        assert modes == {"store.db": 0o600, "store.db-wal": 0o600, "lock": 0o600}
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {file.name for file in directory.iterdir()} == {"store.db", "lock"}


async def test_a_second_opening_in_the_same_process_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path):
        with pytest.raises(StoreLockedError, match=f"{tmp_path} is in use by process"):
            async with opened(tmp_path):
                pass


HOLD = """
import asyncio, sys
from pathlib import Path
from runherd.local.apiserver.sqlite_journal import sqlite_store
from runherd.wire.clock import SystemClock

async def hold():
    store, _ = sqlite_store(Path(sys.argv[1]), SystemClock())
    await store.open()
    print("open", flush=True)
    sys.stdin.read()

asyncio.run(hold())
"""


async def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLD, str(tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        assert await holder.stdout.readline() == b"open\n"
        with pytest.raises(StoreLockedError) as refusal:
            async with opened(tmp_path):
                pass
        assert f"process {holder.pid}," in str(refusal.value)
        assert str(tmp_path) in str(refusal.value)
    finally:
        holder.kill()
        await holder.communicate()
    async with opened(tmp_path) as (store, _):
        await store.write(pod("a"), put())


async def test_a_failed_opening_leaves_nothing_behind(tmp_path: Path) -> None:
    threads = threading.active_count()
    (tmp_path / FILE_NAME).mkdir()
    with pytest.raises(Exception, match=FILE_NAME):
        async with opened(tmp_path):
            pass
    assert threading.active_count() == threads
    (tmp_path / FILE_NAME).rmdir()
    async with opened(tmp_path):
        pass


async def test_a_slow_checkpoint_holds_up_no_read_and_no_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, finish = threading.Event(), threading.Event()

    def slow_maintenance(*_: object) -> None:
        started.set()
        assert finish.wait(60)

    async with opened(tmp_path) as (store, journal):
        database = journal._database
        assert database is not None
        maintain = database.maintain
        monkeypatch.setattr(database, "maintain", slow_maintenance)
        cursor = store.watch("pods", store.revision)
        waiting = asyncio.ensure_future(cursor.wait())
        await asyncio.sleep(0)
        # This write is acknowledged and seen although what comes after it takes long.
        await store.write(pod("a"), put(b"a"))
        await waiting
        assert [e.record.key.name for e in cursor.take()] == ["a"]
        await asyncio.to_thread(started.wait)
        held_up = asyncio.ensure_future(store.write(pod("b"), put()))
        for _ in range(100):
            await asyncio.sleep(0)
            record = store.get(pod("a"))
            assert record is not None
            assert record.value == b"a"
            assert [r.key.name for r in store.list("pods")] == ["a"]
        assert not held_up.done()
        monkeypatch.setattr(database, "maintain", maintain)
        finish.set()
        await held_up
        assert [e.record.key.name for e in cursor.take()] == ["b"]


async def test_closing_twice_is_closing_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, journal):
        await store.close()
        await journal.close()
        with pytest.raises(StoreClosedError):
            await store.write(pod("a"), put())


async def test_a_store_that_was_never_closed_loses_nothing_acknowledged(tmp_path: Path) -> None:
    """The files as they are while the store is open are what a killed process leaves."""
    left = tmp_path / "left"
    left.mkdir()
    async with opened(tmp_path / "data") as (store, _):
        for n in range(5):
            await store.write(pod("a"), put(b"%d" % n))
        for name in (FILE_NAME, f"{FILE_NAME}-wal"):
            (left / name).write_bytes((tmp_path / "data" / name).read_bytes())
    async with opened(left) as (store, _):
        assert isinstance(store, Store)
        assert contents(store) == {"pods default/a": b"4"}
