"""What durability costs: creates per second in the SQLite store alone, opening it, backing it up."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench._loops import LOOPS
from bench._result import Result
from runherd.local.apiserver.sqlite_journal import FILE_NAME, sqlite_store
from runherd.local.apiserver.store import Change, Key, Record, Store
from runherd.wire.clock import SystemClock

ROUNDS = 5
SECONDS = 2.0
CONCURRENCY = (1, 8, 64, 512)
VALUE = b'{"spec":"' + os.urandom(1000).hex().encode() + b'"}'
LARGE = b'{"spec":"' + os.urandom(2500).hex().encode() + b'"}'
OBJECTS = 10_000


def run() -> Result:
    """Create 2 KB objects by so many writers at once; then open and back up 10,000 objects of 5 KB."""
    rows: list[dict[str, str | float]] = []
    with TemporaryDirectory(dir=Path.cwd()) as folder:
        sync = _sync_seconds(Path(folder))
        for concurrency in CONCURRENCY:
            samples = [_on_loop(Path(folder) / f"{concurrency}-{n}", concurrency) for n in range(ROUNDS)]
            rows.append(
                {
                    "writers": str(concurrency),
                    "durable creates/s": median(rate for rate, _ in samples),
                    "CPU µs/create": median(cpu for _, cpu in samples) * 1e6,
                }
            )
        opening, backup, longest = asyncio.run(_open_and_back_up(Path(folder) / "large"))
    return Result(
        title=f"Creates of {len(VALUE):,} bytes in the SQLite store: medians of {ROUNDS} runs of {SECONDS:.0f} s",
        rows=rows,
        notes="Each is acknowledged after fdatasync; writers that wait at once share one.",
        figures={
            "ms for one fdatasync of 8 KB": sync * 1e3,
            f"s to open, check and read {OBJECTS:,} objects of {len(LARGE):,} bytes": opening,
            "s to back them up": backup,
            "ms, the longest wait of a write during the backup": longest * 1e3,
        },
    )


def _on_loop(directory: Path, concurrency: int) -> tuple[float, float]:
    factory = next(iter(LOOPS.values()))
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(_creates(directory, concurrency))


async def _creates(directory: Path, concurrency: int) -> tuple[float, float]:
    """Creates per second, and CPU seconds for each."""
    store, _ = sqlite_store(directory, SystemClock())
    await store.open()
    created = 0
    start, cpu = time.perf_counter(), time.process_time()

    async def writer(number: int) -> None:
        nonlocal created
        count = 0
        while time.perf_counter() - start < SECONDS:
            await store.write(Key("pods", "default", f"pod-{number}-{count}"), _put(VALUE))
            count += 1
            created += 1

    await asyncio.gather(*(writer(number) for number in range(concurrency)))
    elapsed, used = time.perf_counter() - start, time.process_time() - cpu
    await store.close()
    return created / elapsed, used / created


async def _open_and_back_up(directory: Path) -> tuple[float, float, float]:
    store, _ = sqlite_store(directory, SystemClock())
    await store.open()
    await asyncio.gather(*(store.write(Key("pods", "default", f"pod-{n}"), _put(LARGE)) for n in range(OBJECTS)))
    await store.close()
    start = time.perf_counter()
    store, journal = sqlite_store(directory, SystemClock())
    await store.open()
    opening = time.perf_counter() - start
    start = time.perf_counter()
    backup = asyncio.ensure_future(journal.backup(directory / "backup"))
    longest = await _longest_write(store, backup)
    await backup
    elapsed = time.perf_counter() - start
    await store.close()
    assert (directory / FILE_NAME).stat().st_size > OBJECTS * len(LARGE)
    return opening, elapsed, longest


async def _longest_write(store: Store, until: asyncio.Future[None]) -> float:
    longest = 0.0
    while not until.done():
        start = time.perf_counter()
        await store.write(Key("pods", "default", "pod-0"), _put(LARGE))
        longest = max(longest, time.perf_counter() - start)
    return longest


def _put(value: bytes) -> Callable[[Record | None, int], Change]:
    return lambda current, revision: Change(value)


def _sync_seconds(folder: Path) -> float:
    """What the disk takes to make 8 KB durable: the least that any acknowledged write takes."""
    samples = []
    with (folder / "sync").open("wb", buffering=0) as file:
        for _ in range(200):
            file.write(bytes(8192))
            start = time.perf_counter()
            os.fdatasync(file.fileno())
            samples.append(time.perf_counter() - start)
    return median(samples)
