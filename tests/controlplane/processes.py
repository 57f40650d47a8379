"""Server processes that a test can stop, kill and pause, and that never outlive the test run."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.controlplane import guardian

_LOG_TAIL_BYTES = 4000


class ServerError(Exception):
    """A server ended or did not become ready; says which, and shows the end of its log."""


class Guardian:
    """The program beside the test run that ends watched processes when the run dies (see guardian.py)."""

    def __init__(self, directory: Path) -> None:
        """Start it; it removes ``directory`` when the run ends."""
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", guardian.__file__, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def watch(self, pid: int) -> None:
        """Have the process group ``pid`` killed when the test run dies."""
        self._tell(f"watch {pid}\n")

    def forget(self, pid: int) -> None:
        """Leave ``pid`` alone from now on: the process is gone and another may get its number."""
        self._tell(f"forget {pid}\n")

    def close(self) -> None:
        """End it: it kills what is still watched, removes the directory, and is gone on return."""
        self._process.communicate()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode())
        self._process.stdin.flush()


class Server:
    """One server program, started any number of times, with one log file for all of them."""

    def __init__(self, name: str, directory: Path, log: Path, guardian: Guardian) -> None:
        """Prepare to run ``name`` in ``directory``, with its output appended to ``log``."""
        self.name = name
        self.log = log
        self._directory = directory
        self._guardian = guardian
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = "was never started"

    @property
    def pid(self) -> int | None:
        """The process id, None while it does not run."""
        process = self._running()
        return None if process is None else process.pid

    def start(self, command: Sequence[str]) -> None:
        """Run ``command`` in a process group of its own, which no Ctrl-C of the test run's reaches.

        Raises ServerError when it runs already.
        """
        if self._running() is not None:
            raise ServerError(f"{self.name} runs already; stop it before you start it again")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._guardian.watch(self._process.pid)

    def stop(self, timeout_seconds: float = 90) -> None:
        """Ask it to end, as a SIGTERM does, and wait until it has; a paused one is resumed first.

        Raises ServerError, having killed it, when it takes longer than ``timeout_seconds``.
        """
        process = self._running()
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(timeout_seconds)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise self.error(f"did not end within {timeout_seconds} s of SIGTERM") from error
        self._forget(process)

    def kill(self) -> None:
        """End it at once, as a SIGKILL does; a paused one too."""
        process = self._running()
        if process is None:
            return
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self._forget(process)

    def pause(self) -> None:
        """Freeze it, as a SIGSTOP does: connections stay open and nothing answers once this returns."""
        pid = self._signal(signal.SIGSTOP)
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Let a paused one go on."""
        self._signal(signal.SIGCONT)

    def check(self) -> None:
        """Raise ServerError if it does not run."""
        self._signal(0)

    def error(self, what: str) -> ServerError:
        """Return an error that says ``what`` about this server and shows the end of its log."""
        tail = self.log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace") if self.log.exists() else ""
        return ServerError(f"{self.name} {what}; the end of its log {self.log}:\n{tail}")

    def _signal(self, number: int) -> int:
        process = self._running()
        if process is None:
            raise self.error(self._ended)
        process.send_signal(number)
        return process.pid

    def _running(self) -> subprocess.Popen[bytes] | None:
        if self._process is not None and self._process.poll() is not None:
            self._forget(self._process)
        return self._process

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        self._guardian.forget(process.pid)
        self._process = None
        self._ended = f"ended with status {process.returncode}"
