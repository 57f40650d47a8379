"""The part of the runner program that runs a job's steps as processes. Standard library only, like its caller."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

TYPE_CHECKING = False  # importing typing would cost milliseconds at every start
if TYPE_CHECKING:
    from typing import Any

__all__ = ["StepRunner"]

# How the real runner ends a process: ask, ask louder, kill.
_KILL_LADDER = ((signal.SIGINT, 7.5), (signal.SIGTERM, 2.5), (signal.SIGKILL, 0.0))

_SHELLS = {
    "": "bash -e {0}",
    "bash": "bash --noprofile --norc -eo pipefail {0}",
    "sh": "sh -e {0}",
    "python": "python3 {0}",
    "pwsh": "pwsh -NoLogo -NonInteractive -File {0}",
}
_SUFFIXES = {"python": ".py", "pwsh": ".ps1"}


class StepRunner:
    """Runs the steps of one job in order. ``report`` is kept up to date: one entry a step, with its conclusion."""

    def __init__(self, job: dict[str, Any], runner_name: str, work_folder: str, say: Callable[[str], None]) -> None:
        self._job = job
        self._runner_name = runner_name
        self._say = say
        self._canceled_at: float | None = None
        repository = str(job.get("repository") or "acme/app").rpartition("/")[2]
        self._temp = Path(work_folder).absolute() / "_temp"
        self._workspace = Path(work_folder).absolute() / repository / repository
        self._temp.mkdir(parents=True, exist_ok=True)
        self._workspace.mkdir(parents=True, exist_ok=True)
        # The real runner finds what a job left running by this variable.
        self._tracking_id = f"github_{job.get('jobId')}"
        self._env = self._base_environment()
        self.report: list[dict[str, object]] = []

    def cancel(self) -> None:
        """End the running step's processes, and run no further step. Seen when ``wait`` returns."""
        if self._canceled_at is None:
            self._canceled_at = time.monotonic()

    def run(self, wait: Callable[[float], None]) -> str:
        """Run all steps; returns ``succeeded``, ``failed`` or ``canceled``.

        ``wait`` is called, with the longest time to wait in seconds, whenever there is nothing else to do.
        """
        result = "succeeded"
        steps: list[dict[str, Any]] = self._job["steps"]
        for number, step in enumerate(steps):
            name = self._fill(step.get("name"), self._env)
            entry: dict[str, object] = {"name": name, "conclusion": "skipped"}
            self.report.append(entry)
            if step.get("uses"):
                self._say(f"Skipped: uses {step['uses']} (actions are not simulated)")
            elif result == "succeeded" and self._canceled_at is None:
                try:
                    conclusion = self._run_step(number, step, name, entry, wait)
                except Exception as error:  # a step that can't be run is a step that failed
                    self._say(f"##[error]The step can't be run: {error}")
                    conclusion = "failed"
                entry["conclusion"] = conclusion
                if conclusion == "failed" and not step.get("continueOnError"):
                    result = "failed"
        if self._canceled_at is not None:
            result = "canceled"
        self._kill_leftovers()
        return result

    def _run_step(
        self, number: int, step: dict[str, Any], name: str, entry: dict[str, object], wait: Callable[[float], None]
    ) -> str:
        self._say(f"##[group]{name}")
        files = {key: self._temp / f"{key.lower()}_{number}" for key in ("ENV", "OUTPUT", "PATH", "STEP_SUMMARY")}
        for path in files.values():
            path.write_text("")
        env = {**self._env, **{f"GITHUB_{key}": str(path) for key, path in files.items()}}
        for key, text in step.get("env") or ():
            env[key] = self._fill(text, env)
        try:
            process = self._start(number, step, env)
        except OSError as error:
            self._say(f"##[error]{error.strerror}: {error.filename}")
            return "failed"
        self._say("##[endgroup]")
        seconds = float(step.get("timeoutSeconds") or 0)
        code, timed_out = self._wait_for(process, seconds, wait)
        entry["exitCode"] = code
        if self._canceled_at is not None:
            return "canceled"
        if timed_out:
            return "failed"
        if code != 0:
            self._say(f"##[error]Process completed with exit code {code}.")
        try:
            self._read_additions(files["ENV"], files["PATH"])
        except ValueError as error:
            self._say(f"##[error]Unable to process file command 'env' successfully: {error}")
            return "failed"
        return "succeeded" if code == 0 else "failed"

    def _start(self, number: int, step: dict[str, Any], env: dict[str, str]) -> subprocess.Popen[bytes]:
        shell = str(step.get("shell") or "")
        script = self._temp / f"step_{number}{_SUFFIXES.get(shell, '.sh')}"
        script.write_text(self._fill(step.get("run"), env) + "\n")
        directory = self._workspace / self._fill(step.get("workingDirectory"), env)
        templates = [_SHELLS.get(shell, shell)]
        if not shell:
            templates.append(_SHELLS["sh"])  # as the real runner does on a machine without bash
        while True:
            command = [word.replace("{0}", str(script)) for word in templates.pop(0).split()]
            try:
                # A group of its own, so that all that it starts can be ended; its output goes where ours goes.
                return subprocess.Popen(command, cwd=directory, env=env, stdin=subprocess.DEVNULL, process_group=0)
            except FileNotFoundError as error:
                if not templates or error.filename != command[0]:
                    raise

    def _wait_for(
        self, process: subprocess.Popen[bytes], seconds: float, wait: Callable[[float], None]
    ) -> tuple[int, bool]:
        """The exit code, and whether the step took too long."""
        timeout_at = time.monotonic() + seconds if seconds else None
        ladder = list(_KILL_LADDER)
        ended_late = False
        kill_at: float | None = None
        while (code := process.poll()) is None:
            now = time.monotonic()
            timed_out = timeout_at is not None and now >= timeout_at
            if kill_at is None and (timed_out or self._canceled_at is not None):
                kill_at = now
                ended_late = timed_out
                self._say("##[error]The operation was canceled." if not timed_out else "##[error]The step timed out.")
            if kill_at is not None and now >= kill_at and ladder:
                number, patience = ladder.pop(0)
                _kill_group(process.pid, number)
                kill_at = now + patience
            waking = [end for end in (kill_at if ladder else None, timeout_at) if end is not None and end > now]
            wait(min(waking) - now if waking else 60.0)
        return code, ended_late

    def _base_environment(self) -> dict[str, str]:
        env = dict(os.environ)
        github: dict[str, Any] = self._job.get("github") or {}
        env.update({f"GITHUB_{key.upper()}": str(value) for key, value in github.items()})
        env.update(
            CI="true",
            GITHUB_ACTIONS="true",
            GITHUB_WORKSPACE=str(self._workspace),
            RUNNER_NAME=self._runner_name,
            RUNNER_OS="Linux",
            RUNNER_TEMP=str(self._temp),
            RUNNER_TRACKING_ID=self._tracking_id,
        )
        for key, text in self._job.get("env") or ():
            env[key] = self._fill(text, env)
        return env

    def _fill(self, text: str | list[str | dict[str, str]] | None, env: dict[str, str]) -> str:
        """Complete a text whose open pieces are ours to fill in."""
        if isinstance(text, str):
            return text
        filled = ""
        for piece in text or ():
            if isinstance(piece, str):
                filled += piece
            elif "env" in piece:
                filled += env.get(piece["env"], "")
            else:
                filled += str(self._workspace)
        return filled

    def _read_additions(self, env_file: Path, path_file: Path) -> None:
        """What the step wrote into GITHUB_ENV and GITHUB_PATH, for the steps after it.

        Raises ``ValueError`` for what can't be read.
        """
        lines = env_file.read_text().splitlines()
        while lines:
            line = lines.pop(0)
            name, equals, value = line.partition("=")
            heredoc, marker, delimiter = line.partition("<<")
            if marker and "=" not in heredoc:
                name, equals, value = heredoc, "=", ""
                kept = []
                while lines and lines[0] != delimiter:
                    kept.append(lines.pop(0))
                if not lines:
                    raise ValueError(f"Invalid value. Matching delimiter not found '{delimiter}'")
                lines.pop(0)
                value = "\n".join(kept)
            elif not line:
                continue
            if not equals or not name:
                raise ValueError(f"Invalid format '{line}'")
            if "\0" in name + value:
                raise ValueError(f"Invalid value of {name!r}: it has a NUL character in it")
            self._env[name] = value
        for directory in path_file.read_text().splitlines():
            self._env["PATH"] = directory + os.pathsep + self._env.get("PATH", "")

    def _kill_leftovers(self) -> None:
        """End what steps left running in the background (on Linux; elsewhere there is no way to find it)."""
        mark = f"RUNNER_TRACKING_ID={self._tracking_id}".encode()
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (process / "environ").read_bytes().split(b"\0") and int(process.name) != os.getpid():
                    self._say(f"Terminate orphan process: pid ({process.name})")
                    os.kill(int(process.name), signal.SIGKILL)
            except OSError:
                continue  # it ended just now, or is somebody else's


def _kill_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return
