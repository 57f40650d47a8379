"""Watches: from a version, with selectors, bookmarks and initial events."""

from __future__ import annotations

from tests.conformance.api import Api, config_map, pod, widget


async def test_a_watch_without_a_version_begins_with_what_is_there(api: Api) -> None:
    await api.create(api.custom("widgets"), widget("a"))
    await api.create(api.custom("widgets"), widget("b"))
    async with api.watch(api.custom("widgets")) as watch:
        assert await watch.take(2) == [("ADDED", "a"), ("ADDED", "b")]
        await api.patch(api.custom("widgets", "a"), {"spec": {"size": 2}})
        event = await watch.next()
        assert (event["type"], event["object"]["spec"]["size"]) == ("MODIFIED", 2)
        await api.delete(api.custom("widgets", "a"))
        event = await watch.next()
        assert (event["type"], event["object"]["spec"]["size"]) == ("DELETED", 2)


async def test_a_watch_from_a_version_begins_behind_it(api: Api) -> None:
    created = await api.create(api.custom("widgets"), widget("a"))
    await api.patch(api.custom("widgets", "a"), {"spec": {"size": 2}})
    await api.create(api.custom("widgets"), widget("b"))
    await api.delete(api.custom("widgets", "a"))
    version = created["metadata"]["resourceVersion"]
    async with api.watch(api.custom("widgets"), resourceVersion=version) as watch:
        assert await watch.take(3) == [("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a")]


async def test_versions_only_rise(api: Api) -> None:
    version = await api.version()
    async with api.watch(api.core("configmaps"), resourceVersion=version) as watch:
        for name in "abc":
            await api.create(api.core("configmaps"), config_map(name))
        await api.delete(api.core("configmaps", "a"))
        seen = [await watch.next() for _ in range(4)]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in seen]
    assert versions == sorted(set(versions))
    # A deletion has a version of its own, later than the object's last.
    assert versions[3] > versions[0]


async def test_an_object_that_comes_to_match_is_added_and_one_that_ceases_is_deleted(api: Api) -> None:
    await api.create(api.custom("widgets"), widget("a", labels={"color": "red"}))
    version = await api.version()
    path = api.custom("widgets", "a")
    async with api.watch(api.custom("widgets"), resourceVersion=version, labelSelector="color=green") as watch:
        await api.patch(path, {"metadata": {"labels": {"color": "green"}}})
        assert await watch.take(1) == [("ADDED", "a")]
        await api.patch(path, {"spec": {"size": 2}})
        assert await watch.take(1) == [("MODIFIED", "a")]
        changed = await api.patch(path, {"metadata": {"labels": {"color": "blue"}}, "spec": {"size": 3}})
        event = await watch.next()
        assert event["type"] == "DELETED"
        # It is shown as it last matched, at the version at which it ceased to.
        assert event["object"]["spec"]["size"] == 2
        assert event["object"]["metadata"]["labels"] == {"color": "green"}
        assert event["object"]["metadata"]["resourceVersion"] == changed["metadata"]["resourceVersion"]
        await api.patch(path, {"spec": {"size": 4}})
        await api.patch(path, {"metadata": {"labels": {"color": "green"}}})
        assert await watch.take(1) == [("ADDED", "a")]
        await api.delete(path)
        assert await watch.take(1) == [("DELETED", "a")]


async def test_a_watch_can_select_by_fields(api: Api) -> None:
    version = await api.version()
    async with api.watch(api.core("pods"), resourceVersion=version, fieldSelector="spec.nodeName=n1") as watch:
        await api.create(api.core("pods"), pod("a"))
        await api.create(api.core("pods"), pod("b", nodeName="n1"))
        assert await watch.take(1) == [("ADDED", "b")]


async def test_one_object_can_be_watched(api: Api) -> None:
    version = await api.version()
    path = api.core("configmaps")
    async with api.watch(path, resourceVersion=version, fieldSelector="metadata.name=b") as watch:
        await api.create(path, config_map("a"))
        await api.create(path, config_map("b"))
        assert await watch.take(1) == [("ADDED", "b")]
    # The parameter means nothing where an object is named.
    assert (await api.get(api.core("configmaps", "b"), watch="true"))["kind"] == "ConfigMap"


async def test_initial_events_end_with_a_bookmark(api: Api) -> None:
    await api.create(api.custom("widgets"), widget("a"))
    await api.create(api.custom("widgets"), widget("b"))
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    async with api.watch(api.custom("widgets"), **query) as watch:
        assert await watch.take(2) == [("ADDED", "a"), ("ADDED", "b")]
        event = await watch.next()
        assert event["type"] == "BOOKMARK"
        assert event["object"]["kind"] == "Widget"
        assert event["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        version = int(event["object"]["metadata"]["resourceVersion"])
        assert version >= int((await api.get(api.custom("widgets", "b")))["metadata"]["resourceVersion"])
        await api.create(api.custom("widgets"), widget("c"))
        assert await watch.take(1) == [("ADDED", "c")]


async def test_no_initial_events_are_sent_when_they_are_not_wanted(api: Api) -> None:
    await api.create(api.custom("widgets"), widget("a"))
    query = {
        "sendInitialEvents": "false",
        "resourceVersionMatch": "NotOlderThan",
        "resourceVersion": await api.version(),
    }
    async with api.watch(api.custom("widgets"), **query) as watch:
        await api.create(api.custom("widgets"), widget("b"))
        assert await watch.take(1) == [("ADDED", "b")]


async def test_a_watch_ends_at_its_timeout(api: Api) -> None:
    async with api.watch(api.custom("widgets"), timeoutSeconds=1) as watch:
        events = []
        try:
            while True:
                events.append(await watch.next())
        except StopAsyncIteration:
            pass
        assert events == []


async def test_the_last_finalizer_ends_in_one_event(api: Api) -> None:
    path = api.custom("widgets", "a")
    await api.create(api.custom("widgets"), widget("a", finalizers=["runherd.dev/x"]))
    version = await api.version()
    async with api.watch(api.custom("widgets"), resourceVersion=version) as watch:
        await api.delete(path)
        event = await watch.next()
        assert (event["type"], "deletionTimestamp" in event["object"]["metadata"]) == ("MODIFIED", True)
        await api.patch(path, {"metadata": {"finalizers": None}, "spec": {"size": 7}})
        event = await watch.next()
        assert event["type"] == "DELETED"
        # The last state that was stored, without the change that let it go.
        assert event["object"]["metadata"]["finalizers"] == ["runherd.dev/x"]
        assert event["object"]["spec"]["size"] == 1


async def test_a_pod_without_grace_is_marked_before_it_goes(api: Api) -> None:
    await api.create(api.core("pods"), pod("a"))
    version = await api.version()
    async with api.watch(api.core("pods"), resourceVersion=version) as watch:
        await api.delete(api.core("pods", "a"))
        first, second = await watch.next(), await watch.next()
        assert (first["type"], second["type"]) == ("MODIFIED", "DELETED")
        assert first["object"]["metadata"]["deletionGracePeriodSeconds"] == 0
        assert "deletionTimestamp" in second["object"]["metadata"]


async def test_watches_come_as_tables(api: Api) -> None:
    await api.create(api.custom("widgets"), widget("a"))
    await api.create(api.custom("widgets"), widget("b"))
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    async with api.watch(api.custom("widgets"), accept=accept) as watch:
        first, second = await watch.next(), await watch.next()
        assert first["object"]["kind"] == "Table"
        assert [column["name"] for column in first["object"]["columnDefinitions"]] == [
            "Name",
            "Size",
            "Color",
            "Ready",
            "Age",
        ]
        assert first["object"]["rows"][0]["cells"][:3] == ["a", 1, "red"]
        assert not second["object"].get("columnDefinitions")
        assert second["object"]["rows"][0]["cells"][:3] == ["b", 1, "red"]
