"""A store's database file, as the one thread that has it open sees it: every call may take as long as the disk does."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any

from runherd.local.apiserver import sqlite_schema
from runherd.local.apiserver.data_directory import sync_directory
from runherd.local.apiserver.sqlite_errors import (
    StoreDamagedError,
    StoreVersionError,
    translate,
    translate_on_reading,
    translate_os,
)
from runherd.local.apiserver.sqlite_schema import BACKUP_ID, STORE_ID, checksum, transaction
from runherd.local.apiserver.store import Contents, Event, EventType, Key, Limits, Record, StoreError, StoreFullError

__all__ = ["Database"]

log = logging.getLogger(__name__)

#: How large the write-ahead log gets before it is copied into the file, and emptied.
CHECKPOINT_SIZE = 16 * 2**20
#: How large it may get while that fails, before writes are refused for that.
MAXIMUM_LOG_SIZE = 16 * CHECKPOINT_SIZE
#: How many unused pages the file may keep, and how many are given back at a time.
UNUSED_PAGES = 2048
VACUUM_PAGES = 256
#: Rows in one statement. Each statement gives up the interpreter lock, and may wait for it; older builds of SQLite take
#: no more than 999 parameters.
ROWS = 140
#: How far a restored backup starts above what it holds. No store writes as much between a backup and its restoration.
RESTORED_GAP = 2**32

_COLUMNS = "(revision, resource, namespace, name, deleted, checksum, value)"


class Database:
    """One store's file. Use :meth:`open`; all calls come from one thread."""

    def __init__(self, connection: sqlite3.Connection, path: Path, limits: Limits) -> None:
        self.connection = connection
        self.path = path
        self._log_path = path.with_name(path.name + "-wal")
        self._limits = limits
        #: The events that a restart can still tell, oldest first, and the size of their values.
        self._history: deque[Event] = deque()
        self._history_size = 0
        self._revision = 0
        self._checkpoint_failed = False

    @classmethod
    def open(cls, path: Path, limits: Limits, now: datetime) -> tuple[Database, Contents]:
        """Open or make the file, whose directory must be locked, check all of it and read it.

        Raises a :class:`StoreError` that says what to do when it can't be served.
        """
        try:
            _prepare(path)
            connection = sqlite3.connect(path, timeout=0, isolation_level=None)
        except OSError as error:
            raise translate_os(error, path) from error
        except sqlite3.Error as error:
            raise translate(error, path) from error
        database = cls(connection, path, limits)
        try:
            database._configure()
            return database, database._load(now)
        except sqlite3.Error as error:
            connection.close()
            raise translate_on_reading(error, path) from error
        except BaseException:
            connection.close()
            raise

    def _configure(self) -> None:
        execute = self.connection.execute
        # Before anything is read: then the index of the log is kept in memory, not in a shared, mapped file.
        execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
        execute("PRAGMA mmap_size = 0").fetchall()
        execute("PRAGMA synchronous = FULL")
        execute("PRAGMA wal_autocheckpoint = 0").fetchall()
        execute(f"PRAGMA journal_size_limit = {CHECKPOINT_SIZE}").fetchall()
        execute("PRAGMA trusted_schema = OFF")
        execute("PRAGMA cell_size_check = ON")
        application = self._scalar("PRAGMA application_id")
        if application == 0 and self._scalar("SELECT count(*) FROM sqlite_master") == 0:
            sqlite_schema.create(self.connection)
            return
        if application not in {STORE_ID, BACKUP_ID}:
            raise StoreVersionError(f"{self.path} is not a store of runherd: choose another directory")
        self._check()
        version = self._scalar("PRAGMA user_version")
        if version < 1:
            raise StoreDamagedError(self.path, f"there is no format {version}")
        if version != sqlite_schema.VERSION:
            sqlite_schema.migrate(self.connection, self.path, version)
            log.info("migrated the store %s from format %d to %d", self.path, version, sqlite_schema.VERSION)

    def _check(self) -> None:
        """Look at all of the file: after a clean stop too, since what happened to it in the meantime can't be known."""
        findings = [str(finding) for (finding,) in self.connection.execute("PRAGMA quick_check(3)")]
        if findings != ["ok"]:
            raise StoreDamagedError(self.path, "; ".join(findings))

    def _load(self, now: datetime) -> Contents:
        row = self.connection.execute("SELECT revision, compacted FROM state").fetchone()
        if row is None:
            raise StoreDamagedError(self.path, "it has lost its state")
        revision, compacted = row
        # A copy of the file knows nothing of the revisions that were handed out after it was made. The clock does: no
        # store makes a write each microsecond, so whatever was handed out so far is below.
        start = max(revision, int(now.timestamp() * 1_000_000))
        if self._scalar("PRAGMA application_id") == BACKUP_ID:
            start = compacted = max(start, revision + RESTORED_GAP)
            self._restore(start)
            log.info("%s is a restored backup: revisions go on after %d", self.path, start)
        # A backup is a file in one piece until here.
        self.connection.execute("PRAGMA journal_mode = WAL").fetchall()
        records, events = self._read(compacted)
        self._claim(start)
        self._history.extend(events)
        self._history_size = sum(len(event.record.value) for event in events)
        self._revision = start
        return Contents(start, list(records.values()), events)

    def _claim(self, start: int) -> None:
        """Note the revision that reads get until the first write: the next start must not go below it."""
        try:
            self.connection.execute("UPDATE state SET revision = ?", (start,))
        except sqlite3.Error as error:
            # Reading is possible on a full disk.
            if not isinstance(translate(error, self.path), StoreFullError):
                raise

    def _restore(self, start: int) -> None:
        """Turn a backup into a store whose next revision comes after ``start``, without history."""
        with transaction(self.connection):
            self.connection.execute(
                "DELETE FROM versions WHERE deleted OR revision NOT IN "
                "(SELECT max(revision) FROM versions GROUP BY resource, namespace, name)"
            )
            self.connection.execute("UPDATE state SET revision = ?, compacted = ?", (start, start))
            self.connection.execute(f"PRAGMA application_id = {STORE_ID}")

    def _read(self, compacted: int) -> tuple[dict[Key, Record], list[Event]]:
        records: dict[Key, Record] = {}
        events: list[Event] = []
        known: dict[str, str] = {}
        rows = self.connection.execute(
            "SELECT revision, resource, namespace, name, deleted, checksum, value FROM versions ORDER BY revision"
        )
        for revision, resource, namespace, name, deleted, expected, value in rows:
            key = Key(known.setdefault(resource, resource), known.setdefault(namespace, namespace), name)
            # A damaged row may even be of other types.
            if not isinstance(value, bytes) or checksum(revision, key, deleted, value) != expected:
                raise StoreDamagedError(self.path, f"the row of revision {revision} is not what was written")
            record = Record(key, value, revision)
            kind: EventType
            if deleted:
                previous, kind = records.pop(key, None), "DELETED"
            else:
                previous = records.get(key)
                kind = "MODIFIED" if previous else "ADDED"
                records[key] = record
            if revision > compacted:
                events.append(Event(kind, record, previous))
        return records, events

    def append(self, events: Sequence[Event]) -> None:
        """Make events durable and forget what history has no room for, in one transaction."""
        try:
            if self._checkpoint_failed and self._log_size() > MAXIMUM_LOG_SIZE:
                self._checkpoint()
            dropped = self._to_drop(events)
            with transaction(self.connection):
                self._insert(events)
                self._delete(dropped)
                compacted = dropped[-1].revision if dropped else None
                self.connection.execute(
                    "UPDATE state SET revision = ?, compacted = ifnull(?, compacted)",
                    (events[-1].revision, compacted),
                )
        except sqlite3.Error as error:
            self._supersede()
            raise translate(error, self.path) from error
        self._revision = events[-1].revision
        self._history.extend(events)
        self._history_size += sum(len(event.record.value) for event in events)
        for _ in dropped:
            self._history_size -= len(self._history.popleft().record.value)

    def _to_drop(self, events: Sequence[Event]) -> list[Event]:
        """The oldest events that don't fit into the limits any more once ``events`` are added."""
        count = len(self._history) + len(events)
        size = self._history_size + sum(len(event.record.value) for event in events)
        dropped = []
        for event in chain(self._history, events):
            if count <= self._limits.events and size <= self._limits.size:
                break
            dropped.append(event)
            count -= 1
            size -= len(event.record.value)
        return dropped

    def _insert(self, events: Sequence[Event]) -> None:
        for part in _parts(events):
            values: list[Any] = []
            for event in part:
                record = event.record
                key, deleted = record.key, int(event.type == "DELETED")
                stamp = checksum(record.revision, key, deleted, record.value)
                values += (record.revision, *key, deleted, stamp, record.value)
            places = ", ".join(["(?, ?, ?, ?, ?, ?, ?)"] * len(part))
            self.connection.execute(f"INSERT INTO versions {_COLUMNS} VALUES {places}", values)  # noqa: S608 - places

    def _delete(self, dropped: Sequence[Event]) -> None:
        """Remove the rows that only these events needed: what they replaced, and the marks of deletions."""
        revisions = [event.previous.revision for event in dropped if event.previous is not None]
        revisions += [event.revision for event in dropped if event.type == "DELETED"]
        for part in _parts(revisions):
            places = ", ".join("?" * len(part))
            self.connection.execute(f"DELETE FROM versions WHERE revision IN ({places})", part)  # noqa: S608 - places

    def _supersede(self) -> None:
        """Write over what a failed transaction left in the log.

        When making it durable is what failed, all of it may be in the file, and would count after a crash. Until this
        or a later write succeeds, that can't be excluded.
        """
        with suppress(sqlite3.Error):
            self.connection.execute("UPDATE state SET id = id")

    def maintain(self, is_idle: Callable[[], bool]) -> None:
        """Keep the log and the file small. Holds up little when ``is_idle`` says that something waits."""
        try:
            is_full = self._log_size() >= CHECKPOINT_SIZE
            if is_full:
                self._checkpoint()
            # A store that is never idle gives space back too, a little each time its log is emptied.
            while self._scalar("PRAGMA freelist_count") > UNUSED_PAGES and (is_full or is_idle()):
                self.connection.execute(f"PRAGMA incremental_vacuum({VACUUM_PAGES})").fetchall()
                self._checkpoint()
                is_full = False
        except sqlite3.Error as error:
            # No write is lost by that: they are in the log. A full disk is told to those who write.
            if not self._checkpoint_failed:
                log.warning("the log of the store %s could not be emptied, will go on trying: %s", self.path, error)
            self._checkpoint_failed = True
        else:
            self._checkpoint_failed = False

    def _checkpoint(self) -> None:
        self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Leave one file, without a log, and release it. What the disk doesn't let us do, the next start does."""
        try:
            self.connection.execute("UPDATE state SET revision = ?", (self._revision,))
            self._checkpoint()
        except sqlite3.Error as error:
            log.warning("the log of the store %s could not be emptied, the next start will: %s", self.path, error)
        self.connection.close()

    def _log_size(self) -> int:
        try:
            return self._log_path.stat().st_size
        except FileNotFoundError:
            return 0

    def _scalar(self, query: str) -> int:
        row = self.connection.execute(query).fetchone()
        return int(row[0]) if row is not None else 0


def _parts(items: Sequence[Any]) -> Iterable[Sequence[Any]]:
    iterator = iter(items)
    while part := list(islice(iterator, ROWS)):
        yield part


def _prepare(path: Path) -> None:
    """Make the file if it is missing, and see that its log belongs to it.

    SQLite would apply a log to a file that it was not written for, or throw it away.
    """
    log_path = path.with_name(path.name + "-wal")
    has_log = log_path.exists() and log_path.stat().st_size > 0
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        sync_directory(path.parent)
    path.chmod(0o600)
    if has_log and path.stat().st_size == 0:
        raise StoreDamagedError(path, f"it is empty, but its log {log_path.name} is not")
    if has_log and sqlite_schema.read_application_id(path) == BACKUP_ID:
        raise StoreError(f"{path} is a backup, but {log_path} is of the store that it replaces: move that away as well")
