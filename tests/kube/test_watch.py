from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runherd.api.core import PODS, SECRETS, Pod
from runherd.kube.errors import DecodeError, ForbiddenError, GoneError, InternalError
from runherd.kube.watch import WatchEvent, WatchOptions
from runherd.wire.transport import ConnectionLostError, DeadlineExceededError, StreamingResponse
from tests.kube.scripted import Script, client_of, pod, query_of, refusal, stream_of, watch_line
from tests.support.virtual_time import run_in_virtual_time


def status(**fields: Any) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", **fields}


async def read(*chunks: bytes, end: BaseException | None = None) -> list[WatchEvent[Pod]]:
    async with client_of(Script(stream_of(*chunks, end=end))).watch(PODS) as events:
        return [event async for event in events]


async def test_events_carry_typed_objects() -> None:
    added, modified, deleted = await read(
        watch_line("ADDED", pod("a", "1")) + watch_line("MODIFIED", pod("a", "2", status={"phase": "Running"})),
        watch_line("DELETED", pod("a", "3")),
    )
    assert (added.type, added.object.metadata.name, added.resource_version) == ("ADDED", "a", "1")
    assert isinstance(modified.object, Pod)
    assert modified.object.status.phase == "Running"
    assert (deleted.type, deleted.resource_version, deleted.initial_events_end) == ("DELETED", "3", False)


async def collect_names(events: AsyncIterator[WatchEvent[Pod]], names: list[str]) -> None:
    async for event in events:
        names.append(event.object.metadata.name)  # noqa: PERF401  # what came before an error is to be seen


BOOKMARK = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {"resourceVersion": "77", "creationTimestamp": None},
    "spec": {"containers": None},
    "status": {},
}


async def test_a_bookmark_is_read_though_it_is_no_complete_object() -> None:
    (bookmark,) = await read(watch_line("BOOKMARK", BOOKMARK))
    assert (bookmark.type, bookmark.resource_version, bookmark.initial_events_end) == ("BOOKMARK", "77", False)


async def test_the_bookmark_that_ends_the_initial_events_is_recognised() -> None:
    annotations = {"k8s.io/initial-events-end": "true"}
    metadata = {"resourceVersion": "5", "annotations": annotations}
    copied = pod("a", metadata={"name": "a", "resourceVersion": "5", "annotations": annotations})
    added, bookmark = await read(
        watch_line("ADDED", copied),
        watch_line("BOOKMARK", {"kind": "Pod", "apiVersion": "v1", "metadata": metadata}),
    )
    assert not added.initial_events_end
    assert bookmark.initial_events_end


async def test_an_error_event_raises_after_the_events_before_it() -> None:
    script = Script(
        stream_of(
            watch_line("ADDED", pod("a"))
            + watch_line("ERROR", status(code=410, reason="Expired", message="too old resource version: 1 (9)"))
        )
    )
    seen: list[str] = []
    async with client_of(script).watch(PODS) as events:
        with pytest.raises(GoneError, match=r"watch pods: Expired \(410\): too old resource version"):
            await collect_names(events, seen)
    assert seen == ["a"]


async def test_an_error_event_is_recognised_also_for_kinds_that_a_status_would_fit() -> None:
    # A Secret has no field whose type a Status contradicts but its kind.
    script = Script(stream_of(watch_line("ERROR", status(code=500, reason="InternalError"))))
    async with client_of(script).watch(SECRETS) as events:
        with pytest.raises(InternalError):
            await anext(events)
    script = Script(stream_of(watch_line("ERROR", {"apiVersion": "v1", "metadata": {}})))
    async with client_of(script).watch(SECRETS) as events:
        with pytest.raises(InternalError):
            await anext(events)


async def test_a_refusal_is_raised_on_entering() -> None:
    for answer, error in ((refusal(410, "Expired"), GoneError), (refusal(403, "Forbidden"), ForbiddenError)):
        with pytest.raises(error):
            async with client_of(Script(answer)).watch(PODS):
                pytest.fail("the watch began")


async def test_the_query() -> None:
    script = Script(stream_of(), stream_of())
    client = client_of(script)
    async with client.watch(PODS, "ns", resource_version="4", label_selector="a=b", field_selector="x=y") as events:
        assert [event async for event in events] == []
    async with client.watch(PODS, send_initial_events=True, timeout_seconds=30):
        pass
    first, second = (query_of(request) for request in script.requests)
    timeout = int(first.pop("timeoutSeconds"))
    assert 300 <= timeout <= 600
    assert script.timeouts[0].total == timeout + 30
    assert first == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "4",
        "labelSelector": "a=b",
        "fieldSelector": "x=y",
    }
    assert second == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "timeoutSeconds": "30",
    }


async def test_a_line_of_several_mebibytes() -> None:
    big = "x" * 5_000_000
    line = watch_line("ADDED", pod("big", metadata={"name": "big", "annotations": {"note": big}}))
    (event,) = await read(*(line[at : at + 65_536] for at in range(0, len(line), 65_536)))
    assert event.object.metadata.annotations["note"] == big


async def test_a_stream_that_ends_inside_a_line_is_lost_and_the_line_is_not_delivered() -> None:
    seen: list[str] = []
    line = watch_line("ADDED", pod("b"))
    for cut in (1, len(line) // 2, len(line) - 1):
        script = Script(stream_of(watch_line("ADDED", pod("a")) + line[:cut]))
        async with client_of(script).watch(PODS) as events:
            with pytest.raises(ConnectionLostError, match="inside an event"):
                await collect_names(events, seen)
    assert seen == ["a"] * 3


async def test_a_lost_connection_raises() -> None:
    with pytest.raises(ConnectionLostError):
        await read(watch_line("ADDED", pod("a")), end=RuntimeError("server breaks off"))


async def test_blank_lines_are_skipped() -> None:
    assert len(await read(b"\n\r\n" + watch_line("ADDED", pod("a")) + b"\n", b" ")) == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"<html>\n", "no watch event"),
        (b'{"type":"ADDED"}\n', "no watch event"),
        (b'{"type":"CHANGED","object":{"metadata":{"name":"a"}}}\n', "CHANGED"),
        (b'{"type":"BOOKMARK","object":[]}\n', "no watch event"),
        (b"\xff\xfe\n", "no watch event"),
        (
            b'{"type":"ADDED","object":{"metadata":{"name":"odd","namespace":"ns"},"status":{"phase":5}}}\n',
            r"Expected `str`, got `int` - at `\$.object.status.phase` \(in ns/odd\)",
        ),
    ],
)
async def test_a_line_that_is_no_event_is_an_error_that_says_where(line: bytes, message: str) -> None:
    with pytest.raises(DecodeError, match=message):
        await read(line)


@given(cuts=st.lists(st.integers(0, 2000), max_size=20), count=st.integers(0, 6))
def test_events_are_the_same_however_the_stream_is_cut_into_chunks(cuts: list[int], count: int) -> None:
    whole = b"".join(watch_line("ADDED", pod(f"p{n}", str(n))) for n in range(count))
    edges = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    chunks = [whole[start:end] for start, end in pairwise(edges)]
    events = run_in_virtual_time(read(*chunks))
    assert [event.resource_version for event in events] == [str(n) for n in range(count)]


def silent_after(*lines: bytes) -> StreamingResponse:
    async def generate() -> AsyncIterator[bytes]:
        for line in lines:
            yield line
        await asyncio.sleep(1_000_000)

    return StreamingResponse(200, generate())


def silence_until_given_up(*lines: bytes) -> tuple[float, str]:
    async def main() -> tuple[float, str]:
        async with client_of(Script(silent_after(*lines))).watch(PODS, timeout_seconds=400) as events:
            with pytest.raises(DeadlineExceededError) as caught:
                await collect_names(events, [])
        return asyncio.get_running_loop().time(), str(caught.value)

    return run_in_virtual_time(main())


def test_a_watch_that_falls_silent_after_a_bookmark_is_given_up_soon() -> None:
    seconds, text = silence_until_given_up(watch_line("ADDED", pod("a")), watch_line("BOOKMARK", BOOKMARK))
    assert seconds == pytest.approx(150)
    assert "nothing came for 150 s" in text


def test_a_watch_without_bookmarks_is_given_up_after_the_servers_own_deadline() -> None:
    assert silence_until_given_up(watch_line("ADDED", pod("a")))[0] == pytest.approx(430)


def test_a_server_that_never_answers_is_given_up() -> None:
    async def main() -> None:
        class Hanging(Script):
            async def _handle(self, request: Any) -> Any:
                await asyncio.sleep(1_000_000)

        script = Hanging(*[stream_of()] * 6)
        with pytest.raises(DeadlineExceededError, match="no answer within 60 s"):
            async with client_of(script).watch(PODS):
                pytest.fail("the watch began")
        assert asyncio.get_running_loop().time() > 360

    run_in_virtual_time(main())


def test_watches_end_at_different_times() -> None:
    options = WatchOptions()
    times = {int(Random(seed).uniform(options.shortest, options.longest)) for seed in range(10)}
    assert len(times) > 5


async def test_leaving_the_watch_closes_the_stream() -> None:
    closed = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        try:
            yield watch_line("ADDED", pod("a"))
            await asyncio.sleep(1_000_000)
        finally:
            closed.set()

    async with client_of(Script(StreamingResponse(200, endless()))).watch(PODS) as events:
        await anext(events)
    await closed.wait()
