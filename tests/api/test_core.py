from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from runherd.api import core
from runherd.api.core import (
    ConfigMap,
    Container,
    ContainerState,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    Event,
    Lease,
    LeaseSpec,
    ObjectReference,
    Pod,
    PodSpec,
    PodStatus,
    PolicyRule,
    Role,
    RoleBinding,
    RoleRef,
    Secret,
    ServiceAccount,
    Subject,
)
from runherd.api.meta import ApiStruct, Condition, ObjectMeta
from runherd.api.resource import Resource
from runherd.api.times import micro_time
from tests.controlplane.control_plane import ControlPlane

RESOURCES: list[Resource[Any]] = [value for value in vars(core).values() if isinstance(value, Resource)]
MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_a_pod_is_read_with_the_fields_that_matter() -> None:
    pod = msgspec.json.decode(
        b"""{
            "kind": "Pod", "apiVersion": "v1",
            "metadata": {"name": "p", "uid": "u", "managedFields": [{"manager": "m"}]},
            "spec": {
                "containers": [{"name": "runner", "image": "i", "env": [{"name": "A"}]}, {"name": "dind"}],
                "initContainers": [{"name": "init"}], "nodeName": "n", "restartPolicy": "Never"
            },
            "status": {
                "phase": "Failed", "reason": "Evicted", "message": "low on memory", "podIP": "10.0.0.1",
                "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-02T03:04:05Z",
                                "lastProbeTime": null, "observedGeneration": 1}],
                "containerStatuses": [
                    {"name": "runner", "ready": false, "state": {"terminated": {"exitCode": 0, "reason": "Completed",
                     "startedAt": "2026-01-02T03:04:05Z", "finishedAt": "2026-01-02T03:04:05Z"}}, "lastState": {}},
                    {"name": "dind", "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}
                ],
                "initContainerStatuses": [{"name": "init", "state": {"terminated": {"exitCode": 137, "signal": 9}}}]
            }
        }""",
        type=Pod,
    )
    assert pod == Pod(
        metadata=ObjectMeta(name="p", uid="u"),
        spec=PodSpec(
            containers=[Container(name="runner"), Container(name="dind")], node_name="n", restart_policy="Never"
        ),
        status=PodStatus(
            phase="Failed",
            reason="Evicted",
            message="low on memory",
            conditions=[Condition(type="Ready", status="False", last_transition_time=MOMENT, observed_generation=1)],
            container_statuses=[
                ContainerStatus(
                    name="runner",
                    state=ContainerState(
                        terminated=ContainerStateTerminated(
                            exit_code=0, reason="Completed", started_at=MOMENT, finished_at=MOMENT
                        )
                    ),
                ),
                ContainerStatus(
                    name="dind",
                    state=ContainerState(waiting=ContainerStateWaiting(reason="ErrImagePull", message="not found")),
                ),
            ],
            init_container_statuses=[
                ContainerStatus(
                    name="init", state=ContainerState(terminated=ContainerStateTerminated(exit_code=137, signal=9))
                )
            ],
        ),
    )


def test_exit_code_zero_is_written() -> None:
    assert msgspec.json.encode(ContainerStateTerminated()) == b'{"exitCode":0}'


def test_data_of_secrets_and_config_maps_is_base64_on_the_wire() -> None:
    secret = Secret(metadata=ObjectMeta(name="s"), data={"a": b"\x00\xff", "empty": b""})
    assert b'"data":{"a":"AP8=","empty":""}' in msgspec.json.encode(secret)
    assert msgspec.json.decode(msgspec.json.encode(secret), type=Secret) == secret
    config_map = ConfigMap(data={"a": "text"}, binary_data={"b": b"\x00\xff"})
    assert b'"data":{"a":"text"},"binaryData":{"b":"AP8="}' in msgspec.json.encode(config_map)


def test_a_secret_does_not_show_what_it_holds() -> None:
    secret = Secret(metadata=ObjectMeta(name="s", namespace="n"), data={"token": b"hidden"})
    for shown in (repr(secret), str(secret), f"{[secret]}"):
        assert "hidden" not in shown
        assert "n/s" in shown
        assert "token" in shown


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.plural)
def test_structs_say_where_they_are_served(resource: Resource[Any]) -> None:
    made = resource.type()
    assert (made.api_version, made.kind) == (resource.api_version, resource.kind)


OWN: list[tuple[Resource[Any], ApiStruct]] = [
    (core.SECRETS, Secret(metadata=ObjectMeta(name="it"), type="Opaque", data={"a": b"\x00", "empty": b""})),
    (core.CONFIG_MAPS, ConfigMap(metadata=ObjectMeta(name="it"), data={"a": "b"}, binary_data={"c": b"\xff"})),
    (
        core.SERVICE_ACCOUNTS,
        ServiceAccount(
            metadata=ObjectMeta(name="it"),
            image_pull_secrets=[core.LocalObjectReference(name="pull")],
            automount_service_account_token=False,
        ),
    ),
    (core.ROLES, Role(metadata=ObjectMeta(name="empty"))),
    (
        core.ROLES,
        Role(
            metadata=ObjectMeta(name="it"),
            rules=[PolicyRule(verbs=["patch"], api_groups=[""], resources=["pods"], resource_names=["a"])],
        ),
    ),
    (
        core.ROLE_BINDINGS,
        RoleBinding(
            metadata=ObjectMeta(name="it"),
            subjects=[Subject(kind="ServiceAccount", name="a", namespace="b")],
            role_ref=RoleRef(api_group="rbac.authorization.k8s.io", kind="Role", name="it"),
        ),
    ),
    (
        core.LEASES,
        Lease(
            metadata=ObjectMeta(name="it"),
            spec=LeaseSpec(
                holder_identity="me",
                lease_duration_seconds=15,
                acquire_time=micro_time(MOMENT),
                renew_time=micro_time(MOMENT),
                lease_transitions=1,
            ),
        ),
    ),
    (
        core.EVENTS,
        Event(
            metadata=ObjectMeta(name="it"),
            involved_object=ObjectReference(kind="Pod", name="p", namespace="NAMESPACE", uid="u", api_version="v1"),
            type="Warning",
            reason="Failed",
            message="m",
            action="Run",
            source=core.EventSource(component="runherd"),
            reporting_component="runherd",
            reporting_instance="i",
            count=2,
            first_timestamp=MOMENT,
            last_timestamp=MOMENT,
            event_time=micro_time(MOMENT),
        ),
    ),
]


@pytest.mark.parametrize(("resource", "made"), OWN, ids=lambda value: getattr(value, "plural", ""))
def test_the_api_server_stores_what_was_written(
    control_plane: ControlPlane, namespace: str, resource: Resource[Any], made: ApiStruct
) -> None:
    body = msgspec.json.decode(msgspec.json.encode(made).replace(b"NAMESPACE", namespace.encode()))
    path = f"{resource.prefix}/namespaces/{namespace}/{resource.plural}"
    client = control_plane.client()
    created = client.request("POST", path, body)
    assert created.status == 201, created.body
    stored = msgspec.json.decode(created.body, type=resource.type)
    expected = msgspec.convert(body, type=resource.type)
    assert msgspec.structs.replace(stored, metadata=expected.metadata) == expected

    # The items of a list lack kind and apiVersion.
    listed = client.get(path)["items"]
    assert stored in [msgspec.convert(item, type=resource.type) for item in listed]


def read(control_plane: ControlPlane, resource: Resource[Any], name: str, namespace: str = "") -> Any:
    """The object ``name`` as the API server lists it."""
    path = f"{resource.prefix}/namespaces/{namespace}/" if namespace else f"{resource.prefix}/"
    items = control_plane.client().get(f"{path}{resource.plural}")["items"]
    return next(msgspec.convert(item, type=resource.type) for item in items if item["metadata"]["name"] == name)


def test_pods_of_the_api_server_are_read(control_plane: ControlPlane, namespace: str) -> None:
    body = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "runner", "image": "i"}]}}
    control_plane.client().create(f"/api/v1/namespaces/{namespace}/pods", body)
    pod = read(control_plane, core.PODS, "p", namespace)
    assert pod.spec == PodSpec(containers=[Container(name="runner")], restart_policy="Always")
    assert pod.status == PodStatus(phase="Pending")


def test_namespaces_and_nodes_of_the_api_server_are_read(control_plane: ControlPlane, namespace: str) -> None:
    assert read(control_plane, core.NAMESPACES, namespace).status.phase == "Active"
    client = control_plane.client()
    client.create("/api/v1/nodes", {"metadata": {"name": namespace}, "spec": {"unschedulable": True}})
    assert read(control_plane, core.NODES, namespace).spec.unschedulable
    client.delete(f"/api/v1/nodes/{namespace}")


def test_definitions_of_the_api_server_are_read(control_plane: ControlPlane, namespace: str) -> None:
    body = definition(f"{namespace}.example.com")
    name = body["metadata"]["name"]
    collection = f"{core.CUSTOM_RESOURCE_DEFINITIONS.prefix}/{core.CUSTOM_RESOURCE_DEFINITIONS.plural}"
    control_plane.client().create(collection, body)
    spec = read(control_plane, core.CUSTOM_RESOURCE_DEFINITIONS, name).spec
    control_plane.client().delete(f"{collection}/{name}")
    assert msgspec.structs.replace(spec, versions=[]) == core.CustomResourceDefinitionSpec(
        group=f"{namespace}.example.com",
        scope="Namespaced",
        names=core.CustomResourceDefinitionNames(
            plural="things", singular="thing", kind="Thing", list_kind="ThingList"
        ),
    )
    assert spec.versions == [core.CustomResourceDefinitionVersion(name="v1", served=True, storage=True)]


def definition(group: str) -> dict[str, Any]:
    """A small definition of a kind in ``group``."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "metadata": {"name": f"things.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "Thing", "listKind": "ThingList", "plural": "things", "singular": "thing"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }
