"""A real API server takes what is built, with every field, and nothing drifts afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from random import Random
from typing import Any

import msgspec
import pytest

from runherd.actions.credentials import PersonalAccessToken
from runherd.actions.objects import JitRunnerConfig, RunnerReference
from runherd.api.actions import (
    AUTOSCALING_LISTENERS,
    AUTOSCALING_RUNNER_SETS,
    EPHEMERAL_RUNNER_SETS,
    EPHEMERAL_RUNNERS,
    AutoscalingListener,
    AutoscalingRunnerSet,
)
from runherd.api.core import PODS, ROLE_BINDINGS, ROLES, SECRETS, SERVICE_ACCOUNTS
from runherd.api.crds import crds
from runherd.api.resource import ApiObject, Resource
from runherd.kube.client import Client
from runherd.resources.autoscaling_listener import (
    autoscaling_listener,
    autoscaling_listener_spec,
    needs_other_listener,
)
from runherd.resources.ephemeral_runner import ephemeral_runner
from runherd.resources.ephemeral_runner_set import ephemeral_runner_set, ephemeral_runner_spec
from runherd.resources.integrity_hash import listener_spec_hash, runner_spec_hash
from runherd.resources.jit_secret import Registration, jit_secret, registration_in
from runherd.resources.listener_access import listener_role, listener_role_binding, listener_service_account
from runherd.resources.listener_config import CONFIG_KEY, listener_config, listener_config_secret
from runherd.resources.listener_pod import listener_pod
from runherd.resources.listener_settings import ListenerSettings
from runherd.resources.merge import metadata_patch
from runherd.resources.names import ephemeral_runner_name
from runherd.resources.proxy_secret import listener_proxy_secret, proxy_data, runner_proxy_secret
from runherd.resources.runner_pod import runner_pod
from tests.api import document
from tests.api.manifests import maximal
from tests.controlplane.client import Client as PlainClient
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.waiting import wait_until
from tests.kube.on_control_plane import client_of, config_of

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
EXCLUDED = ("private.test/",)

OVERRIDE = {"labels": {"added": "1", "private.test/added": "1"}, "annotations": {"added": "1"}}
SPEC: dict[str, Any] = {
    "githubConfigUrl": f"https://github.com/octo-org/_{'long' * 20}",
    "githubConfigSecret": "github-secret",
    "runnerGroup": "Some Group",
    "runnerScaleSetName": "linux",
    "minRunners": 1,
    "maxRunners": 4,
    "proxy": {
        "http": {"url": "http://proxy.test:3128", "credentialSecretRef": "proxy-secret"},
        "https": {"url": "proxy.test:3129"},
        "noProxy": ["example.test", "10.0.0.0/8"],
    },
    "githubServerTLS": {"certificateFrom": {"configMapKeyRef": {"name": "ca", "key": "ca.crt"}}},
    "template": {
        "metadata": {"labels": {"team": "build", "empty": ""}, "annotations": {"note": "template"}},
        "spec": {
            "restartPolicy": "Never",
            "nodeSelector": {},
            "tolerations": [],
            "securityContext": {"runAsUser": 0, "fsGroup": 123},
            "initContainers": [{"name": "init", "image": "example.test/init", "restartPolicy": "Always"}],
            "containers": [
                {
                    "name": "runner",
                    "image": "example.test/runner:1",
                    "env": [{"name": "OWN", "value": "1"}],
                    "resources": {"limits": {"cpu": 2, "memory": "1024Mi"}, "requests": {"cpu": "1500m"}},
                    "volumeMounts": [{"name": "work", "mountPath": "/work"}],
                },
                {"name": "sidecar", "image": "example.test/sidecar:1", "ports": [{"containerPort": 80}]},
            ],
            "volumes": [{"name": "work", "emptyDir": {"sizeLimit": "1Gi"}}],
        },
    },
    "listenerMetrics": {
        "counters": {"gha_started_jobs_total": {"labels": ["name"]}},
        "histograms": {"gha_job_startup_duration_seconds": {"labels": [], "buckets": [0.5, 1.0]}},
    },
    "listenerTemplate": {
        "metadata": {"labels": {"team": "listeners"}},
        "spec": {
            "nodeSelector": {},
            "containers": [
                {"name": "sidecar", "image": "example.test/sidecar:1"},
                {
                    "name": "listener",
                    "securityContext": {"runAsNonRoot": True},
                    "env": [{"name": "OWN", "value": "1"}],
                    "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 - a path in a container
                },
            ],
            "volumes": [{"name": "tmp", "emptyDir": {}}],
        },
    },
    "autoscalingListener": OVERRIDE,
    "listenerServiceAccountMetadata": OVERRIDE,
    "listenerRoleMetadata": OVERRIDE,
    "listenerRoleBindingMetadata": OVERRIDE,
    "listenerConfigSecretMetadata": OVERRIDE,
    "ephemeralRunnerSetMetadata": OVERRIDE,
    "ephemeralRunnerMetadata": OVERRIDE,
    "ephemeralRunnerConfigSecretMetadata": OVERRIDE,
}


@pytest.fixture(scope="module")
def definitions(control_plane: ControlPlane) -> None:
    client = control_plane.client()
    for crd in crds():
        if not client.exists(f"{DEFINITIONS}/{crd['metadata']['name']}"):
            client.create(DEFINITIONS, crd)
        await_served(client, crd["spec"]["names"]["plural"])


def await_served(client: PlainClient, plural: str) -> None:
    path = f"/apis/actions.github.com/v1alpha1/{plural}"
    wait_until(lambda: client.request("GET", path).status == 200, f"{plural} are served")


@pytest.fixture
def controller_namespace(control_plane: ControlPlane) -> Iterator[str]:
    """Where the listener is to live: another namespace than its runner set's."""
    name = control_plane.create_namespace()
    yield name
    control_plane.client().delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
async def client(control_plane: ControlPlane, definitions: None) -> AsyncIterator[Client]:
    async with client_of(config_of(control_plane.admin_kubeconfig)) as connected:
        yield connected


@pytest.fixture
def settings(controller_namespace: str) -> ListenerSettings:
    return ListenerSettings(
        namespace=controller_namespace, image="example.test/runherd:1", image_pull_secrets=("pull",)
    )


async def create(client: Client, resource: Resource[Any], body: dict[str, Any]) -> Any:
    """What is stored for ``body``; every field of it is known, and what was asked of its metadata is there."""
    stored: ApiObject = await client.create(resource, body, field_validation="Strict")
    assert metadata_patch(stored.metadata, body["metadata"], EXCLUDED) == {}
    assert not any(label.startswith(EXCLUDED) for label in stored.metadata.labels)
    return stored


async def create_runner_set(client: Client, namespace: str, spec: dict[str, Any]) -> AutoscalingRunnerSet:
    body = {
        "apiVersion": "actions.github.com/v1alpha1",
        "kind": "AutoscalingRunnerSet",
        "metadata": {
            "name": "a" * 45,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/version": "0.14.2", "private.test/own": "1", "own": "1"},
            "annotations": {"runner-scale-set-id": "7"},
        },
        "spec": spec,
    }
    return await client.create(AUTOSCALING_RUNNER_SETS, body, field_validation="Strict")


async def test_the_runners_side(client: Client, namespace: str) -> None:
    runner_set = await create_runner_set(client, namespace, SPEC)
    ephemeral_set = await create(client, EPHEMERAL_RUNNER_SETS, ephemeral_runner_set(runner_set, EXCLUDED))
    desired_hash = runner_spec_hash(ephemeral_runner_spec(runner_set))
    assert runner_spec_hash(ephemeral_set.spec.ephemeral_runner_spec) == desired_hash

    proxies = proxy_data(runner_set.spec.proxy or pytest.fail("no proxy"), {"proxy-secret": {"username": b"u:"}})
    stored_proxies = await create(client, SECRETS, runner_proxy_secret(ephemeral_set, proxies))
    assert stored_proxies.data == {name: value.encode() for name, value in proxies.items()}

    name = ephemeral_runner_name(ephemeral_set.metadata.name, Random(1))
    runner = await create(client, EPHEMERAL_RUNNERS, ephemeral_runner(ephemeral_set, name, EXCLUDED))
    assert runner_spec_hash(runner.spec) == desired_hash
    assert runner.spec.proxy_secret_ref == stored_proxies.metadata.name

    registered = RunnerReference(id=42, name=name, runner_scale_set_id=7)
    config = JitRunnerConfig(runner=registered, encoded_jit_config="c2VjcmV0")
    secret = await create(client, SECRETS, jit_secret(runner, config, EXCLUDED))
    assert registration_in(secret.data) == Registration(42, name)

    pod = await create(client, PODS, runner_pod(runner, "0.14.2"))
    assert pod.metadata.controller_owner().uid == runner.metadata.uid
    assert pod.metadata.labels["team"] == "build"


async def test_the_listeners_side(
    client: Client, control_plane: ControlPlane, namespace: str, settings: ListenerSettings
) -> None:
    runner_set = await create_runner_set(client, namespace, SPEC)
    listener: AutoscalingListener = await create(
        client, AUTOSCALING_LISTENERS, autoscaling_listener(runner_set, settings, EXCLUDED)
    )
    assert not needs_other_listener(listener.spec, autoscaling_listener_spec(runner_set, settings))
    assert listener.metadata.annotations["actions.github.com/integrity-hash"] == listener_spec_hash(listener.spec)

    await create(client, SERVICE_ACCOUNTS, listener_service_account(listener, EXCLUDED))
    await create(client, ROLES, listener_role(listener, EXCLUDED))
    binding_body = listener_role_binding(listener, EXCLUDED)
    binding = await create(client, ROLE_BINDINGS, binding_body)
    assert msgspec.to_builtins(binding.role_ref) == binding_body["roleRef"]

    proxies = proxy_data(runner_set.spec.proxy or pytest.fail("no proxy"), {"proxy-secret": {"username": b"u"}})
    await create(client, SECRETS, listener_proxy_secret(listener, proxies))
    config = listener_config(listener, settings, PersonalAccessToken("ghp_hidden"), "PEM")
    secret = await create(client, SECRETS, listener_config_secret(listener, config, EXCLUDED))
    assert secret.data == {CONFIG_KEY: config.document()}

    pod = await create(client, PODS, listener_pod(listener, settings, config, proxies))
    assert [container.name for container in pod.spec.containers] == ["listener", "sidecar"]
    assert pod.metadata.labels == {**listener.metadata.labels, "team": "listeners"}
    assert allowed(control_plane, listener, "ephemeralrunnersets", listener.spec.ephemeral_runner_set_name)
    assert allowed(control_plane, listener, "ephemeralrunners/status", "any")
    assert not allowed(control_plane, listener, "ephemeralrunnersets", "other")
    assert not allowed(control_plane, listener, "ephemeralrunners", "any", verb="get")


async def test_every_field_of_every_template_arrives(
    client: Client, namespace: str, settings: ListenerSettings
) -> None:
    spec = maximal(document.schema("AutoscalingRunnerSet")["properties"]["spec"])
    runner_set = await create_runner_set(client, namespace, {**spec, "githubConfigUrl": "https://github.com/octo-org"})
    ephemeral_set = await client.create(
        EPHEMERAL_RUNNER_SETS, ephemeral_runner_set(runner_set, ()), field_validation="Strict"
    )
    desired_hash = runner_spec_hash(ephemeral_runner_spec(runner_set))
    assert runner_spec_hash(ephemeral_set.spec.ephemeral_runner_spec) == desired_hash
    runner = await client.create(
        EPHEMERAL_RUNNERS, ephemeral_runner(ephemeral_set, "runner", ()), field_validation="Strict"
    )
    assert runner_spec_hash(runner.spec) == desired_hash
    listener = await client.create(
        AUTOSCALING_LISTENERS, autoscaling_listener(runner_set, settings, ()), field_validation="Strict"
    )
    assert not needs_other_listener(listener.spec, autoscaling_listener_spec(runner_set, settings))


def allowed(
    control_plane: ControlPlane, listener: AutoscalingListener, resource: str, name: str, verb: str = "patch"
) -> bool:
    """What the API server's authorizer says to the listener."""
    kind, _, subresource = resource.partition("/")
    metadata = listener.metadata
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{metadata.namespace}:{metadata.name}",
            "resourceAttributes": {
                "namespace": listener.spec.autoscaling_runner_set_namespace,
                "verb": verb,
                "group": "actions.github.com",
                "resource": kind,
                "subresource": subresource,
                "name": name,
            },
        },
    }
    answer = control_plane.client().create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])
