"""Lists: selectors, pages, moments."""

from __future__ import annotations

import pytest

from tests.conformance.api import Api, config_map, pod, widget


async def _labelled(api: Api) -> None:
    for name, labels in (
        ("a", {"color": "red", "size": "1"}),
        ("b", {"color": "green", "size": "20"}),
        ("c", {"color": "red"}),
        ("d", {"example.com/x": "y"}),
        ("e", {}),
    ):
        await api.create(api.custom("widgets"), widget(name, labels=labels))


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("color=red", "ac"),
        ("color==red", "ac"),
        ("color!=red", "bde"),
        ("color", "abc"),
        ("!color", "de"),
        ("color in (red,green)", "abc"),
        ("color in (green, blue)", "b"),
        ("color notin (red)", "bde"),
        ("color=red,size=1", "a"),
        ("color,!size", "c"),
        ("color in (red),size notin (1)", "c"),
        ("example.com/x=y", "d"),
        ("size>5", "b"),
        ("size<5", "a"),
        (" color = red , size = 1 ", "a"),
        ("color=", ""),
        ("color in ()", ""),
        ("", "abcde"),
    ],
)
async def test_label_selectors(api: Api, selector: str, names: str) -> None:
    await _labelled(api)
    assert await api.names(api.custom("widgets"), labelSelector=selector) == list(names)


async def test_field_selectors(api: Api) -> None:
    await api.create(api.core("pods"), pod("a", nodeName="n1"))
    await api.create(api.core("pods"), pod("b", nodeName="n2"))
    await api.patch(api.core("pods", "b", "status"), {"status": {"phase": "Running"}})
    pods = api.core("pods")
    for selector, names in (
        ("metadata.name=a", ["a"]),
        ("metadata.name!=a", ["b"]),
        (f"metadata.namespace={api.namespace}", ["a", "b"]),
        ("spec.nodeName=n2", ["b"]),
        ("status.phase=Pending", ["a"]),
        ("status.phase!=Pending,spec.nodeName=n2", ["b"]),
        ("spec.restartPolicy=Always", ["a", "b"]),
        ("status.podIP=", ["a", "b"]),
    ):
        assert await api.names(pods, fieldSelector=selector) == names, selector
    answer = await api.call("GET", pods, query={"fieldSelector": "spec.hostname=x"})
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert "field label not supported: spec.hostname" in answer.message


async def test_field_selectors_of_custom_kinds(api: Api) -> None:
    await api.create(api.custom("widgets"), widget("a"))
    await api.create(api.custom("widgets"), widget("b", {"size": 1, "color": "green"}))
    assert await api.names(api.custom("widgets"), fieldSelector="spec.color=green") == ["b"]
    assert await api.names(api.custom("widgets"), fieldSelector="metadata.name=a") == ["a"]
    answer = await api.call("GET", api.custom("widgets"), query={"fieldSelector": "spec.size=1"})
    assert (answer.status, answer.reason) == (400, "BadRequest")


async def test_events_are_found_by_their_object(api: Api) -> None:
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "a.1"},
        "involvedObject": {"kind": "Pod", "namespace": api.namespace, "name": "a", "uid": "u1"},
        "reason": "Started",
        "message": "m",
        "type": "Normal",
        "source": {"component": "kubelet"},
    }
    await api.create(api.core("events"), event)
    other = {**event, "metadata": {"name": "b.1"}, "involvedObject": {**event["involvedObject"], "name": "b"}}  # type: ignore[dict-item]  # it is a dict
    await api.create(api.core("events"), other)
    selector = (
        f"involvedObject.kind=Pod,involvedObject.namespace={api.namespace},involvedObject.name=a,involvedObject.uid=u1"
    )
    assert await api.names(api.core("events"), fieldSelector=selector) == ["a.1"]
    assert await api.names(api.core("events"), fieldSelector="reason=Started,source=kubelet,type=Normal") == [
        "a.1",
        "b.1",
    ]
    wrong = {**event, "metadata": {"name": "c.1"}, "involvedObject": {"namespace": "elsewhere"}}
    assert (await api.call("POST", api.core("events"), wrong)).status == 422


async def _five(api: Api) -> None:
    for name in "abcde":
        await api.create(api.custom("widgets"), widget(name))


async def test_a_list_comes_in_pages_of_one_moment(api: Api) -> None:
    await _five(api)
    path = api.custom("widgets")
    first = await api.get(path, limit=2)
    assert [item["metadata"]["name"] for item in first["items"]] == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 3
    # What happens meanwhile is not seen.
    await api.delete(api.custom("widgets", "c"))
    await api.create(path, widget("bb"))
    await api.patch(api.custom("widgets", "d"), {"spec": {"size": 9}})
    second = await api.get(path, limit=2, **{"continue": first["metadata"]["continue"]})
    assert [(item["metadata"]["name"], item["spec"]["size"]) for item in second["items"]] == [("c", 1), ("d", 1)]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    last = await api.get(path, limit=2, **{"continue": second["metadata"]["continue"]})
    assert [item["metadata"]["name"] for item in last["items"]] == ["e"]
    assert last["metadata"]["continue"] == ""
    assert "remainingItemCount" not in last["metadata"]


async def test_pages_of_a_selection_have_no_count(api: Api) -> None:
    await _five(api)
    page = await api.get(api.custom("widgets"), limit=2, fieldSelector="spec.color=red")
    assert len(page["items"]) == 2
    assert "continue" in page["metadata"]
    assert "remainingItemCount" not in page["metadata"]
    rest = await api.get(
        api.custom("widgets"), fieldSelector="spec.color=red", **{"continue": page["metadata"]["continue"]}
    )
    assert [item["metadata"]["name"] for item in rest["items"]] == ["c", "d", "e"]


async def test_a_page_as_large_as_the_list_is_the_last(api: Api) -> None:
    await _five(api)
    page = await api.get(api.custom("widgets"), limit=5)
    assert len(page["items"]) == 5
    assert page["metadata"]["continue"] == ""
    assert set((await api.get(api.core("secrets")))["metadata"]) == {"resourceVersion"}


async def test_a_list_can_be_of_a_moment(api: Api) -> None:
    path = api.core("configmaps")
    await api.create(path, config_map("a", {"k": "1"}))
    then = await api.version()
    await api.patch(api.core("configmaps", "a"), {"data": {"k": "2"}})
    exact = await api.get(path, resourceVersion=then, resourceVersionMatch="Exact")
    assert exact["metadata"]["resourceVersion"] == then
    assert [i["data"]["k"] for i in exact["items"] if i["metadata"]["name"] == "a"] == ["1"]
    newer = await api.get(path, resourceVersion=then, resourceVersionMatch="NotOlderThan")
    assert [i["data"]["k"] for i in newer["items"] if i["metadata"]["name"] == "a"] == ["2"]
    anything = await api.get(path, resourceVersion="0")
    assert "a" in [item["metadata"]["name"] for item in anything["items"]]


async def test_a_moment_to_come_is_a_timeout(api: Api) -> None:
    answer = await api.call("GET", api.core("configmaps"), query={"resourceVersion": str(10**17)})
    assert (answer.status, answer.reason) == (504, "Timeout")
    assert answer.message.startswith(f"Timeout: Too large resource version: {10**17}, current: ")
    assert answer.causes == [("ResourceVersionTooLarge", "", "Too large resource version")]
    assert answer.json["details"]["retryAfterSeconds"] == 1


async def test_only_items_of_custom_kinds_say_what_they_are(api: Api) -> None:
    await api.create(api.core("configmaps"), config_map("a"))
    await api.create(api.custom("widgets"), widget("a"))
    item = (await api.get(api.core("configmaps")))["items"][0]
    assert "kind" not in item
    assert "apiVersion" not in item
    assert (await api.get(api.custom("widgets")))["items"][0]["kind"] == "Widget"
