import asyncio
from pathlib import Path
from random import Random

import pytest

from runherd.local.apiserver.sqlite_errors import StoreDamagedError
from runherd.local.apiserver.sqlite_journal import FILE_NAME
from runherd.local.apiserver.store import StoreError
from tests.local.apiserver.sqlite_stores import contents, opened, pod, put, query, remove


async def fill(directory: Path) -> dict[str, bytes]:
    async with opened(directory) as (store, _):
        await asyncio.gather(*(store.write(pod(f"p{n}"), put(b'{"n":%d}' % n * 200)) for n in range(30)))
        for n in range(0, 30, 5):
            await store.write(pod(f"p{n}"), put(b"changed"))
        await store.write(pod("p7"), remove)
        return contents(store)


async def test_damage_is_refused_with_what_to_do_and_the_directory_is_free_again(tmp_path: Path) -> None:
    expected = await fill(tmp_path)
    path = tmp_path / FILE_NAME
    sound = path.read_bytes()
    path.write_bytes(sound[:8192] + bytes(8192) + sound[16384:])
    for _ in range(2):
        with pytest.raises(StoreDamagedError) as refusal:
            async with opened(tmp_path):
                pass
        assert str(path) in str(refusal.value)
        assert "Move store.db and store.db-wal away" in str(refusal.value)
        assert "backup" in str(refusal.value)
    path.write_bytes(sound)
    async with opened(tmp_path) as (store, _):
        assert contents(store) == expected


@pytest.mark.parametrize("seed", range(60))
async def test_no_change_of_the_file_is_served_as_if_it_were_nothing(seed: int, tmp_path: Path) -> None:
    """A few bytes anywhere are other ones, or a part is missing: it is refused, or it made no difference."""
    expected = await fill(tmp_path)
    path = tmp_path / FILE_NAME
    random = Random(seed)
    content = bytearray(path.read_bytes())
    for _ in range(random.randint(1, 3)):
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    if random.random() < 0.2:
        del content[random.randrange(len(content)) :]
    path.write_bytes(content)
    try:
        async with opened(tmp_path) as (store, _):
            served = contents(store)
    except StoreError as error:
        assert str(path) in str(error)  # noqa: PT017 - either outcome is right
    else:
        assert served == expected


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM state",
        "PRAGMA user_version = 0",
        "DROP TABLE state",
        "UPDATE versions SET value = 'text' WHERE name = 'p3'",
        "UPDATE versions SET value = x'00' WHERE name = 'p3'",
        "UPDATE versions SET name = 'other' WHERE name = 'p3'",
        "UPDATE versions SET name = CAST(x'ff' AS TEXT) WHERE name = 'p3'",
        "UPDATE versions SET revision = 1 WHERE name = 'p3'",
    ],
)
async def test_changes_by_others_are_refused(statement: str, tmp_path: Path) -> None:
    await fill(tmp_path)
    query(tmp_path, statement)
    with pytest.raises(StoreDamagedError, match=f"{tmp_path / FILE_NAME} is damaged"):
        async with opened(tmp_path):
            pass


async def test_a_log_without_its_file_is_not_thrown_away(tmp_path: Path) -> None:
    async with opened(tmp_path / "data") as (store, _):
        await store.write(pod("a"), put())
        log = (tmp_path / "data" / f"{FILE_NAME}-wal").read_bytes()
    left = tmp_path / "left"
    left.mkdir()
    (left / f"{FILE_NAME}-wal").write_bytes(log)
    with pytest.raises(StoreDamagedError, match=r"it is empty, but its log store\.db-wal is not"):
        async with opened(left):
            pass
    assert (left / f"{FILE_NAME}-wal").read_bytes() == log


async def test_the_error_of_damage_shows_no_value(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, _):
        await store.write(pod("a"), put(b"hunter2" * 10))
    query(tmp_path, "UPDATE versions SET value = 'hunter2'")
    with pytest.raises(StoreDamagedError) as refusal:
        async with opened(tmp_path):
            pass
    assert "hunter2" not in str(refusal.value)
