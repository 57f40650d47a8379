"""Ends the processes and the directory of a control plane whose test run died.

A test run that is killed can end nothing itself, so this program runs beside
it, in a session of its own that no Ctrl-C reaches. On its standard input it
gets one line per change:

    watch PID     kill this process and its group when the input ends
    forget PID    the process is gone

The kernel closes the input when the test run ends, however it ends. What is
still watched then is killed, a paused process as well, and the directory that
the first argument names is removed.
"""

import os
import shutil
import signal
import sys
import time
from pathlib import Path

_REMOVAL_ATTEMPTS = 100
_SECONDS_BETWEEN_ATTEMPTS = 0.05


def main(directory: Path) -> None:
    """Serve standard input until it ends, then clean up."""
    watched: set[int] = set()
    for line in sys.stdin:
        verb, pid = line.split()
        if verb == "watch":
            watched.add(int(pid))
        else:
            watched.discard(int(pid))
    for pid in watched:
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    _remove(directory)


def _remove(directory: Path) -> None:
    """Remove ``directory``, in which processes that die at this moment may still make a file."""
    for _ in range(_REMOVAL_ATTEMPTS):
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            return
        time.sleep(_SECONDS_BETWEEN_ATTEMPTS)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
