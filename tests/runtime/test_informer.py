from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import pytest
from structlog.testing import capture_logs

from runherd.api.core import PODS, Pod
from runherd.runtime.informer import Informer, InformerOptions
from runherd.runtime.request import Request
from tests.runtime.api import PODS_PATH, client_of, eventually, running
from tests.runtime.objects import Recorder
from tests.support.model_api import ModelApi, Object
from tests.support.virtual_time import in_virtual_time


def a_pod(name: str, namespace: str = "default", **fields: object) -> Object:
    return {"metadata": {"name": name, "namespace": namespace}, **fields}


@dataclass
class Setting:
    """An informer on a model of a server."""

    api: ModelApi = field(default_factory=ModelApi)
    namespace: str = ""
    recorder: Recorder = field(default_factory=Recorder)

    def __post_init__(self) -> None:
        self.informer: Informer[Pod] = Informer(client_of(self.api), PODS, self.namespace, random=Random(7))
        self.informer.store.add_handler(self.recorder)

    def put(self, name: str, namespace: str = "default", **fields: object) -> None:
        self.api.put(PODS_PATH, a_pod(name, namespace, **fields))

    def remove(self, name: str) -> None:
        self.api.remove(PODS_PATH, "default", name)

    def names(self) -> list[str]:
        return sorted(object_.metadata.name for object_ in self.informer.store.objects())

    def is_current(self) -> bool:
        """Whether the store has just what the server has."""
        stored = {
            (object_.metadata.namespace, object_.metadata.name): object_.metadata.resource_version
            for object_ in self.informer.store.objects()
        }
        return stored == {
            (namespace, name): object_["metadata"]["resourceVersion"]
            for (collection, namespace, name), object_ in self.api.objects.items()
            if collection == PODS_PATH and self.namespace in ("", namespace)
        }

    def requests_of(self, request: str) -> int:
        return sum(line.startswith(request) for line in self.api.requests)


@pytest.mark.parametrize("streaming", [True, False, None])
def test_list_and_watch(streaming: bool | None) -> None:
    @in_virtual_time
    async def main() -> None:
        setting = Setting()
        setting.api.streaming_lists = streaming
        setting.put("a")
        setting.put("b")
        async with running(setting.informer.run):
            await setting.informer.synced.wait()
            assert setting.recorder.take() == ["add a@2", "add b@3"]
            setting.put("a", status={"phase": "Running"})
            setting.put("c")
            setting.remove("b")
            await eventually(setting.is_current)
            assert setting.recorder.take() == ["update a@2->4", "add c@5", "delete b@6"]
        lists = setting.requests_of("GET")
        # Where streaming lists are refused or ignored there is a list, and it is asked for only once.
        assert lists == (0 if streaming else 1)

    main()


@in_virtual_time
async def test_a_server_that_ignores_the_streaming_list_is_asked_for_a_list_after_a_while() -> None:
    setting = Setting()
    setting.api.streaming_lists = None
    setting.put("a")
    async with running(setting.informer.run):
        await setting.informer.synced.wait()
        assert asyncio.get_running_loop().time() == pytest.approx(InformerOptions().initial_silence)


@in_virtual_time
async def test_a_streaming_list_that_is_cut_is_begun_again_and_only_a_whole_one_counts() -> None:
    setting = Setting()
    setting.put("a")
    setting.put("b")
    setting.api.delay = 1.0

    async def cut_in_the_middle() -> None:
        await eventually(lambda: setting.api.watching == 1)
        setting.api.cut_watches()

    setting.api.hold_watches = True
    async with running(setting.informer.run):
        await cut_in_the_middle()
        setting.api.release_watches()
        await setting.informer.synced.wait()
        assert setting.names() == ["a", "b"]


@in_virtual_time
async def test_only_objects_of_the_namespace_are_followed() -> None:
    setting = Setting(namespace="default")
    setting.put("a")
    setting.put("z", "other")
    async with running(setting.informer.run):
        await setting.informer.synced.wait()
        setting.put("y", "other")
        setting.put("b")
        await eventually(lambda: setting.names() == ["a", "b"])
    assert not any("z@" in event or "y@" in event for event in setting.recorder.events)


@pytest.mark.parametrize("end", ["cut_watches", "end_watches"])
def test_after_a_watch_ends_it_is_resumed_where_it_was(end: str) -> None:
    @in_virtual_time
    async def main() -> None:
        setting = Setting()
        setting.put("a")
        async with running(setting.informer.run):
            await setting.informer.synced.wait()
            setting.put("b")
            await eventually(setting.is_current)
            setting.recorder.take()
            for number in range(20):
                setting.api.hold_watches = True
                setting.put(f"c{number}")
                setting.put("a", status={"phase": str(number)})
                getattr(setting.api, end)()
                setting.remove(f"c{number}")
                setting.api.release_watches()
                await eventually(setting.is_current)
            events = setting.recorder.take()
            # each change by itself, and nothing twice
            assert len(events) == 60
            assert sum(event.startswith("delete c") for event in events) == 20
        assert not [line for line in setting.api.requests if line.startswith("GET") and "limit" not in line][20:]

    main()


@in_virtual_time
async def test_bookmarks_let_a_quiet_watch_be_resumed_after_history_was_forgotten() -> None:
    setting = Setting()
    setting.put("a")
    async with running(setting.informer.run):
        await setting.informer.synced.wait()
        setting.api.put("v1/configmaps", a_pod("unrelated"))
        setting.api.bookmark()
        await eventually(lambda: setting.informer.store.position == setting.api.version)
        setting.api.compact()
        streams = setting.requests_of("WATCH")
        setting.api.cut_watches()
        await eventually(lambda: setting.requests_of("WATCH") > streams and setting.api.watching == 1)
        setting.put("b")
        await eventually(setting.is_current)
        assert setting.recorder.events == ["add a@2", "add b@4"]


@in_virtual_time
async def test_after_410_everything_is_listed_and_missed_deletions_are_delivered() -> None:
    setting = Setting()
    for name in "abc":
        setting.put(name)
    async with running(setting.informer.run):
        await setting.informer.synced.wait()
        setting.recorder.take()
        setting.api.hold_watches = True
        setting.api.cut_watches()
        setting.remove("a")
        setting.put("b", status={"phase": "Running"})
        setting.put("d")
        setting.api.compact()
        setting.api.release_watches()
        await eventually(setting.is_current)
        assert sorted(setting.recorder.take()) == ["add d@7", "delete a@2", "update b@3->6"]
        setting.put("e")
        await eventually(setting.is_current)


@in_virtual_time
async def test_an_object_that_was_replaced_while_disconnected_is_deleted_and_added() -> None:
    setting = Setting()
    setting.put("a")
    async with running(setting.informer.run):
        await setting.informer.synced.wait()
        setting.api.hold_watches = True
        setting.api.cut_watches()
        setting.remove("a")
        setting.put("a")
        setting.api.compact()
        setting.api.release_watches()
        await eventually(setting.is_current)
        assert setting.recorder.events == ["add a@2", "delete a@2", "add a@4"]


@in_virtual_time
async def test_a_server_that_was_restored_from_a_backup_is_followed() -> None:
    setting = Setting()
    setting.put("a")
    setting.put("b")
    backup = setting.api.backup()
    async with running(setting.informer.run):
        for name in "cde":
            setting.put(name)
        setting.remove("b")
        await eventually(setting.is_current)
        setting.recorder.take()
        with capture_logs() as logs:
            setting.api.restore(backup)
            await eventually(setting.is_current)
        assert setting.names() == ["a", "b"]
        assert any(entry["log_level"] == "warning" and "backup" in entry["event"] for entry in logs)
        # versions that were seen before are handed out again, and count
        setting.put("f")
        await eventually(setting.is_current)
        assert "f" in setting.names()


@in_virtual_time
async def test_an_event_older_than_what_was_seen_means_that_the_server_went_back() -> None:
    setting = Setting()
    setting.put("a")
    async with running(setting.informer.run):
        await setting.informer.synced.wait()
        for _ in range(5):
            setting.put("a", status={"phase": str(setting.api.version)})
        await eventually(setting.is_current)
        # without the connection being cut, as behind a proxy that hides it
        setting.api.version = 3
        setting.api.objects.clear()
        setting.api.history.clear()
        setting.put("b")
        setting.api.history[-1] = (100, *setting.api.history[-1][1:])
        await eventually(setting.is_current)
        assert setting.names() == ["b"]


@in_virtual_time
async def test_waits_between_attempts_grow_and_are_bounded_and_begin_anew_after_success() -> None:
    loop = asyncio.get_running_loop()
    setting = Setting()
    setting.put("a")
    moments: list[float] = []
    attempts = 12

    async def follow() -> None:
        seen = 0
        while seen < attempts:
            if len(setting.api.requests) > seen:
                seen = len(setting.api.requests)
                moments.append(loop.time())
            await asyncio.sleep(0.01)

    setting.api.refuse_next = [("WATCH", 503, "ServiceUnavailable")] * (attempts - 1)
    async with running(setting.informer.run):
        await follow()
        await setting.informer.synced.wait()
        waits = [later - earlier for earlier, later in pairwise(moments)]
        for number, wait in enumerate(waits):
            base = min(0.25 * 2**number, 15.0)
            assert base - 0.02 <= wait <= 2 * base + 0.02
        setting.put("b")
        await eventually(setting.is_current)
        cut = loop.time()
        setting.api.cut_watches()
        await eventually(lambda: len(setting.api.requests) > attempts)
        assert loop.time() - cut < 0.6


@in_virtual_time
async def test_the_servers_wish_to_be_left_alone_is_respected() -> None:
    setting = Setting()
    setting.api.refuse_next = [("WATCH", 429, "TooManyRequests")]
    setting.api.retry_after = 100
    async with running(setting.informer.run):
        await setting.informer.synced.wait()
        assert asyncio.get_running_loop().time() >= 100


@in_virtual_time
async def test_what_is_refused_for_long_is_said_and_tried_again() -> None:
    setting = Setting()
    setting.put("a")
    setting.api.refuse_next = [("WATCH", 403, "Forbidden")] * 5
    with capture_logs() as logs:
        async with running(setting.informer.run):
            await eventually(lambda: setting.informer.last_error is not None)
            await eventually(lambda: setting.informer.last_error is None)
            assert setting.informer.synced.is_set()
    errors = [entry for entry in logs if entry["log_level"] == "error"]
    assert len(errors) == 5
    assert all("Forbidden" in entry["error"] and entry["kind"] == "Pod" for entry in errors)


@in_virtual_time
async def test_a_server_that_ends_every_watch_at_once_is_not_asked_in_a_hurry() -> None:
    setting = Setting()
    async with running(setting.informer.run):
        await setting.informer.synced.wait()
        for _ in range(100):
            setting.api.end_watches()
            await asyncio.sleep(0.01)
        await asyncio.sleep(30)
        assert setting.requests_of("WATCH") < 15


@in_virtual_time
async def test_a_server_that_forgets_at_once_is_not_listed_in_a_hurry() -> None:
    setting = Setting()
    setting.api.streaming_lists = False
    setting.api.refuse_next = [("WATCH", 422, "Invalid"), *[("WATCH", 410, "Expired")] * 100]
    async with running(setting.informer.run):
        await asyncio.sleep(60)
        assert setting.requests_of("WATCH") < 15


@in_virtual_time
async def test_other_tasks_get_their_turn_while_many_events_are_here() -> None:
    setting = Setting()
    turns = 0
    for number in range(1000):
        setting.put(f"pod{number}")
    async with running(setting.informer.run):
        await setting.informer.synced.wait()
        setting.api.hold_watches = True
        for number in range(1000):
            setting.put(f"pod{number}", status={"phase": "Running"})
        setting.api.release_watches()
        while not setting.is_current():
            turns += 1
            await asyncio.sleep(0)
    assert setting.informer.store.get(Request("default", "pod1")) is not None
    assert turns >= 10
