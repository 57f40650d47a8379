"""The layout of a store's file: what is in it, how it is made, recognised and brought up to date.

One table, ``versions``, has a row for each version of an object that is still needed: the current ones, and those that
the recent history consists of. Revisions only go up, so rows are only ever added at its end, which is what a database
does fastest. ``state`` has one row:

- ``revision``: the highest that a write has used (or that a stop left);
- ``compacted``: the revision up to which history is incomplete.
"""

from __future__ import annotations

import sqlite3
import zlib
from pathlib import Path

from runherd.local.apiserver.sqlite_errors import StoreVersionError
from runherd.local.apiserver.store import Key

__all__ = [
    "BACKUP_ID",
    "STORE_ID",
    "VERSION",
    "checksum",
    "create",
    "has_wal_reset_bug",
    "migrate",
    "read_application_id",
    "transaction",
]

#: The format's version, kept in SQLite's ``user_version``. 2: rows have checksums.
VERSION = 2
#: SQLite's ``application_id`` of a store ("rhst"), and of a backup that hasn't been opened as a store yet ("rhbk").
STORE_ID = 0x72687374
BACKUP_ID = 0x7268626B

PAGE_SIZE = 8192

_LAYOUT = """
CREATE TABLE versions (
    revision INTEGER PRIMARY KEY,
    resource TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    deleted INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    value BLOB NOT NULL
);
CREATE TABLE state (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    revision INTEGER NOT NULL,
    compacted INTEGER NOT NULL
);
INSERT INTO state VALUES (1, 0, 0);
"""


class transaction:  # noqa: N801 - reads as the statement that it is
    """Commits at the end of the block, or rolls back when it raises. Raises what SQLite raises."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self._connection.execute("COMMIT")
        finally:
            # Some errors, a full disk among them, have rolled it back already.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


def checksum(revision: int, key: Key, deleted: int, value: bytes) -> int:
    """The CRC-32 of a row: SQLite's own checks look at the structure of the file, not at what the rows hold."""
    return zlib.crc32(value, zlib.crc32("\0".join([str(revision), *key, str(deleted)]).encode()))


def read_application_id(path: Path) -> int:
    """What the file itself says, without what its write-ahead log may add. 0 when there is no header."""
    with path.open("rb") as file:
        return int.from_bytes(file.read(100)[68:72], "big")


def create(connection: sqlite3.Connection) -> None:
    """Lay out an empty file."""
    connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    with transaction(connection):
        for statement in _LAYOUT.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {STORE_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")


def migrate(connection: sqlite3.Connection, path: Path, version: int) -> None:
    """Bring the file from ``version`` to :data:`VERSION`, all or nothing.

    Raises :class:`StoreVersionError` when it is newer: it may hold what this version would lose.
    """
    if version > VERSION:
        raise StoreVersionError(
            f"the store {path} was written by a newer version of runherd (format {version}; this one knows up to "
            f"{VERSION}). Use that version, or choose another directory"
        )
    with transaction(connection):
        for step in _MIGRATIONS[version - 1 :]:
            step(connection)
        connection.execute(f"PRAGMA user_version = {VERSION}")


def _add_checksums(connection: sqlite3.Connection) -> None:
    def row_checksum(revision: int, resource: str, namespace: str, name: str, deleted: int, value: bytes) -> int:
        return checksum(revision, Key(resource, namespace, name), deleted, value)

    connection.create_function("row_checksum", 6, row_checksum, deterministic=True)
    connection.execute("ALTER TABLE versions ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0")
    connection.execute(
        "UPDATE versions SET checksum = row_checksum(revision, resource, namespace, name, deleted, value)"
    )


#: From each version to the next, version 1 first.
_MIGRATIONS = [_add_checksums]


def has_wal_reset_bug(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> bool:
    """Whether this SQLite can corrupt a write-ahead log that two connections reset at once (3.7.0 to 3.51.2).

    It can't happen to a store: one connection has its file to itself.
    """
    return (3, 7, 0) <= version <= (3, 51, 2)
