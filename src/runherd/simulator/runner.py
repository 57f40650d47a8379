"""``runherd-runner``: the pretend Actions runner. One JIT configuration, one job, real processes.

It imports little and only from the standard library, because a pod's start-up time is measured with it. The protocol
that it speaks is described in :mod:`runherd.simulator.runner_api`.

Exit codes, as the real runner's: 0 the job was run (whatever its result), 7 this version is deprecated, 1 anything
else: the configuration was refused, the service can't be reached, the registration was removed. 128 + n after signal n.
"""

from __future__ import annotations

import binascii
import json
import os
import select
import signal
import sys
import time

from runherd.simulator.runner_service import RefusedError, Service

TYPE_CHECKING = False  # importing typing would cost milliseconds at every start
if TYPE_CHECKING:
    from typing import Any

    from runherd.simulator.runner_steps import StepRunner

VERSION = "2.330.0"

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_VERSION_DEPRECATED = 7

# How long to wait where nothing is known to happen.
_LONG = 60.0

_HELP = """usage: runherd-runner [--jitconfig CONFIG] [--version]

Runs one job for the simulated Actions service, and exits. The JIT configuration is taken from --jitconfig or from
the environment variable ACTIONS_RUNNER_INPUT_JITCONFIG; RUNHERD_RUNNER_VERSION is the version that is reported.
"""


class StoppedError(Exception):
    """A signal asks the program to end."""


class Runner:
    """One run of the program."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._service = Service(config)
        self._name = str(config["runnerName"])
        self._work_folder = str(config.get("workFolder") or "_work")
        self._polling = False
        self._poll_again_at = 0.0
        self._stop_signal = 0
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)

    def run(self) -> int:
        """Returns the exit code."""
        self._watch_signals()
        try:
            self._service.connect(os.environ.get("RUNHERD_RUNNER_VERSION", VERSION))
            say(f"√ Connected to the service as {self._name}")
            job = self._wait_for_job()
        except RefusedError as error:
            say(f"An error occurred: {error}")
            return EXIT_VERSION_DEPRECATED if error.status == 426 else EXIT_FAILED
        except StoppedError:
            self._service.close()
            return 128 + self._stop_signal
        return self._run_job(job)

    def _watch_signals(self) -> None:
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        # SIGCHLD needs a handler, or nothing would be written when a step's process ends.
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)

    def _stop(self, number: int, _frame: object) -> None:
        self._stop_signal = number

    def _wait_for_job(self) -> dict[str, Any]:
        say(f"Listening for Jobs (version {VERSION})")
        deadline: float | None = time.monotonic()
        while True:
            news = self._news(deadline, busy=False, steps=[])
            if news and isinstance(news.get("job"), dict):
                job: dict[str, Any] = news["job"]
                return job
            if self._stop_signal:
                # Closing the held poll tells the service that the runner is gone; its registration stays.
                raise StoppedError
            # The first look only asks; what takes time to load is loaded while the service looks for a job.
            self._step_runner()
            deadline = None

    def _run_job(self, job: dict[str, Any]) -> int:
        say(f"Running job: {job['name']}")

        def wait(seconds: float) -> None:
            """Let ``seconds`` pass, or less: until a process ends, a signal comes or the service has news."""
            try:
                news = self._news(deadline=time.monotonic() + seconds, busy=True, steps=steps.report)
            except RefusedError as error:
                # The service gave the job up. What is left to do is to end its processes.
                say(f"An error occurred: {error}")
                steps.cancel()
                return
            if self._stop_signal or (news and news.get("cancel")):
                steps.cancel()

        report: list[dict[str, Any]] = []
        try:
            steps = self._step_runner()(job, self._name, self._work_folder, say)
            report = steps.report
            if self._stop_signal:
                steps.cancel()
            result = steps.run(wait)
        except Exception as error:  # whatever went wrong, the service must hear that the job is over
            say(f"##[error]The job can't be run: {error}")
            result = "failed"
        say(f"Job {job['name']} completed with result: {result}")
        self._abandon_poll()
        try:
            self._service.call("finish", result=result, steps=report)
        except RefusedError as error:
            say(f"An error occurred: {error}")
            return EXIT_FAILED
        return 128 + self._stop_signal if self._stop_signal else EXIT_DONE

    def _news(self, deadline: float | None, *, busy: bool, steps: list[dict[str, Any]]) -> dict[str, Any] | None:
        """Keep a poll going, and wait for its answer, a signal or ``deadline``. ``None``: no answer yet.

        A service that can't be reached is asked again after a moment; only its refusals (4xx) are raised.
        """
        now = time.monotonic()
        try:
            if not self._polling and now >= self._poll_again_at:
                self._service.send("poll", busy=busy, steps=steps)
                self._polling = True
            readable = [self._wake_read]
            if self._polling:
                readable.append(self._service.fileno())
            ends = [end for end in (deadline, None if self._polling else self._poll_again_at) if end is not None]
            timeout = max(0.0, min(ends) - now) if ends else _LONG
            ready, _, _ = select.select(readable, [], [], timeout)
            if self._wake_read in ready:
                os.read(self._wake_read, 4096)
            if self._polling and self._service.fileno() in ready:
                self._polling = False
                return self._service.receive()
        except RefusedError as error:
            if error.status < 500:
                raise
            self._lose_poll()
        except OSError:
            self._lose_poll()
        return None

    @staticmethod
    def _step_runner() -> type[StepRunner]:
        # Half of what the program has to load is for this.
        from runherd.simulator.runner_steps import StepRunner

        return StepRunner

    def _lose_poll(self) -> None:
        self._abandon_poll()
        self._poll_again_at = time.monotonic() + 1.0

    def _abandon_poll(self) -> None:
        self._service.close()
        self._polling = False


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(arguments: list[str] | None = None) -> int:
    """The program."""
    arguments = sys.argv[1:] if arguments is None else arguments
    encoded = os.environ.pop("ACTIONS_RUNNER_INPUT_JITCONFIG", "")
    if arguments == ["--version"]:
        say(VERSION)
        return EXIT_DONE
    if len(arguments) == 2 and arguments[0] == "--jitconfig":
        encoded = arguments[1]
    elif arguments:
        sys.stderr.write(_HELP)
        return EXIT_DONE if arguments[0] in ("-h", "--help") else EXIT_FAILED
    if not encoded:
        sys.stderr.write("no JIT configuration: set ACTIONS_RUNNER_INPUT_JITCONFIG or pass --jitconfig\n")
        return EXIT_FAILED
    try:
        config = json.loads(binascii.a2b_base64(encoded.encode(), strict_mode=True))
        runner = Runner(config)
    except (ValueError, KeyError, TypeError):
        sys.stderr.write("the JIT configuration can't be read: it is not one of the simulated service\n")
        return EXIT_FAILED
    return runner.run()


if __name__ == "__main__":
    sys.exit(main())
