"""A disk that fails to make a write durable, and a kill right after: what was refused must not come back."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.local.apiserver.sqlite_stores import contents, opened

CHILD = """
import asyncio, os, sys
from pathlib import Path
from runherd.local.apiserver.sqlite_journal import sqlite_store
from runherd.local.apiserver.store import Change, Key, StoreError
from runherd.wire.clock import SystemClock

async def main():
    store, _ = sqlite_store(Path(sys.argv[1]), SystemClock())
    await store.open()
    for n in range(100):
        try:
            await store.write(Key("pods", "default", str(n)), lambda current, revision: Change(b"{}"))
        except StoreError as error:
            os.write(1, f"refused {n}: {error}\\n".encode())
            os.kill(os.getpid(), 9)
        os.write(1, f"acknowledged {n}\\n".encode())

asyncio.run(main())
"""


@pytest.mark.parametrize("failing", [16, 17, 25])
async def test_a_refused_write_does_not_come_back_after_a_kill(failing: int, tmp_path: Path) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("NOT TESTED: a disk that fails to sync, which takes strace to pretend")
    inject = ["-f", "-o", str(tmp_path / "trace"), "-e", f"inject=fdatasync:error=EIO:when={failing}"]
    child = subprocess.run(  # noqa: ASYNC221 - nothing else runs meanwhile
        [strace, *inject, sys.executable, "-c", CHILD, str(tmp_path / "data")],
        check=False,
        capture_output=True,
        text=True,
    )
    if "ptrace" in child.stderr:
        pytest.skip(f"NOT TESTED: a disk that fails to sync: {child.stderr.strip()}")
    *acknowledged, refused = child.stdout.splitlines()
    assert "disk I/O error" in refused
    async with opened(tmp_path / "data") as (store, _):
        assert len(contents(store)) == len(acknowledged)
