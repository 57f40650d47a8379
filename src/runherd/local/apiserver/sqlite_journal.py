"""Durability for a :class:`Store`: a journal in a SQLite file, written by one thread through one connection."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from runherd.local.apiserver.data_directory import DirectoryLock
from runherd.local.apiserver.sqlite_backup import copy_database, open_copy, remove_partial_copies
from runherd.local.apiserver.sqlite_database import Database
from runherd.local.apiserver.sqlite_errors import BackupError, translate_os
from runherd.local.apiserver.sqlite_schema import has_wal_reset_bug
from runherd.local.apiserver.store import Contents, Event, Limits, Store, StoreClosedError
from runherd.local.apiserver.writer_thread import WriterThread
from runherd.wire.clock import Clock

__all__ = ["FILE_NAME", "SqliteJournal", "sqlite_store"]

log = logging.getLogger(__name__)

#: The store's file in its data directory.
FILE_NAME = "store.db"
#: Bytes of a snapshot that are read at a time.
SNAPSHOT_CHUNK = 2**18

T = TypeVar("T")


def sqlite_store(directory: Path, clock: Clock, limits: Limits | None = None) -> tuple[Store, SqliteJournal]:
    """The store in a data directory, which is made when it is missing; to be opened and closed by :class:`Store`.

    The journal is there for :meth:`SqliteJournal.backup`; everything else goes through the store.

    Opening raises a :class:`StoreError` that says what to do: :class:`StoreLockedError` when a process has the
    directory, :class:`StoreVersionError` when the store is of a newer version, :class:`StoreDamagedError`, or
    :class:`StoreFullError`.
    """
    limits = limits or Limits()
    journal = SqliteJournal(directory, clock, limits)
    return Store(journal, limits), journal


class SqliteJournal:
    """Keeps a store in ``store.db`` in a directory of its own.

    Opening starts at a revision above all that this file, or a copy of it, may ever have handed out (see
    ``docs/embedded-api-server-storage.md``): the clock in microseconds, or what the file holds when that is more.
    """

    def __init__(self, directory: Path, clock: Clock, limits: Limits) -> None:
        self._directory = directory
        self._clock = clock
        self._limits = limits
        self._lock: DirectoryLock | None = None
        self._thread: WriterThread | None = None
        self._database: Database | None = None
        self._closing = False
        # Between the steps of a backup, the thread runs what waits; that must be appends only.
        self._exclusive = asyncio.Lock()

    async def load(self) -> Contents:
        """Lock the directory, open, check and read the file. Raises what :func:`sqlite_store` says."""
        if has_wal_reset_bug():
            log.debug(
                "this SQLite (3.7.0 to 3.51.2) can corrupt a log that two connections reset at once; "
                "the store has one connection, and keeps others out: %s",
                sqlite3.sqlite_version,
            )
        self._thread = WriterThread("runherd-store")
        try:
            return await self._thread.run(self._open)
        except BaseException:
            self._release()
            raise

    def _open(self) -> Contents:
        try:
            self._lock = DirectoryLock.acquire(self._directory)
        except OSError as error:
            raise translate_os(error, self._directory) from error
        path = self._directory / FILE_NAME
        remove_partial_copies(path)
        self._database, contents = Database.open(path, self._limits, self._clock.now())
        return contents

    async def append(self, events: Sequence[Event]) -> None:
        """Make ``events`` durable in one transaction. See :class:`Journal`."""
        thread, database = self._opened()
        await thread.run(database.append, events)
        # Not waited for: whoever wrote need not. The next append is after it in line.
        thread.submit(database.maintain, lambda: thread.is_idle).add_done_callback(_log_failure)

    async def backup(self, target: Path, replace: bool = False) -> None:
        """Write a consistent copy of the store to ``target``, while writes go on; see :func:`copy_database`.

        To restore it, put it in the place of a stopped store's ``store.db`` and move that one's ``store.db-wal`` away.
        Raises :class:`BackupError`; closing the store ends a backup under way with one.
        """
        _, database = self._opened()
        await self._copy(lambda between_steps: copy_database(database.connection, target, replace, between_steps))

    async def snapshot(self) -> AsyncIterator[bytes]:
        """The bytes of a backup, as of now, without a file that others see. Raises :class:`BackupError`.

        Takes as much space beside the store as the store does, until the iterator is closed.
        """
        thread, database = self._opened()
        file = await self._copy(lambda between_steps: open_copy(database.connection, database.path, between_steps))

        async def chunks() -> AsyncIterator[bytes]:
            with file:
                while chunk := await thread.run(file.read, SNAPSHOT_CHUNK):
                    yield chunk
                    if self._closing:
                        raise BackupError("the store was closed before all of the backup was read")

        return chunks()

    async def _copy(self, copy: Callable[[Callable[[], None]], T]) -> T:
        """Run a copy on the thread, with a function to call between its steps. Only returns when it has ended."""
        cancelled = False

        def let_others_in() -> None:
            if self._closing or cancelled:
                raise BackupError("the store was closed before the backup was complete")
            thread.run_pending()

        async with self._exclusive:
            thread, _ = self._opened()
            copying = asyncio.wrap_future(thread.submit(copy, let_others_in))
            try:
                return await asyncio.shield(copying)
            except asyncio.CancelledError:
                cancelled = True
                while not copying.done():
                    with suppress(asyncio.CancelledError):
                        await asyncio.wait([copying])
                raise

    async def close(self) -> None:
        """Empty the log into the file, release file and directory. A backup under way is given up."""
        self._closing = True
        async with self._exclusive:
            if self._thread is not None and self._database is not None:
                try:
                    await self._thread.run(self._database.close)
                finally:
                    self._release()

    def _opened(self) -> tuple[WriterThread, Database]:
        if self._thread is None or self._database is None:
            raise StoreClosedError("the store is not open")
        return self._thread, self._database

    def _release(self) -> None:
        if self._thread is not None:
            self._thread.stop()
        if self._lock is not None:
            self._lock.release()
        self._thread = self._lock = self._database = None


def _log_failure(maintenance: Future[None]) -> None:
    error = maintenance.exception()
    if error is not None:
        log.error("the maintenance of the store failed, which is a defect; nothing is lost", exc_info=error)
