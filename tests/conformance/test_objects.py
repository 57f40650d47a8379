"""Creating, reading and updating: metadata, versions, conflicts."""

from __future__ import annotations

import re

import pytest

from tests.conformance.api import MERGE_PATCH, Api, config_map, gadget, pod, widget


async def test_a_created_object_has_what_the_server_sets(api: Api) -> None:
    body = widget("a", labels={"x": "y"}, annotations={"n": "1"})
    body["metadata"] |= {"uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 7}
    created = await api.create(api.custom("widgets"), body)
    metadata = created["metadata"]
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", metadata["uid"])
    assert re.fullmatch(r"20[2-9]\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["creationTimestamp"])
    assert metadata["generation"] == 1
    assert metadata["namespace"] == api.namespace
    assert metadata["labels"] == {"x": "y"}
    assert int(metadata["resourceVersion"]) > 0
    assert (created["apiVersion"], created["kind"]) == (body["apiVersion"], "Widget")
    read = await api.get(api.custom("widgets", "a"))
    created["metadata"].pop("managedFields", None)
    read["metadata"].pop("managedFields", None)
    assert read == created


async def test_empty_metadata_is_dropped(api: Api) -> None:
    body = config_map("a", labels={}, annotations={}, finalizers=[], ownerReferences=[])
    created = await api.create(api.core("configmaps"), body)
    created["metadata"].pop("managedFields", None)
    assert set(created["metadata"]) == {"name", "namespace", "uid", "resourceVersion", "creationTimestamp"}


async def test_generation_is_kept_for_some_kinds_only(api: Api) -> None:
    assert "generation" not in (await api.create(api.core("configmaps"), config_map("a")))["metadata"]
    assert "generation" not in (await api.create(api.core("secrets"), _secret("a")))["metadata"]
    assert (await api.create(api.custom("gadgets"), gadget("a")))["metadata"]["generation"] == 1


def _secret(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}


async def test_names_are_generated(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "some-"}}
    created = await api.create(api.core("configmaps"), body)
    assert re.fullmatch(r"some-[bcdfghjklmnpqrstvwxz2456789]{5}", created["metadata"]["name"])
    assert created["metadata"]["generateName"] == "some-"
    long = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x" * 70}}
    assert len((await api.create(api.core("configmaps"), long))["metadata"]["name"]) == 63


async def test_a_name_given_wins_over_a_prefix(api: Api) -> None:
    body = config_map("given", generateName="some-")
    assert (await api.create(api.core("configmaps"), body))["metadata"]["name"] == "given"


async def test_an_object_is_created_once(api: Api) -> None:
    await api.create(api.core("configmaps"), config_map("a"))
    answer = await api.call("POST", api.core("configmaps"), config_map("a"))
    assert (answer.status, answer.reason) == (409, "AlreadyExists")
    assert answer.message == 'configmaps "a" already exists'
    assert answer.json["details"] == {"name": "a", "kind": "configmaps"}
    await api.create(api.custom("widgets"), widget("a"))
    answer = await api.call("POST", api.custom("widgets"), widget("a"))
    assert answer.message == 'widgets.conformance.runherd.dev "a" already exists'
    assert answer.json["details"] == {"name": "a", "group": "conformance.runherd.dev", "kind": "widgets"}


async def test_what_is_not_there_is_not_found(api: Api) -> None:
    for method in ("GET", "DELETE"):
        answer = await api.call(method, api.core("configmaps", "a"))
        assert (answer.status, answer.reason) == (404, "NotFound")
        assert answer.message == 'configmaps "a" not found'
    answer = await api.call("PUT", api.core("configmaps", "a"), config_map("a"))
    assert (answer.status, answer.message) == (404, 'configmaps "a" not found')
    answer = await api.call("PATCH", api.custom("widgets", "a"), {}, content_type=MERGE_PATCH)
    assert (answer.status, answer.message) == (404, 'widgets.conformance.runherd.dev "a" not found')


async def test_an_update_replaces_and_counts_up(api: Api) -> None:
    created = await api.create(api.core("configmaps"), config_map("a", {"k": "1"}))
    created["data"] = {"k": "2"}
    updated = await api.put(api.core("configmaps", "a"), created)
    assert updated["data"] == {"k": "2"}
    assert int(updated["metadata"]["resourceVersion"]) > int(created["metadata"]["resourceVersion"])
    assert updated["metadata"]["uid"] == created["metadata"]["uid"]


async def test_an_update_that_changes_nothing_changes_no_version(api: Api) -> None:
    created = await api.create(api.core("configmaps"), config_map("a", {"k": "1"}))
    again = await api.put(api.core("configmaps", "a"), created)
    assert again["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]
    same = await api.patch(api.core("configmaps", "a"), {"data": {"k": "1"}})
    assert same["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]
    made = await api.create(api.custom("widgets"), widget("a"))
    same = await api.patch(api.custom("widgets", "a"), {"spec": {"size": 1}})
    assert same["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_an_update_of_an_old_version_conflicts(api: Api) -> None:
    created = await api.create(api.core("configmaps"), config_map("a", {"k": "1"}))
    await api.put(api.core("configmaps", "a"), {**created, "data": {"k": "2"}})
    answer = await api.call("PUT", api.core("configmaps", "a"), {**created, "data": {"k": "3"}})
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert answer.message == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    assert answer.json["details"] == {"name": "a", "kind": "configmaps"}
    patch = {"metadata": {"resourceVersion": created["metadata"]["resourceVersion"]}, "data": {"k": "3"}}
    answer = await api.call("PATCH", api.core("configmaps", "a"), patch, content_type=MERGE_PATCH)
    assert (answer.status, answer.reason) == (409, "Conflict")


async def test_an_update_without_a_version_is_for_some_kinds_only(api: Api) -> None:
    await api.create(api.core("configmaps"), config_map("a"))
    await api.put(api.core("configmaps", "a"), config_map("a", {"k": "2"}))
    await api.create(api.custom("widgets"), widget("a"))
    answer = await api.call("PUT", api.custom("widgets", "a"), widget("a", {"size": 2}))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.causes == [
        ("FieldValueInvalid", "metadata.resourceVersion", "Invalid value: 0: must be specified for an update")
    ]
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}}
    path = f"/apis/coordination.k8s.io/v1/namespaces/{api.namespace}/leases"
    await api.create(path, lease)
    answer = await api.call("PUT", f"{path}/a", lease)
    assert answer.message == (
        'leases.coordination.k8s.io "a" is invalid: metadata.resourceVersion: '
        "Invalid value: 0: must be specified for an update"
    )


async def test_some_kinds_are_created_by_an_update(api: Api) -> None:
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "a"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    }
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{api.namespace}/roles/a"
    answer = await api.call("PUT", path, role)
    assert answer.status == 201
    assert (await api.get(path))["rules"] == role["rules"]


async def test_an_update_of_another_object_conflicts(api: Api) -> None:
    created = await api.create(api.core("configmaps"), config_map("a"))
    created["metadata"]["uid"] = "00000000-0000-4000-8000-000000000000"
    answer = await api.call("PUT", api.core("configmaps", "a"), created)
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert "Precondition failed: UID in precondition: 00000000-" in answer.message


async def test_what_can_not_be_changed(api: Api) -> None:
    created = await api.create(api.core("configmaps"), config_map("a"))
    patch = {"metadata": {"uid": "00000000-0000-4000-8000-000000000000"}}
    answer = await api.call("PATCH", api.core("configmaps", "a"), patch, content_type=MERGE_PATCH)
    assert (answer.status, answer.reason) == (422, "Invalid")
    kept = await api.patch(
        api.core("configmaps", "a"),
        {"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z", "generation": 9, "labels": {"a": "b"}}},
    )
    assert kept["metadata"]["creationTimestamp"] == created["metadata"]["creationTimestamp"]
    assert "generation" not in kept["metadata"]
    answer = await api.call("PUT", api.core("configmaps", "a"), config_map("b"))
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message == "the name of the object (b) does not match the name on the URL (a)"
    answer = await api.call("PUT", api.core("configmaps", "a"), config_map("a", namespace="other"))
    assert answer.status == 400
    assert answer.message == ("the namespace of the provided object does not match the namespace sent on the request")


async def test_generation_follows_the_spec(api: Api) -> None:
    path = api.custom("widgets", "a")
    await api.create(api.custom("widgets"), widget("a"))
    assert (await api.patch(path, {"spec": {"size": 2}}))["metadata"]["generation"] == 2
    assert (await api.patch(path, {"metadata": {"labels": {"x": "y"}}}))["metadata"]["generation"] == 2
    assert (await api.patch(f"{path}/status", {"status": {"phase": "Up"}}))["metadata"]["generation"] == 2
    await api.create(api.custom("gadgets"), gadget("a", spec={"x": 1}))
    gadgets = api.custom("gadgets", "a")
    assert (await api.patch(gadgets, {"status": {"x": 1}}))["metadata"]["generation"] == 2
    assert (await api.patch(gadgets, {"metadata": {"labels": {"x": "y"}}}))["metadata"]["generation"] == 2


async def test_a_missing_namespace_is_not_found(api: Api) -> None:
    answer = await api.call("POST", "/api/v1/namespaces/not-there/configmaps", config_map("a"))
    assert (answer.status, answer.message) == (404, 'namespaces "not-there" not found')
    assert await api.names("/api/v1/namespaces/not-there/configmaps") == []


_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_NAME_PART = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


@pytest.mark.parametrize(
    ("metadata", "field", "message"),
    [
        ({"name": "Not_Good"}, "metadata.name", f'Invalid value: "Not_Good": {_SUBDOMAIN}'),
        ({}, "metadata.name", "Required value: name or generateName is required"),
        ({"name": "a", "labels": {"a b": "x"}}, "metadata.labels", f'Invalid value: "a b": {_NAME_PART}'),
        ({"name": "a", "labels": {"a": "x y"}}, "metadata.labels", f'Invalid value: "x y": {_LABEL_VALUE}'),
        ({"name": "x" * 254}, "metadata.name", f'Invalid value: "{"x" * 254}": must be no more than 253 characters'),
        (
            {"name": "a", "labels": {"a": "x" * 64}},
            "metadata.labels",
            f'Invalid value: "{"x" * 64}": must be no more than 63 bytes',
        ),
        (
            {"name": "a", "annotations": {"a": "x" * 262144}},
            "metadata.annotations",
            "Too long: may not be more than 262144 bytes",
        ),
        (
            {"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "", "uid": "x"}]},
            "metadata.ownerReferences.name",
            'Invalid value: "": must not be empty',
        ),
    ],
)
async def test_bad_metadata_is_refused(api: Api, metadata: dict[str, object], field: str, message: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    answer = await api.call("POST", api.core("configmaps"), body)
    assert (answer.status, answer.reason) == (422, "Invalid")
    reasons = {"Required": "FieldValueRequired", "Too": "FieldValueTooLong", "Invalid": "FieldValueInvalid"}
    assert answer.causes == [(reasons[message.split()[0]], field, message)]
    assert answer.message == f'ConfigMap "{metadata.get("name", "")}" is invalid: {field}: {message}'


async def test_a_list_of_a_kind_spans_namespaces(api: Api) -> None:
    await api.create(api.core("configmaps"), config_map("a"))
    listed = await api.get("/api/v1/configmaps")
    assert listed["kind"] == "ConfigMapList"
    assert (api.namespace, "a") in [(i["metadata"]["namespace"], i["metadata"]["name"]) for i in listed["items"]]


async def test_versions_of_a_kind_show_the_same_objects(api: Api) -> None:
    crate = {
        "apiVersion": "conformance.runherd.dev/v1beta1",
        "kind": "Crate",
        "metadata": {"name": "a"},
        "spec": {"x": 1},
    }
    created = await api.create(api.custom("crates", version="v1beta1"), crate)
    assert created["apiVersion"] == "conformance.runherd.dev/v1beta1"
    read = await api.get(api.custom("crates", "a"))
    assert read["apiVersion"] == "conformance.runherd.dev/v1"
    assert read["metadata"]["uid"] == created["metadata"]["uid"]
    patched = await api.patch(api.custom("crates", "a", version="v1beta1"), {"spec": {"x": 2}})
    assert patched["apiVersion"] == "conformance.runherd.dev/v1beta1"
    assert (await api.get(api.custom("crates")))["items"][0]["spec"] == {"x": 2}
    async with api.watch(api.custom("crates", version="v1beta1")) as watch:
        assert (await watch.next())["object"]["apiVersion"] == "conformance.runherd.dev/v1beta1"


async def test_a_node_and_a_pod_keep_their_status_from_the_main_endpoint(api: Api) -> None:
    created = await api.create(api.core("pods"), {**pod("a"), "status": {"phase": "Running"}})
    assert created["status"]["phase"] == "Pending"
    patched = await api.patch(api.core("pods", "a"), {"status": {"phase": "Running"}})
    assert patched["status"]["phase"] == "Pending"
    patched = await api.patch(
        api.core("pods", "a", "status"), {"status": {"phase": "Running"}, "spec": {"nodeName": "x"}}
    )
    assert patched["status"]["phase"] == "Running"
    assert "nodeName" not in patched["spec"]
