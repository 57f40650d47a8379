"""The chores in virtual time: in the same order in every run, and gone on with after a restart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from random import Random
from typing import Any

from runherd.local.apiserver.server import ApiServer
from runherd.local.apiserver.store import Contents, Event, Key, Record, Store, StoreFullError
from runherd.wire.clock import EventLoopClock
from runherd.wire.transport import Request, Response
from tests.support.virtual_time import run_in_virtual_time

_MAPS = "/api/v1/namespaces/default/configmaps"


async def _call(server: ApiServer, method: str, path: str, body: object = None) -> Any:
    data = json.dumps(body).encode() if body is not None else b""
    answer = await server.handle(Request(method, f"http://x{path}", {"Content-Type": "application/json"}, data))
    assert isinstance(answer, Response)
    assert answer.status < 300, answer.body
    return json.loads(answer.body)


async def _family(server: ApiServer, size: int) -> None:
    owner = await _call(server, "POST", _MAPS, {"metadata": {"name": "owner"}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    for number in range(size):
        await _call(server, "POST", _MAPS, {"metadata": {"name": f"c{number}", "ownerReferences": [reference]}})


def test_dependents_go_in_the_order_of_their_creation() -> None:
    async def main() -> None:
        store = Store()
        server = ApiServer(store, random=Random(0), clock=EventLoopClock())
        await server.start()
        await _family(server, 20)
        gone: list[str] = []
        store.observe(lambda event: gone.append(event.record.key.name) if event.type == "DELETED" else None)
        await _call(server, "DELETE", f"{_MAPS}/owner")
        await asyncio.sleep(1)
        assert gone == ["owner", *(f"c{number}" for number in range(20))]
        await server.close()

    run_in_virtual_time(main())


class KeptJournal:
    """Keeps what is appended, as a disk would; refuses while ``is_full``."""

    def __init__(self) -> None:
        self.records: dict[Key, Record] = {}
        self.revision = 1
        self.is_full = False

    async def load(self) -> Contents:
        return Contents(self.revision, list(self.records.values()))

    async def append(self, events: Sequence[Event]) -> None:
        if self.is_full:
            raise StoreFullError("the disk is full")
        for event in events:
            if event.type == "DELETED":
                self.records.pop(event.record.key)
            else:
                self.records[event.record.key] = event.record
            self.revision = event.revision

    async def close(self) -> None:
        """There is nothing to close."""


def test_work_that_was_cut_off_is_gone_on_with() -> None:
    async def main() -> None:
        journal = KeptJournal()
        server = ApiServer(Store(journal), random=Random(0), clock=EventLoopClock())
        await server.start()
        await _family(server, 5)
        await _call(server, "POST", "/api/v1/namespaces", {"metadata": {"name": "ending"}})
        await _call(server, "POST", "/api/v1/namespaces/ending/secrets", {"metadata": {"name": "s"}})
        # The process dies between the deletes and what follows from them.
        cut = {key: record for key, record in journal.records.items() if key.name != "owner"}
        await _call(server, "DELETE", "/api/v1/namespaces/ending")
        cut[Key("namespaces", "", "ending")] = journal.records[Key("namespaces", "", "ending")]
        await server.close()
        after = KeptJournal()
        after.records, after.revision = cut, journal.revision
        server = ApiServer(Store(after), random=Random(0), clock=EventLoopClock())
        await server.start()
        await asyncio.sleep(1)
        assert (await _call(server, "GET", _MAPS))["items"] == []
        names = [each["metadata"]["name"] for each in (await _call(server, "GET", "/api/v1/namespaces"))["items"]]
        assert names == ["default", "kube-node-lease", "kube-public", "kube-system"]
        await server.close()

    run_in_virtual_time(main())


def test_a_full_disk_is_told_and_waited_for() -> None:
    async def main() -> None:
        journal = KeptJournal()
        server = ApiServer(Store(journal), random=Random(0), clock=EventLoopClock())
        await server.start()
        await _family(server, 3)
        await _call(server, "DELETE", f"{_MAPS}/owner")
        journal.is_full = True
        await asyncio.sleep(5)
        body = json.dumps({"metadata": {"name": "more"}}).encode()
        request = Request("POST", f"http://x{_MAPS}", {"Content-Type": "application/json"}, body)
        answer = await server.handle(request)
        assert isinstance(answer, Response)
        status = json.loads(answer.body)
        assert (answer.status, status["reason"]) == (507, "InsufficientStorage")
        assert status["message"] == "the write was not carried out: the disk is full"
        assert (await _call(server, "GET", _MAPS))["items"] != []
        journal.is_full = False
        await asyncio.sleep(5)
        assert (await _call(server, "GET", _MAPS))["items"] == []
        await server.close()

    run_in_virtual_time(main())
