"""What the tests of the SQLite store share: a clock that stands still, and short ways to write."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from pathlib import Path

from runherd.local.apiserver.sqlite_journal import FILE_NAME, SqliteJournal, sqlite_store
from runherd.local.apiserver.store import Change, Key, Limits, Record, Store

#: With a clock that stands here, revisions start at 1, as in memory.
EPOCH = datetime.fromtimestamp(0, UTC)


class StoppedClock:
    def __init__(self, moment: datetime = EPOCH) -> None:
        self.moment = moment

    def now(self) -> datetime:
        return self.moment


def pod(name: str, namespace: str = "default") -> Key:
    return Key("pods", namespace, name)


def put(value: bytes = b"{}") -> Callable[[Record | None, int], Change]:
    return lambda current, revision: Change(value)


def remove(current: Record | None, revision: int) -> Change:
    assert current is not None
    return Change(current.value, deleted=True)


@asynccontextmanager
async def opened(
    directory: Path, moment: datetime = EPOCH, limits: Limits | None = None
) -> AsyncIterator[tuple[Store, SqliteJournal]]:
    store, journal = sqlite_store(directory, StoppedClock(moment), limits)
    await store.open()
    try:
        yield store, journal
    finally:
        await store.close()


def contents(store: Store) -> dict[str, bytes]:
    return {f"{resource} {r.key.path}": r.value for resource in store.resources() for r in store.list(resource)}


def query(directory: Path, statement: str) -> list[tuple[object, ...]]:
    """Look into the file of a store that is closed."""
    with closing(sqlite3.connect(directory / FILE_NAME, timeout=0)) as connection:
        rows: list[tuple[object, ...]] = connection.execute(statement).fetchall()
        connection.commit()
        return rows
