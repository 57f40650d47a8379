"""What can be wrong with a store on disk, in words that say what to do."""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

from runherd.local.apiserver.store import StoreError, StoreFullError

__all__ = [
    "BackupError",
    "StoreDamagedError",
    "StoreLockedError",
    "StoreVersionError",
    "translate",
    "translate_on_reading",
    "translate_os",
]


class StoreLockedError(StoreError):
    """Another process has the store open."""


class StoreVersionError(StoreError):
    """The file is of a newer version, or no store at all."""


class StoreDamagedError(StoreError):
    """What is in the file can't be trusted."""

    def __init__(self, path: Path, finding: str) -> None:
        super().__init__(
            f"the store {path} is damaged: {finding}. It is not served. Move {path.name} and {path.name}-wal away and "
            f"keep them (`sqlite3 {path.name} .recover` may get much out of them); then put a backup in the place of "
            f"{path.name}, or start empty"
        )


class BackupError(StoreError):
    """No backup was made. The store is as it was."""


def translate(error: sqlite3.Error, path: Path) -> StoreError:
    """The error of this store that an error of SQLite means. SQLite's texts name columns at most, never values."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return _full(path)
    if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return StoreDamagedError(path, str(error))
    if code == sqlite3.SQLITE_BUSY:
        return StoreLockedError(f"another program has {path} open: close it, then try again")
    return StoreError(f"{path}: {error}")


def translate_on_reading(error: sqlite3.Error, path: Path) -> StoreError:
    """As :func:`translate`, for what was met while reading a file: there, what SQLite can't make sense of is damage."""
    if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) == sqlite3.SQLITE_ERROR:
        return StoreDamagedError(path, str(error))
    return translate(error, path)


def translate_os(error: OSError, path: Path) -> StoreError:
    """The error of this store that an error of the operating system means."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return _full(path)
    return StoreError(f"{path} can't be used: {error}")


def _full(path: Path) -> StoreFullError:
    return StoreFullError(f"no space is left on the disk of {path}: free some, then try again")
