"""What the embedded server does otherwise than the real one, as docs/embedded-api-server.md lists it."""

from __future__ import annotations

from typing import Any

from tests.conformance.api import GROUP, Api, config_map, pod
from tests.conformance.test_custom_resources import _CRDS, _minimal


async def test_nobody_is_named_as_a_manager_of_fields(api: Api) -> None:
    created = await api.create(api.core("configmaps"), config_map("a", {"k": "v"}))
    assert ("managedFields" in created["metadata"]) is api.is_real


async def test_nothing_is_added_to_pods_or_namespaces(api: Api) -> None:
    spec = (await api.create(api.core("pods"), pod("a")))["spec"]
    for field in ("serviceAccountName", "tolerations", "priority", "preemptionPolicy"):
        assert (field in spec) is api.is_real
    assert (await api.call("GET", api.core("serviceaccounts", "default"))).status == (200 if api.is_real else 404)


async def test_a_version_on_a_new_object_is_the_clients_fault(api: Api) -> None:
    answer = await api.call("POST", api.core("configmaps"), config_map("a", resourceVersion="1"))
    assert answer.status == (500 if api.is_real else 400)
    assert "resourceVersion should not be set on objects to be created" in answer.message


async def test_quantities_and_timestamps_stay_as_they_were_written(api: Api) -> None:
    body = pod("a")
    body["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1000m"}}
    created = await api.create(api.core("pods"), body)
    shown = created["spec"]["containers"][0]["resources"]["limits"]["cpu"]
    assert shown == ("1" if api.is_real else "1000m")


async def test_other_groups_are_not_there(api: Api) -> None:
    for path in (
        "/apis/apps/v1/deployments",
        "/apis/batch/v1/jobs",
        "/apis/events.k8s.io/v1/events",
        "/api/v1/services",
        "/api/v1/watch/pods",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    ):
        status = (await api.call("GET", path, query={"timeoutSeconds": 1})).status
        assert status in ({200, 405} if api.is_real else {404}), path


async def test_binary_forms_are_not_read_or_written(api: Api) -> None:
    for form in ("application/vnd.kubernetes.protobuf", "application/cbor"):
        status = (await api.call("GET", api.core("configmaps"), accept=form)).status
        assert status == (200 if api.is_real and "protobuf" in form else 406)


async def test_a_conversion_webhook_is_refused(api: Api) -> None:
    if api.is_real:
        return
    webhook: dict[str, Any] = {
        "clientConfig": {"url": "https://example.com/convert"},
        "conversionReviewVersions": ["v1"],
    }
    answer = await api.call("POST", _CRDS, _minimal(conversion={"strategy": "Webhook", "webhook": webhook}))
    assert answer.status == 422
    assert [field for _, field, _ in answer.causes] == ["spec.conversion.strategy"]


async def test_validation_rules_are_not_enforced(api: Api) -> None:
    rules = [{"rule": "self.x > 1", "message": "x is too small"}]
    spec = {"type": "object", "properties": {"x": {"type": "integer"}}, "x-kubernetes-validations": rules}
    answer = await api.call("POST", _CRDS, _minimal(schema={"type": "object", "properties": {"spec": spec}}))
    try:
        assert answer.status == 201
        warning = "spec.versions[0]: x-kubernetes-validations are kept but not enforced by this server"
        assert (warning in answer.warnings) is not api.is_real
        things = f"/apis/t.runherd.dev/v1/namespaces/{api.namespace}/things"
        await api.until(things, lambda answer: answer.status == 200)
        body = {"apiVersion": "t.runherd.dev/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"x": 1}}
        assert (await api.call("POST", things, body)).status == (422 if api.is_real else 201)
    finally:
        await api.call("DELETE", f"{_CRDS}/things.t.runherd.dev")
    await api.gone(f"{_CRDS}/things.t.runherd.dev")


async def test_a_definition_is_established_at_once(api: Api) -> None:
    created = await api.create(_CRDS, _minimal())
    try:
        assert bool(created["status"]["conditions"]) is not api.is_real
    finally:
        await api.call("DELETE", f"{_CRDS}/things.t.runherd.dev")
    await api.gone(f"{_CRDS}/things.t.runherd.dev")


async def test_a_named_object_of_a_custom_kind_can_not_be_posted_to(api: Api) -> None:
    for method, path in (("POST", api.custom("widgets", "a")), ("PUT", api.custom("widgets"))):
        assert (await api.call(method, path, {})).status == (400 if api.is_real else 405)


async def test_no_one_is_kept_from_anything(api: Api) -> None:
    """Roles are stored, and that is all: who has the token may do everything."""
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{api.namespace}/roles"
    rules = [{"apiGroups": [GROUP], "resources": ["widgets"], "verbs": ["get"]}]
    body = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "a"}, "rules": rules}
    assert (await api.create(path, body))["rules"] == rules


async def test_built_in_kinds_are_not_explained_in_prose(api: Api) -> None:
    document = await api.get("/openapi/v3/api/v1")
    assert ("description" in document["components"]["schemas"]["io.k8s.api.core.v1.Pod"]) is api.is_real
    answer = await api.call("GET", "/openapi/v2")
    assert (answer.status, b"Pod" in answer.body) == (200, api.is_real)


async def test_the_scale_of_custom_objects_is_not_served(api: Api) -> None:
    definition = _minimal(names={"plural": "scalables", "kind": "Scalable"})
    definition["metadata"]["name"] = "scalables.t.runherd.dev"
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    definition["spec"]["versions"][0]["subresources"] = {"scale": scale}
    await api.create(_CRDS, definition)
    try:
        path = f"/apis/{definition['spec']['group']}/v1/namespaces/{api.namespace}/scalables"
        await api.until(path, lambda answer: answer.status == 200)
        answer = await api.call("GET", f"{path}/none/scale")
        assert answer.status == (404 if api.is_real else 501)
        assert api.is_real or "scalables.t.runherd.dev/scale is not supported" in answer.message
        assert (await api.call("GET", api.custom("widgets", "none", "scale"))).status == 404
    finally:
        await api.call("DELETE", f"{_CRDS}/{definition['metadata']['name']}")


async def test_unchanged_values_are_validated_again(api: Api) -> None:
    """The real server lets stand what was valid when it was written and hasn't been changed since."""
    loose = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"x": {"type": "integer"}}}}}
    strict = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"x": {"type": "integer", "maximum": 1}}}},
    }
    await api.create(_CRDS, _minimal(schema=loose))
    try:
        things = f"/apis/t.runherd.dev/v1/namespaces/{api.namespace}/things"
        await api.until(things, lambda answer: answer.status == 200)
        body = {"apiVersion": "t.runherd.dev/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"x": 5}}
        await api.create(things, body)
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": strict}}
        await api.patch(f"{_CRDS}/things.t.runherd.dev", {"spec": {"versions": [version]}})

        async def is_strict() -> bool:
            other = {**body, "metadata": {"generateName": "b-"}}
            return (await api.call("POST", things, other)).status == 422

        for _ in range(200):
            if await is_strict():
                break
        patch = {"metadata": {"labels": {"a": "b"}}}
        answer = await api.call("PATCH", f"{things}/a", patch, content_type="application/merge-patch+json")
        assert answer.status == (200 if api.is_real else 422)
    finally:
        await api.call("DELETE", f"{_CRDS}/things.t.runherd.dev")
    await api.gone(f"{_CRDS}/things.t.runherd.dev")
