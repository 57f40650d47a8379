"""kill -9 at seeded moments: no acknowledged write is lost, no batch is torn, the store opens, again and again."""

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from runherd.local.apiserver.sqlite_journal import FILE_NAME, sqlite_store
from runherd.local.apiserver.store import Store
from runherd.wire.clock import SystemClock
from tests.local.apiserver.crash.hammer import KEYS, LIMITS, deletes, key_of, value_of

#: Stores, each of which is killed so often: 50 moments of single writes, 20 of batches.
KILLS = 5
OBJECT_STORES = [pytest.param(n, marks=[pytest.mark.slow] if n else []) for n in range(10)]
BATCH_STORES = [pytest.param(n, marks=[pytest.mark.slow] if n else []) for n in range(4)]


def kill_after(acknowledgements: int, *arguments: object) -> list[list[int]]:
    """Run the hammer, kill it at once when it has reported so many writes. Returns all that it reported."""
    command = [sys.executable, "-m", "tests.local.apiserver.crash.hammer", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as hammer:
        assert hammer.stdout is not None
        try:
            assert hammer.stdout.readline() == b"open\n"
            lines = [hammer.stdout.readline() for _ in range(acknowledgements)]
        finally:
            hammer.kill()
        lines += hammer.stdout.readlines()
    assert hammer.returncode == -9
    # A line is one write to a pipe, so it comes whole.
    return [[int(number) for number in line.split()] for line in lines]


async def reopened(directory: Path) -> Store:
    store, _ = sqlite_store(directory, SystemClock(), LIMITS)
    await store.open()
    return store


def checkpoint_size(random: Random) -> int:
    """Mostly so small that a kill often meets a checkpoint."""
    return random.choice([16 * 1024, 64 * 1024, 512 * 1024, 16 * 2**20])


@pytest.mark.parametrize("seed", OBJECT_STORES)
async def test_no_acknowledged_write_is_lost(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    counts = [0] * KEYS
    last = 0
    for _ in range(KILLS):
        size = checkpoint_size(random)
        reports = kill_after(random.randint(1, 600), "objects", tmp_path, seed, size, *counts)
        acknowledged = list(counts)
        for number, count, revision in reports:
            assert count == acknowledged[number] + 1
            acknowledged[number] = count
            last = max(last, revision)
        store = await reopened(tmp_path)
        try:
            assert store.revision >= last
            for number, count in enumerate(acknowledged):
                counts[number] = found(store, seed, number, count)
            assert store.count("configmaps") == sum(store.get(key_of(number)) is not None for number in range(KEYS))
            check_history(store)
        finally:
            await store.close()


def found(store: Store, seed: int, number: int, acknowledged: int) -> int:
    """How often the key was written, by what the store has. The write that was under way may be in it, or not."""
    record = store.get(key_of(number))
    if record is not None:
        count = int(record.value.split()[0])
        assert record.value == value_of(seed, number, count)
        assert not deletes(seed, number, count)
        assert count in {acknowledged, acknowledged + 1}, f"key {number}: {count}, acknowledged {acknowledged}"
        return count
    if acknowledged == 0 or deletes(seed, number, acknowledged):
        return acknowledged
    assert deletes(seed, number, acknowledged + 1), f"key {number} is lost, acknowledged {acknowledged}"
    return acknowledged + 1


def check_history(store: Store) -> None:
    """What watches get told leads to what is there, step by step."""
    cursor = store.watch("configmaps", store._started_at)
    events = cursor.take()
    assert events
    assert len(events) <= LIMITS.events
    revisions = [event.revision for event in events]
    assert revisions == sorted(set(revisions))
    known = {r.key: r.value for r in store.list("configmaps", revision=store._started_at)} if store._started_at else {}
    for event in events:
        previous = event.previous.value if event.previous else None
        assert known.get(event.record.key) == previous
        if event.type == "DELETED":
            del known[event.record.key]
        else:
            known[event.record.key] = event.record.value
    assert known == {r.key: r.value for r in store.list("configmaps")}


@pytest.mark.parametrize("seed", BATCH_STORES)
async def test_no_batch_is_torn(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    for _ in range(KILLS):
        reports = kill_after(random.randint(1, 60), "batches", tmp_path, seed, checkpoint_size(random))
        store = await reopened(tmp_path)
        try:
            records = list(store.list("configmaps"))
            assert len(records) == KEYS
            (count,) = {int(record.value.split()[0]) for record in records}
            assert count >= reports[-1][0]
            assert {r.key: r.value for r in records} == {key_of(n): value_of(seed, n, count) for n in range(KEYS)}
        finally:
            await store.close()


def test_a_kill_leaves_a_log_behind(tmp_path: Path) -> None:
    """So the tests above do go through recovery."""
    kill_after(50, "objects", tmp_path, 0, 16 * 2**20, *[0] * KEYS)
    assert (tmp_path / f"{FILE_NAME}-wal").stat().st_size > 0
