"""The forms in which objects and the API itself are shown: tables, metadata, discovery, OpenAPI."""

from __future__ import annotations

from typing import Any

from tests.conformance import builtin_schemas
from tests.conformance.api import GROUP, Api, config_map, pod, widget

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
#: The kinds that the embedded server has.
BUILT_IN = {
    "/api/v1": [
        "configmaps", "events", "namespaces", "namespaces/finalize", "namespaces/status", "nodes", "nodes/status",
        "pods", "pods/binding", "pods/log", "pods/status", "secrets", "serviceaccounts",
    ],
    "/apis/rbac.authorization.k8s.io/v1": ["clusterrolebindings", "clusterroles", "rolebindings", "roles"],
    "/apis/coordination.k8s.io/v1": ["leases"],
    "/apis/apiextensions.k8s.io/v1": ["customresourcedefinitions", "customresourcedefinitions/status"],
}  # fmt: skip


async def test_a_table_of_custom_resources(api: Api) -> None:
    await api.create(api.custom("widgets"), widget("a"))
    status = {"status": {"conditions": [{"type": "Other", "status": "?"}, {"type": "Ready", "status": "True"}]}}
    await api.patch(api.custom("widgets", "a", "status"), status)
    await api.create(api.custom("widgets"), widget("b", {"size": 2, "color": "green"}))
    answer = await api.call("GET", api.custom("widgets"), accept=TABLE)
    table = answer.json
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    columns = [(each["name"], each["type"], each["priority"]) for each in table["columnDefinitions"]]
    assert columns == [
        ("Name", "string", 0),
        ("Size", "integer", 0),
        ("Color", "string", 0),
        ("Ready", "string", 1),
        ("Age", "date", 0),
    ]
    assert table["columnDefinitions"][1]["description"] == "How big."
    assert [row["cells"][:4] for row in table["rows"]] == [["a", 1, "red", "True"], ["b", 2, "green", None]]
    assert table["rows"][0]["cells"][4].endswith("s")
    row = table["rows"][0]["object"]
    assert (row["kind"], row["apiVersion"], row["metadata"]["name"]) == ("PartialObjectMetadata", "meta.k8s.io/v1", "a")
    assert "spec" not in row
    whole = await api.call("GET", api.custom("widgets"), accept=TABLE, query={"includeObject": "Object"})
    assert whole.json["rows"][0]["object"]["spec"]["size"] == 1
    none = await api.call("GET", api.custom("widgets"), accept=TABLE, query={"includeObject": "None"})
    assert not none.json["rows"][0].get("object")
    one = await api.call("GET", api.custom("widgets", "a"), accept=TABLE)
    assert [row["cells"][0] for row in one.json["rows"]] == ["a"]


async def test_a_table_of_pods(api: Api) -> None:
    await api.create(api.core("pods"), pod("a", nodeName="n1"))
    answer = await api.call("GET", api.core("pods"), accept=TABLE)
    names = [(each["name"], each["priority"]) for each in answer.json["columnDefinitions"]]
    assert names == [
        ("Name", 0), ("Ready", 0), ("Status", 0), ("Restarts", 0), ("Age", 0), ("IP", 1), ("Node", 1),
        ("Nominated Node", 1), ("Readiness Gates", 1),
    ]  # fmt: skip
    cells = answer.json["rows"][0]["cells"]
    assert (cells[:4], cells[5:]) == (["a", "0/1", "Pending", "0"], ["<none>", "n1", "<none>", "<none>"])

    async def shown(status: dict[str, Any]) -> list[str]:
        await api.patch(api.core("pods", "a", "status"), {"status": status})
        table = (await api.call("GET", api.core("pods", "a"), accept=TABLE)).json
        result: list[str] = table["rows"][0]["cells"][1:4]
        return result

    container: dict[str, Any] = {"name": "main", "image": "i", "imageID": "", "restartCount": 2, "ready": True}
    running = {**container, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
    waiting = {**container, "ready": False, "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    ended = {**container, "ready": False, "state": {"terminated": {"exitCode": 3}}}
    failed = {**container, "ready": False, "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
    assert await shown({"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [running]}) == [
        "1/1",
        "Running",
        "2",
    ]
    assert await shown({"containerStatuses": [waiting]}) == ["0/1", "ImagePullBackOff", "2"]
    assert await shown({"containerStatuses": [ended]}) == ["0/1", "ExitCode:3", "2"]
    assert await shown({"containerStatuses": [failed]}) == ["0/1", "Error", "2"]
    assert await shown({"phase": "Failed", "reason": "Evicted", "containerStatuses": []}) == ["0/1", "Evicted", "0"]


async def test_the_columns_of_built_in_kinds(api: Api) -> None:
    paths = {
        "/api/v1/namespaces": ["Name", "Status", "Age"],
        api.core("configmaps"): ["Name", "Data", "Age"],
        api.core("secrets"): ["Name", "Type", "Data", "Age"],
        api.core("serviceaccounts"): ["Name", "Age"],
        api.core("events"): [
            "Last Seen", "Type", "Reason", "Object", "Subobject", "Source", "Message", "First Seen", "Count", "Name",
        ],
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/{api.namespace}/roles": ["Name", "Created At"],
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/{api.namespace}/rolebindings": [
            "Name", "Role", "Age", "Users", "Groups", "ServiceAccounts",
        ],
        f"/apis/coordination.k8s.io/v1/namespaces/{api.namespace}/leases": ["Name", "Holder", "Age"],
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions": ["Name", "Created At"],
    }  # fmt: skip
    for path, names in paths.items():
        table = (await api.call("GET", path, accept=TABLE)).json
        assert [each["name"] for each in table["columnDefinitions"]] == names, path


async def test_objects_cut_down_to_their_metadata(api: Api) -> None:
    await api.create(api.core("configmaps"), config_map("a", {"k": "v"}, labels={"x": "y"}))
    accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    one = (await api.call("GET", api.core("configmaps", "a"), accept=accept)).json
    assert (one["kind"], one["apiVersion"], one["metadata"]["labels"]) == (
        "PartialObjectMetadata",
        "meta.k8s.io/v1",
        {"x": "y"},
    )
    assert "data" not in one
    accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    listed = (await api.call("GET", api.core("configmaps"), accept=accept)).json
    assert listed["kind"] == "PartialObjectMetadataList"
    assert "a" in [item["metadata"]["name"] for item in listed["items"]]


async def test_discovery_names_the_built_in_kinds(api: Api) -> None:
    for path, names in BUILT_IN.items():
        listed = await api.get(path)
        assert listed["kind"] == "APIResourceList"
        found = {each["name"]: each for each in listed["resources"]}
        assert set(names) <= set(found)
        if not api.is_real:
            assert sorted(found) == names
    pods = {each["name"]: each for each in (await api.get("/api/v1"))["resources"]}["pods"]
    pods.pop("storageVersionHash", None)
    assert pods == {
        "name": "pods",
        "singularName": "pod",
        "namespaced": True,
        "kind": "Pod",
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        "shortNames": ["po"],
        "categories": ["all"],
    }


async def test_discovery_names_custom_kinds(api: Api) -> None:
    group = await api.get(f"/apis/{GROUP}")
    versions = [each["version"] for each in group["versions"]]
    assert (group["kind"], versions, group["preferredVersion"]["version"]) == ("APIGroup", ["v1", "v1beta1"], "v1")
    listed = {each["name"]: each for each in (await api.get(f"/apis/{GROUP}/v1"))["resources"]}
    assert (listed["widgets"]["kind"], listed["widgets"]["shortNames"]) == ("Widget", ["wg"])
    assert listed["widgets/status"]["verbs"] == ["get", "patch", "update"]
    groups = [each["name"] for each in (await api.get("/apis"))["groups"]]
    assert {GROUP, "apiextensions.k8s.io", "coordination.k8s.io", "rbac.authorization.k8s.io"} <= set(groups)
    assert (await api.get("/api"))["versions"] == ["v1"]


async def test_aggregated_discovery(api: Api) -> None:
    core = await api.call("GET", "/api", accept=AGGREGATED)
    assert core.headers["Content-Type"] == "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    resources = {each["resource"]: each for each in core.json["items"][0]["versions"][0]["resources"]}
    assert resources["pods"]["responseKind"] == {"group": "", "version": "", "kind": "Pod"}
    assert resources["pods"]["scope"] == "Namespaced"
    assert "status" in [each["subresource"] for each in resources["pods"]["subresources"]]
    others = await api.call("GET", "/apis", accept=AGGREGATED)
    groups = {each["metadata"]["name"]: each for each in others.json["items"]}
    leases = groups["coordination.k8s.io"]["versions"][0]["resources"][0]
    assert leases["responseKind"] == {"group": "", "version": "", "kind": "Lease"}
    widgets = {each["resource"]: each for each in groups[GROUP]["versions"][0]["resources"]}["widgets"]
    assert widgets["responseKind"] == {"group": GROUP, "version": "v1", "kind": "Widget"}
    assert (widgets["singularResource"], widgets["shortNames"], widgets["categories"]) == ("widget", ["wg"], ["all"])


async def test_openapi_describes_the_kinds(api: Api) -> None:
    paths = (await api.get("/openapi/v3"))["paths"]
    for path, kind in (("api/v1", "Pod"), (f"apis/{GROUP}/v1", "Widget")):
        url, _, query = paths[path]["serverRelativeURL"].partition("?")
        document = (await api.call("GET", url, query=dict([query.split("=")]))).json
        schemas = document["components"]["schemas"]
        described = [
            each["kind"] for schema in schemas.values() for each in schema.get("x-kubernetes-group-version-kind", [])
        ]
        assert kind in described


async def test_the_bundled_schemas_are_the_real_ones(api: Api) -> None:
    documents = [await api.get(f"/openapi/v3/{path}") for path in builtin_schemas.GROUP_VERSIONS]
    if api.is_real:
        assert builtin_schemas.extract(documents) == builtin_schemas.bundled()
    else:
        served = {name for document in documents for name in document["components"]["schemas"]}
        assert "io.k8s.api.core.v1.PodSpec" in served
