"""The process that gets killed: writes without a pause, and reports on its output what was acknowledged.

``python -m tests.local.apiserver.crash.hammer objects|batches DIRECTORY SEED CHECKPOINT_SIZE``

What it writes follows from the seed, the key and how often the key has been written, so that whoever reads the store
later can tell what must be there.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

from runherd.local.apiserver import sqlite_database
from runherd.local.apiserver.sqlite_journal import SqliteJournal, sqlite_store
from runherd.local.apiserver.store import Change, Event, Key, Limits, Record, Store
from runherd.wire.clock import SystemClock

#: Keys of "objects", each written by a task of its own; keys of each of "batches".
KEYS = 48
#: Small, so that pruning is part of most transactions.
LIMITS = Limits(events=200)


def key_of(number: int) -> Key:
    return Key("configmaps", "default", f"key-{number}")


def value_of(seed: int, number: int, count: int) -> bytes:
    """What the ``count``-th write of a key writes: the count, and some content of 1 to 9,000 bytes."""
    digest = hashlib.sha256(f"{seed} {number} {count}".encode()).hexdigest().encode()
    return b"%d " % count + (digest * 150)[: 1 + int(digest[:4], 16) % 9000]


def deletes(seed: int, number: int, count: int) -> bool:
    """Whether the ``count``-th write of a key is a deletion (never two in a row)."""

    def drawn(count: int) -> bool:
        return hashlib.sha256(f"delete {seed} {number} {count}".encode()).digest()[0] < 64

    return count > 1 and drawn(count) and not drawn(count - 1)


def report(line: str) -> None:
    os.write(1, f"{line}\n".encode())


async def write_objects(store: Store, seed: int, counts: list[int]) -> None:
    async def write(number: int) -> None:
        count = counts[number]
        while True:
            count += 1
            record = await store.write(key_of(number), _decision(seed, number, count))
            report(f"{number} {count} {record.revision}")

    await asyncio.gather(*(write(number) for number in range(KEYS)))


def _decision(seed: int, number: int, count: int) -> Callable[[Record | None, int], Change]:
    def decide(current: Record | None, revision: int) -> Change:
        is_deletion = deletes(seed, number, count)
        if is_deletion and current is None:
            raise AssertionError(f"key {number} is gone before its deletion {count}")
        return Change(value_of(seed, number, count), deleted=is_deletion)

    return decide


async def write_batches(journal: SqliteJournal, seed: int, revision: int, records: dict[Key, Record]) -> None:
    """All keys at once, over and over, in one append."""
    count = revision
    while True:
        events = []
        count = revision
        for number in range(KEYS):
            revision += 1
            record = Record(key_of(number), value_of(seed, number, count), revision)
            previous = records.get(record.key)
            events.append(Event("MODIFIED" if previous else "ADDED", record, previous))
            records[record.key] = record
        await journal.append(events)
        report(f"{count}")


async def main(mode: str, directory: Path, seed: int, counts: list[int]) -> None:
    store, journal = sqlite_store(directory, SystemClock(), LIMITS)
    if mode == "objects":
        await store.open()
        report("open")
        await write_objects(store, seed, counts)
    else:
        contents = await journal.load()
        report("open")
        await write_batches(journal, seed, contents.revision, {record.key: record for record in contents.records})


if __name__ == "__main__":
    sqlite_database.CHECKPOINT_SIZE = int(sys.argv[4])
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), [int(n) for n in sys.argv[5:]]))
