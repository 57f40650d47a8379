import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from runherd.local.apiserver.sqlite_errors import StoreDamagedError, StoreVersionError
from runherd.local.apiserver.sqlite_journal import FILE_NAME
from runherd.local.apiserver.sqlite_schema import VERSION, has_wal_reset_bug
from tests.local.apiserver.sqlite_stores import contents, opened, pod, put, query

#: A store as format 1 had it: rows without checksums.
FORMAT_1 = """
PRAGMA journal_mode = WAL;
CREATE TABLE versions (
    revision INTEGER PRIMARY KEY,
    resource TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    deleted INTEGER NOT NULL,
    value BLOB NOT NULL
);
CREATE TABLE state (id INTEGER PRIMARY KEY CHECK (id = 1), revision INTEGER NOT NULL, compacted INTEGER NOT NULL);
INSERT INTO state VALUES (1, 9, 6);
INSERT INTO versions VALUES (4, 'nodes', '', 'n', 0, CAST('{"n":1}' AS BLOB));
INSERT INTO versions VALUES (6, 'pods', 'default', 'a', 0, CAST('{"a":1}' AS BLOB));
INSERT INTO versions VALUES (7, 'pods', 'default', 'a', 0, CAST('{"a":2}' AS BLOB));
INSERT INTO versions VALUES (8, 'pods', 'default', 'b', 0, CAST('{"b":1}' AS BLOB));
INSERT INTO versions VALUES (9, 'pods', 'default', 'b', 1, CAST('{"b":1}' AS BLOB));
PRAGMA application_id = 0x72687374;
PRAGMA user_version = 1;
"""


def make(directory: Path, script: str) -> Path:
    directory.mkdir(exist_ok=True)
    with closing(sqlite3.connect(directory / FILE_NAME)) as connection:
        connection.executescript(script)
    return directory / FILE_NAME


async def test_a_store_of_format_1_is_migrated(tmp_path: Path) -> None:
    make(tmp_path, FORMAT_1)
    for _ in range(2):
        async with opened(tmp_path) as (store, _journal):
            assert contents(store) == {"nodes n": b'{"n":1}', "pods default/a": b'{"a":2}'}
            assert store.revision == 9
            events = store.watch("pods", 6).take()
            assert [(e.type, e.revision) for e in events] == [("MODIFIED", 7), ("ADDED", 8), ("DELETED", 9)]
    assert query(tmp_path, "PRAGMA user_version") == [(VERSION,)]
    async with opened(tmp_path) as (store, _journal):
        assert (await store.write(pod("c"), put())).revision == 10


async def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = make(
        tmp_path, FORMAT_1 + "CREATE TRIGGER stop BEFORE UPDATE ON versions BEGIN SELECT raise(FAIL, 'x'); END;"
    )
    before = path.read_bytes()
    with pytest.raises(Exception, match=FILE_NAME):
        async with opened(tmp_path):
            pass
    assert query(tmp_path, "PRAGMA user_version") == [(1,)]
    assert "checksum" not in str(query(tmp_path, "SELECT sql FROM sqlite_master WHERE name = 'versions'"))
    assert len(before) == len(path.read_bytes())


async def test_a_store_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, _):
        await store.write(pod("a"), put())
    query(tmp_path, f"PRAGMA user_version = {VERSION + 1}")
    before = (tmp_path / FILE_NAME).read_bytes()
    with pytest.raises(StoreVersionError, match=rf"{tmp_path}.*newer version.*format {VERSION + 1}"):
        async with opened(tmp_path):
            pass
    assert (tmp_path / FILE_NAME).read_bytes() == before


async def test_a_database_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = make(tmp_path, "CREATE TABLE t (a); INSERT INTO t VALUES (1);")
    before = path.read_bytes()
    with pytest.raises(StoreVersionError, match="not a store of runherd"):
        async with opened(tmp_path):
            pass
    assert path.read_bytes() == before


async def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(b"kind: Secret\n" * 1000)
    with pytest.raises(StoreDamagedError, match=f"{path} is damaged"):
        async with opened(tmp_path):
            pass
    assert path.read_bytes() == b"kind: Secret\n" * 1000


async def test_a_store_whose_making_was_cut_short_is_made(tmp_path: Path) -> None:
    make(tmp_path, "PRAGMA page_size = 8192; PRAGMA journal_mode = WAL;")
    async with opened(tmp_path) as (store, _):
        await store.write(pod("a"), put())
    async with opened(tmp_path) as (store, _):
        assert store.count("pods") == 1


@pytest.mark.parametrize(
    ("version", "expected"), [((3, 6, 23), False), ((3, 7, 0), True), ((3, 51, 2), True), ((3, 51, 3), False)]
)
def test_the_wal_reset_bug_is_known_by_version(version: tuple[int, ...], expected: bool) -> None:
    assert has_wal_reset_bug(version) is expected
