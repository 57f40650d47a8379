"""The one thread of ours: it owns the store's database connection, and runs jobs in the order they come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, TypeVar

__all__ = ["WriterThread"]

T = TypeVar("T")


class WriterThread:
    """Runs jobs one after the other.

    The executor of the standard library would do, but for :meth:`run_pending`: a job that takes long lets the others
    in between its steps.
    """

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._stopped = False
        # As a daemon, so that a process that ends without closing the store ends: that loses nothing acknowledged.
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Run the function on the thread, after all that were submitted before. Raises once it has been stopped."""
        if self._stopped:
            raise RuntimeError("the writer thread has been stopped")
        future: Future[T] = Future()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = function(*arguments)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        self._jobs.put(job)
        return future

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """What the function returns or raises, once it has run on the thread."""
        return await asyncio.wrap_future(self.submit(function, *arguments))

    @property
    def is_idle(self) -> bool:
        """Whether no job waits. A job that could go on later asks this to see whether it holds up another."""
        return self._jobs.empty()

    def run_pending(self) -> None:
        """Run what has been submitted. Called on the thread, by a job between its steps."""
        while True:
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return
            if job is None:
                raise RuntimeError("the writer thread was stopped while a job was under way")
            job()

    def stop(self) -> None:
        """End the thread, after all that were submitted."""
        self._stopped = True
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
