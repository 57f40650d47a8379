"""A consistent copy of a store that goes on being written to meanwhile."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from runherd.local.apiserver.data_directory import sync_directory
from runherd.local.apiserver.sqlite_errors import BackupError
from runherd.local.apiserver.sqlite_schema import BACKUP_ID

__all__ = ["copy_database", "open_copy", "remove_partial_copies"]

#: Pages copied in one step, and steps after which what was copied is sent to the disk, so that no wait is long.
STEP_PAGES = 128
SYNC_STEPS = 16

_SUFFIX = ".partial"


def copy_database(source: sqlite3.Connection, target: Path, replace: bool, between_steps: Callable[[], None]) -> None:
    """Copy to ``target`` what ``source`` holds when the copy ends.

    ``between_steps`` may write to ``source`` through the same connection; the copy follows. An exception of it ends
    the copy. The target appears complete and durable, or not at all, readable by its owner only. It is marked, so that
    opening it as a store starts above every revision that the running one goes on to hand out.

    Raises :class:`BackupError` when there is something at ``target`` (without ``replace``), or it can't be written.
    """
    if not replace and target.exists():
        raise BackupError(f"{target} exists: choose another name, or move it away")
    with _partial_copy(source, target, between_steps) as (partial, descriptor):
        os.fsync(descriptor)
        partial.replace(target)
        sync_directory(target.parent)


def open_copy(source: sqlite3.Connection, path: Path, between_steps: Callable[[], None]) -> BinaryIO:
    """As :func:`copy_database`, but a file beside ``path`` without a name, to be read; it is gone when it is closed."""
    with _partial_copy(source, path, between_steps) as (partial, _):
        return partial.open("rb")


def remove_partial_copies(path: Path) -> None:
    """Remove what a killed process left of copies beside ``path``."""
    for partial in path.parent.glob(f".{path.name}.*{_SUFFIX}"):
        partial.unlink(missing_ok=True)


@contextmanager
def _partial_copy(
    source: sqlite3.Connection, target: Path, between_steps: Callable[[], None]
) -> Iterator[tuple[Path, int]]:
    """A copy beside ``target``, removed at the end unless it has been renamed. Translates the errors of the block."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=_SUFFIX, dir=target.parent)
    except OSError as error:
        raise BackupError(f"the backup can't be written to {target.parent}: {error}") from error
    partial = Path(name)
    try:
        _copy(source, partial, descriptor, between_steps)
        yield partial, descriptor
    except (sqlite3.Error, OSError) as error:
        raise BackupError(f"the backup could not be written to {target.parent}: {error}") from error
    finally:
        os.close(descriptor)
        partial.unlink(missing_ok=True)


def _copy(source: sqlite3.Connection, partial: Path, descriptor: int, between_steps: Callable[[], None]) -> None:
    steps = 0

    def progress(status: int, remaining: int, total: int) -> None:
        nonlocal steps
        steps += 1
        if steps % SYNC_STEPS == 0:
            os.fdatasync(descriptor)
        between_steps()

    copy = sqlite3.connect(partial, isolation_level=None)
    try:
        # Nothing is lost with a partial copy, so it needs no journal; it is made durable at the end.
        copy.execute("PRAGMA journal_mode = OFF").fetchall()
        copy.execute("PRAGMA synchronous = OFF")
        source.backup(copy, pages=STEP_PAGES, progress=progress)
        # The copy says that it has a write-ahead log, as the original has. It is to be one file.
        copy.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
        copy.execute("PRAGMA journal_mode = DELETE").fetchall()
        copy.execute(f"PRAGMA application_id = {BACKUP_ID}")
    finally:
        copy.close()
