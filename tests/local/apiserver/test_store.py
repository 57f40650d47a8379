import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from runherd.local.apiserver.sqlite_journal import sqlite_store
from runherd.local.apiserver.store import (
    Change,
    CompactedError,
    Contents,
    Event,
    Key,
    Limits,
    Record,
    Store,
    StoreClosedError,
    StoreFullError,
)
from tests.local.apiserver.sqlite_stores import StoppedClock, pod, put, remove

MakeStore = Callable[..., Awaitable[Store]]


@pytest.fixture(params=["memory", "sqlite"])
async def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MakeStore]:
    stores: list[Store] = []

    async def make(limits: Limits | None = None) -> Store:
        if request.param == "memory":
            stores.append(Store(limits=limits))
        else:
            stores.append(sqlite_store(tmp_path / str(len(stores)), StoppedClock(), limits)[0])
        await stores[-1].open()
        return stores[-1]

    yield make
    for store in stores:
        await store.close()


class HeldJournal:
    """Holds every append until it is released; fails those that it is told to fail."""

    def __init__(self, contents: Contents | None = None) -> None:
        self.contents = contents or Contents(1)
        self.batches: list[list[Event]] = []
        self.release = asyncio.Event()
        self.failure: Exception | None = None
        self.closed = False

    async def load(self) -> Contents:
        return self.contents

    async def append(self, events: Sequence[Event]) -> None:
        self.batches.append(list(events))
        await self.release.wait()
        if self.failure is not None:
            raise self.failure

    async def close(self) -> None:
        self.closed = True


async def test_revisions_rise_over_all_resources(make_store: MakeStore) -> None:
    store = await make_store()
    first = await store.write(pod("a"), put())
    second = await store.write(Key("secrets", "default", "a"), put())
    assert (first.revision, second.revision, store.revision) == (2, 3, 3)


async def test_lists_are_sorted_by_path_and_bound_to_the_namespace(make_store: MakeStore) -> None:
    store = await make_store()
    for namespace, name in [("b", "x"), ("a", "y"), ("a-b", "z"), ("a", "x"), ("a.b", "z"), ("a0", "z")]:
        await store.write(pod(name, namespace), put())
    assert [r.key.path for r in store.list("pods")] == ["a-b/z", "a.b/z", "a/x", "a/y", "a0/z", "b/x"]
    assert [r.key.path for r in store.list("pods", "a")] == ["a/x", "a/y"]
    assert [r.key.path for r in store.list("pods", "a", after="a/x")] == ["a/y"]
    assert [r.key.path for r in store.list("pods", after="a/y")] == ["a0/z", "b/x"]
    assert store.count("pods", "a") == 2
    assert store.count("pods", "a", after="a/x") == 1
    assert list(store.list("nodes")) == []


async def test_a_list_at_a_past_revision_shows_what_was_there(make_store: MakeStore) -> None:
    store = await make_store()
    await store.write(pod("a"), put(b"old"))
    await store.write(pod("b"), put(b"b"))
    then = store.revision
    await store.write(pod("a"), put(b"new"))
    await store.write(pod("b"), remove)
    await store.write(pod("c"), put(b"c"))
    assert [(r.key.name, r.value) for r in store.list("pods", revision=then)] == [("a", b"old"), ("b", b"b")]
    assert [r.key.name for r in store.list("pods", "default", after="default/a", revision=then)] == ["b"]
    assert [(r.key.name, r.value) for r in store.list("pods")] == [("a", b"new"), ("c", b"c")]


async def test_a_refused_decision_uses_no_revision(make_store: MakeStore) -> None:
    store = await make_store()

    def refuse(current: Record | None, revision: int) -> Change:
        raise KeyError("no")

    with pytest.raises(KeyError):
        await store.write(pod("a"), refuse)
    assert (await store.write(pod("a"), put())).revision == 2


async def test_a_decision_to_leave_the_object_returns_it_unchanged(make_store: MakeStore) -> None:
    store = await make_store()
    record = await store.write(pod("a"), put())
    assert await store.write(pod("a"), lambda current, revision: None) is record
    assert store.revision == record.revision


async def test_a_watch_gets_all_that_comes_after_its_revision(make_store: MakeStore) -> None:
    store = await make_store()
    first = await store.write(pod("a"), put(b"1"))
    await store.write(Key("secrets", "default", "a"), put())
    await store.write(pod("a"), put(b"2"))
    cursor = store.watch("pods", after=first.revision)
    assert [(e.type, e.record.value) for e in cursor.take()] == [("MODIFIED", b"2")]
    assert cursor.take() == []
    waiting = asyncio.ensure_future(cursor.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    await store.write(pod("a"), remove)
    await waiting
    (event,) = cursor.take()
    assert (event.type, event.record.revision) == ("DELETED", store.revision)
    assert event.previous is not None
    assert event.previous.value == b"2"


async def test_history_is_bounded_by_count(make_store: MakeStore) -> None:
    store = await make_store(Limits(events=2))
    start = store.revision
    slow = store.watch("pods", start)
    for name in "abc":
        await store.write(pod(name), put())
    with pytest.raises(CompactedError):
        store.watch("pods", start)
    with pytest.raises(CompactedError):
        slow.take()
    with pytest.raises(CompactedError):
        store.list("pods", revision=start)
    assert [e.record.key.name for e in store.watch("pods", start + 1).take()] == ["b", "c"]


async def test_history_is_bounded_by_size(make_store: MakeStore) -> None:
    store = await make_store(Limits(size=10))
    for name in "abc":
        await store.write(pod(name), put(b"12345"))
    assert len(store.watch("pods", store.FIRST_REVISION + 1).take()) == 2


async def test_a_write_is_seen_only_when_it_is_durable() -> None:
    journal = HeldJournal()
    store = Store(journal)
    await store.open()
    seen: list[Event] = []
    store.observe(seen.append)
    writing = asyncio.ensure_future(store.write(pod("a"), put()))
    await asyncio.sleep(0)
    assert store.get(pod("a")) is None
    assert store.is_unsettled("default")
    journal.release.set()
    record = await writing
    assert store.get(pod("a")) is record
    assert [event.record for event in seen] == [record]
    assert not store.is_unsettled("default")


async def test_writes_gather_while_the_journal_is_busy() -> None:
    journal = HeldJournal()
    store = Store(journal)
    await store.open()
    writing = [asyncio.ensure_future(store.write(pod("first"), put()))]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    writing += [asyncio.ensure_future(store.write(pod(name), put())) for name in "abc"]
    await asyncio.sleep(0)
    journal.release.set()
    await asyncio.gather(*writing)
    assert [[e.record.key.name for e in batch] for batch in journal.batches] == [["first"], ["a", "b", "c"]]


async def test_the_second_write_of_an_object_is_decided_on_the_first() -> None:
    journal = HeldJournal()
    store = Store(journal)
    await store.open()
    journal.release.set()

    def append(current: Record | None, revision: int) -> Change:
        return Change((current.value if current else b"") + b"x")

    await asyncio.gather(*(store.write(pod("a"), append) for _ in range(5)))
    assert store.get(pod("a")) == Record(pod("a"), b"xxxxx", store.revision)


async def test_a_failed_batch_is_never_seen_and_writes_go_on() -> None:
    journal = HeldJournal()
    store = Store(journal)
    await store.open()
    journal.release.set()
    journal.failure = StoreFullError("the disk is full")
    with pytest.raises(StoreFullError):
        await store.write(pod("a"), put())
    assert store.get(pod("a")) is None
    journal.failure = None
    assert (await store.write(pod("a"), put())).revision > 2


async def test_a_cancelled_writer_does_not_take_its_write_back() -> None:
    journal = HeldJournal()
    store = Store(journal)
    await store.open()
    writing = asyncio.ensure_future(store.write(pod("a"), put()))
    await asyncio.sleep(0)
    writing.cancel()
    await asyncio.sleep(0)
    journal.release.set()
    await store.write(pod("b"), put())
    assert [r.key.name for r in store.list("pods")] == ["a", "b"]


async def test_opening_takes_over_records_and_history() -> None:
    old, new = Record(pod("a"), b"1", 7), Record(pod("a"), b"2", 9)
    store = Store(HeldJournal(Contents(12, [new], [Event("MODIFIED", new, old)])))
    await store.open()
    assert store.revision == 12
    assert store.get(pod("a")) is new
    assert [event.record for event in store.watch("pods", after=8).take()] == [new]
    with pytest.raises(CompactedError):
        store.watch("pods", after=7)
    with pytest.raises(CompactedError):
        store.watch("secrets", after=7)


async def test_closing_settles_what_was_decided_and_refuses_the_rest() -> None:
    journal = HeldJournal()
    store = Store(journal)
    await store.open()
    writing = asyncio.ensure_future(store.write(pod("a"), put()))
    await asyncio.sleep(0)
    journal.release.set()
    await store.close()
    assert (await writing).key == pod("a")
    assert journal.closed
    with pytest.raises(StoreClosedError):
        await store.write(pod("b"), put())


async def test_a_revision_that_no_event_has_is_somebody_elses() -> None:
    records = [Record(pod(name), b"{}", revision) for name, revision in [("a", 7), ("b", 8), ("c", 20)]]
    store = Store(HeldJournal(Contents(100, records, [Event("ADDED", record, None) for record in records])))
    await store.open()
    for known, names in [(7, ["b", "c"]), (8, ["c"]), (20, []), (100, [])]:
        assert [event.record.key.name for event in store.watch("pods", known).take()] == names
    for unknown in (9, 19, 21, 99):
        with pytest.raises(CompactedError):
            store.watch("pods", unknown)
        with pytest.raises(CompactedError):
            store.list("pods", revision=unknown)
