"""The user's cache directory, shared by every checkout and every test run of a user."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Report = Callable[[str], None]
"""Takes one line of progress, without its line break."""


def cache_directory() -> Path:
    """Return ``$XDG_CACHE_HOME/runherd``, or ``~/.cache/runherd``; it need not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG base directory specification has relative paths ignored.
    root = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
    return root / "runherd"


def cached(directory: Path, fill: Callable[[Path], None], report: Report) -> Path:
    """Return ``directory``, which ``fill`` has completed exactly once.

    ``fill`` writes into an empty directory beside it that is renamed when it
    returns, so that no other run ever sees a half-filled one. Runs that need
    the same directory at the same time wait for the first.

    Raises whatever ``fill`` raises; nothing is kept then.
    """
    if directory.is_dir():
        return directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    with _exclusive(directory.with_name(directory.name + ".lock"), report):
        if directory.is_dir():
            return directory
        unfinished = Path(tempfile.mkdtemp(prefix=directory.name + ".", dir=directory.parent))
        try:
            fill(unfinished)
            unfinished.rename(directory)
        except BaseException:
            shutil.rmtree(unfinished)
            raise
    return directory


@contextmanager
def _exclusive(lock: Path, report: Report) -> Iterator[None]:
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"waiting for another run that fills {lock.with_suffix('')}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
