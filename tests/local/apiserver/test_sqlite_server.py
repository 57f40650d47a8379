"""The API server on a SQLite store whose disk is full: clear errors, and nothing else."""

import asyncio
import json
from pathlib import Path
from random import Random
from typing import Any

from runherd.local.apiserver.server import ApiServer
from runherd.local.apiserver.sqlite_journal import SqliteJournal, sqlite_store
from runherd.wire.clock import SystemClock
from runherd.wire.transport import Request, Response

NAMESPACES = "http://embedded/api/v1/namespaces"


async def call(server: ApiServer, method: str, url: str, body: object = None) -> tuple[int, dict[str, Any]]:
    content = json.dumps(body).encode() if body is not None else b""
    answer = await server.handle(Request(method, url, {"Content-Type": "application/json"}, content))
    assert isinstance(answer, Response)
    return answer.status, json.loads(answer.body)


async def set_space(journal: SqliteJournal, more_pages: int) -> None:
    thread, database = journal._opened()
    pages = await thread.run(database._scalar, "PRAGMA page_count")
    await thread.run(database._scalar, f"PRAGMA max_page_count = {pages + more_pages}")


def config_map(name: str, size: int) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": {"a": "x" * size}}


async def test_a_full_disk_is_507_and_what_was_interrupted_is_finished_later(tmp_path: Path) -> None:
    store, journal = sqlite_store(tmp_path, SystemClock())
    server = ApiServer(store, random=Random(0))
    await server.start()
    assert (await call(server, "POST", NAMESPACES, {"metadata": {"name": "a"}}))[0] == 201
    maps = f"{NAMESPACES}/a/configmaps"
    assert (await call(server, "POST", maps, config_map("kept", 50_000)))[0] == 201
    await set_space(journal, 0)
    refused = 0
    for n in range(20):
        status, answer = await call(server, "POST", maps, config_map(f"new-{n}", 50_000))
        if status == 507:
            assert answer["reason"] == "InsufficientStorage"
            assert "no space is left" in answer["message"]
            refused += 1
    assert refused == 20
    status, listed = await call(server, "GET", maps)
    assert status == 200
    assert [item["metadata"]["name"] for item in listed["items"]] == ["kept"]
    # The namespace's end is begun, or refused; its contents, whose last states take space, can't all be removed now.
    status, _ = await call(server, "DELETE", f"{NAMESPACES}/a")
    assert status in {200, 507}
    await set_space(journal, 100_000)
    assert (await call(server, "DELETE", f"{NAMESPACES}/a"))[0] in {200, 409, 404}
    gone = asyncio.Event()
    store.observe(lambda event: gone.set() if event.type == "DELETED" and event.record.key.name == "a" else None)
    if (await call(server, "GET", f"{NAMESPACES}/a"))[0] != 404:
        await gone.wait()
    assert (await call(server, "GET", maps))[1]["items"] == []
    await server.close()
