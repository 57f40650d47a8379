import threading
from pathlib import Path

import pytest

from tests.controlplane.cache import cache_directory, cached


def ignore(line: str) -> None:
    del line


def test_directory_is_the_users_and_a_relative_setting_is_ignored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "runherd"

    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory() == tmp_path / ".cache" / "runherd"


def test_two_runs_at_the_same_time_fill_once(tmp_path: Path) -> None:
    filling, go_on = threading.Event(), threading.Event()
    fills: list[Path] = []
    waits: list[str] = []

    def fill(directory: Path) -> None:
        fills.append(directory)
        filling.set()
        go_on.wait()
        (directory / "program").touch()

    def second_report(line: str) -> None:
        waits.append(line)
        go_on.set()

    first = threading.Thread(target=cached, args=(tmp_path / "key", fill, ignore))
    first.start()
    filling.wait()
    assert not (tmp_path / "key").exists()

    result = cached(tmp_path / "key", fill, second_report)

    first.join()
    assert (result / "program").exists()
    assert len(fills) == 1
    assert waits == [f"waiting for another run that fills {tmp_path / 'key'}"]


def test_failure_leaves_nothing_and_the_next_run_fills_again(tmp_path: Path) -> None:
    def fail(directory: Path) -> None:
        (directory / "half").touch()
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        cached(tmp_path / "key", fail, ignore)
    assert [entry.name for entry in tmp_path.iterdir()] == ["key.lock"]

    result = cached(tmp_path / "key", lambda directory: (directory / "whole").touch(), ignore)
    assert [entry.name for entry in result.iterdir()] == ["whole"]
