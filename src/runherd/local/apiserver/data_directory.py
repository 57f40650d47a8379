"""The data directory: made private, and owned by one process at a time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from runherd.local.apiserver.sqlite_errors import StoreLockedError

__all__ = ["DirectoryLock", "sync_directory"]


class DirectoryLock:
    """An exclusive lock on a directory, for as long as the process lives.

    The kernel holds it (``flock``), so a killed process leaves none behind. The file ``lock`` stays; it names the last
    holder, for the error that others get.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def acquire(cls, directory: Path) -> DirectoryLock:
        """Make the directory if it is missing, and lock it. Raises :class:`StoreLockedError` when another has it."""
        if not directory.exists():
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            sync_directory(directory.parent)
        path = directory / "lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise StoreLockedError(
                f"the data directory {directory} is in use by process {holder}, which holds {path}: "
                "stop that one, or choose another directory"
            ) from None
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError:
            # A full disk: the lock is held all the same, only others aren't told by whom.
            pass
        return cls(descriptor)

    def release(self) -> None:
        os.close(self._descriptor)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable: those of files that were just created or renamed."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
