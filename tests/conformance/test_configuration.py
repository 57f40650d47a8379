"""Secrets, config maps, roles, leases, pods: what each kind fills in and refuses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api import MERGE_PATCH, Api, config_map, pod

_RBAC = "rbac.authorization.k8s.io"


def secret(name: str, **fields: object) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, **fields}


async def test_secrets(api: Api) -> None:
    created = await api.create(api.core("secrets"), secret("a", stringData={"k": "v"}, data={"b": "Yg=="}))
    assert (created["type"], created["data"]) == ("Opaque", {"k": "dg==", "b": "Yg=="})
    assert "stringData" not in created
    patched = await api.patch(api.core("secrets", "a"), {"stringData": {"k": "w"}})
    assert patched["data"] == {"k": "dw==", "b": "Yg=="}
    answer = await api.call("PATCH", api.core("secrets", "a"), {"type": "other"}, content_type=MERGE_PATCH)
    assert answer.causes == [("FieldValueInvalid", "type", 'Invalid value: "other": field is immutable')]
    await api.patch(api.core("secrets", "a"), {"immutable": True})
    answer = await api.call("PATCH", api.core("secrets", "a"), {"data": {"k": "eA=="}}, content_type=MERGE_PATCH)
    assert answer.causes == [("FieldValueForbidden", "data", "Forbidden: field is immutable when `immutable` is set")]


async def test_bad_secrets(api: Api) -> None:
    answer = await api.call("POST", api.core("secrets"), secret("a", data={"k": "not base64!"}))
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert "illegal base64 data" in answer.message
    answer = await api.call("POST", api.core("secrets"), secret("a", stringData={"a/b": "v"}))
    assert [field for _, field, _ in answer.causes] == ["data[a/b]"]
    answer = await api.call("POST", api.core("secrets"), secret("a", stringData={"k": "x" * (1024 * 1024 + 1)}))
    assert answer.causes == [("FieldValueTooLong", "data", "Too long: may not be more than 1048576 bytes")]
    answer = await api.call(
        "POST", api.core("secrets"), secret("a", type="kubernetes.io/tls", stringData={"tls.crt": ""})
    )
    assert answer.causes == [("FieldValueRequired", "data[tls.key]", "Required value")]


async def test_config_maps(api: Api) -> None:
    answer = await api.call("POST", api.core("configmaps"), config_map("a", {"a b": "x"}))
    assert [field for _, field, _ in answer.causes] == ["data[a b]"]
    await api.create(api.core("configmaps"), {**config_map("a", {"k": "v"}), "immutable": True})
    answer = await api.call("PATCH", api.core("configmaps", "a"), {"immutable": False}, content_type=MERGE_PATCH)
    assert answer.causes == [
        ("FieldValueForbidden", "immutable", "Forbidden: field is immutable when `immutable` is set")
    ]
    await api.patch(api.core("configmaps", "a"), {"metadata": {"labels": {"x": "y"}}})


async def test_roles(api: Api) -> None:
    path = f"/apis/{_RBAC}/v1/namespaces/{api.namespace}"
    role: dict[str, Any] = {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": {"name": "a"}}
    await api.create(f"{path}/roles", {**role, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]})
    answer = await api.call("POST", f"{path}/roles", {**role, "rules": [{"apiGroups": [""]}]})
    assert [field for _, field, _ in answer.causes] == ["rules[0].resources", "rules[0].verbs"]
    binding: dict[str, Any] = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "a"},
        "roleRef": {"kind": "Role", "name": "a"},
        "subjects": [
            {"kind": "ServiceAccount", "name": "x", "namespace": api.namespace},
            {"kind": "User", "name": "u"},
        ],
    }
    created = await api.create(f"{path}/rolebindings", binding)
    assert created["roleRef"]["apiGroup"] == _RBAC
    assert created["subjects"][1]["apiGroup"] == _RBAC
    answer = await api.call("PATCH", f"{path}/rolebindings/a", {"roleRef": {"name": "b"}}, content_type=MERGE_PATCH)
    assert [(field, message[-20:]) for _, field, message in answer.causes] == [
        ("roleRef", "cannot change roleRef")
    ] or (answer.causes[0][1] == "roleRef" and answer.causes[0][2].endswith("cannot change roleRef"))
    bad = {**binding, "metadata": {"name": "b"}, "roleRef": {"kind": "Nonsense", "name": ""}}
    answer = await api.call("POST", f"{path}/rolebindings", bad)
    assert [field for _, field, _ in answer.causes] == ["roleRef.kind", "roleRef.name"]


async def test_leases(api: Api) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{api.namespace}/leases"
    lease: dict[str, Any] = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}}
    spec = {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}
    created = await api.create(path, {**lease, "spec": spec})
    assert created["spec"] == spec
    answer = await api.call("POST", path, {**lease, "metadata": {"name": "b"}, "spec": {"leaseDurationSeconds": 0}})
    assert [field for _, field, _ in answer.causes] == ["spec.leaseDurationSeconds"]


async def test_pods_are_filled_in(api: Api) -> None:
    body = pod("a", volumes=[{"name": "s", "secret": {"secretName": "s"}}, {"name": "e"}])
    body["spec"]["containers"] += [
        {
            "name": "other",
            "image": "example.com/image",
            "ports": [{"containerPort": 80}],
            "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
        }
    ]
    created = await api.create(api.core("pods"), body)
    spec = created["spec"]
    assert {key: spec[key] for key in ("restartPolicy", "dnsPolicy", "schedulerName", "securityContext")} == {
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "securityContext": {},
    }
    assert (spec["terminationGracePeriodSeconds"], spec["enableServiceLinks"]) == (30, True)
    first, second = spec["containers"]
    assert first == {
        "name": "main",
        "image": "example.com/image:1",
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "resources": {},
    }
    assert second["imagePullPolicy"] == "Always"
    assert second["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert second["env"][0]["valueFrom"]["fieldRef"] == {"apiVersion": "v1", "fieldPath": "metadata.name"}
    assert second["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
    assert spec["volumes"] == [
        {"name": "s", "secret": {"secretName": "s", "defaultMode": 420}},
        {"name": "e", "emptyDir": {}},
    ]
    assert created["status"]["phase"] == "Pending"
    assert created["status"]["qosClass"] == "Burstable"


_DNS_POLICIES = '"ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"'


def _container(**fields: object) -> dict[str, Any]:
    return {"containers": [{"name": "main", "image": "i", **fields}]}


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        ({"containers": []}, [("FieldValueRequired", "spec.containers", "Required value")]),
        ({"containers": [{"name": "main"}]}, [("FieldValueRequired", "spec.containers[0].image", "Required value")]),
        ({"containers": [{"image": "i"}]}, [("FieldValueRequired", "spec.containers[0].name", "Required value")]),
        (
            {"containers": [{"name": "a", "image": "i"}, {"name": "a", "image": "i"}]},
            [("FieldValueDuplicate", "spec.containers[1].name", 'Duplicate value: "a"')],
        ),
        (
            {"restartPolicy": "Sometimes"},
            [
                (
                    "FieldValueNotSupported",
                    "spec.restartPolicy",
                    'Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"',
                )
            ],
        ),
        (
            {"dnsPolicy": "Magic"},
            [
                (
                    "FieldValueNotSupported",
                    "spec.dnsPolicy",
                    f'Unsupported value: "Magic": supported values: {_DNS_POLICIES}',
                )
            ],
        ),
        (
            _container(volumeMounts=[{"name": "none", "mountPath": "/x"}]),
            [("FieldValueNotFound", "spec.containers[0].volumeMounts[0].name", 'Not found: "none"')],
        ),
        (
            _container(ports=[{"containerPort": 70000}]),
            [
                (
                    "FieldValueInvalid",
                    "spec.containers[0].ports[0].containerPort",
                    "Invalid value: 70000: must be between 1 and 65535, inclusive",
                )
            ],
        ),
        (
            _container(imagePullPolicy="Maybe"),
            [
                (
                    "FieldValueNotSupported",
                    "spec.containers[0].imagePullPolicy",
                    'Unsupported value: "Maybe": supported values: "Always", "IfNotPresent", "Never"',
                )
            ],
        ),
        (
            _container(env=[{"name": ""}]),
            [("FieldValueRequired", "spec.containers[0].env[0].name", "Required value")],
        ),
        (
            {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]},
            [("FieldValueDuplicate", "spec.volumes[1].name", 'Duplicate value: "v"')],
        ),
        (
            {"activeDeadlineSeconds": 0},
            [
                (
                    "FieldValueInvalid",
                    "spec.activeDeadlineSeconds",
                    "Invalid value: 0: must be between 1 and 2147483647, inclusive",
                )
            ],
        ),
    ],
)
async def test_bad_pods_are_refused(api: Api, spec: dict[str, Any], causes: list[tuple[str, str, str]]) -> None:
    answer = await api.call("POST", api.core("pods"), pod("a", **spec))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.causes == causes


async def test_quantities_must_be_quantities(api: Api) -> None:
    answer = await api.call("POST", api.core("pods"), pod("a", **_container(resources={"limits": {"cpu": "much"}})))
    # A difference: the real server can't read the pod (400), the embedded one names the field.
    assert answer.status == (400 if api.is_real else 422)
    assert "quantities must match the regular expression" in answer.message
