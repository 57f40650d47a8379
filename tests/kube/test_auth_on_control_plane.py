"""Who a real API server thinks that we are."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from runherd.api.core import CONFIG_MAPS
from runherd.kube.auth import Impersonation
from runherd.kube.client import Client
from runherd.kube.config import ClientConfig
from runherd.kube.dynamic import DynamicObject, dynamic_resource
from runherd.kube.errors import ForbiddenError, UnauthorizedError
from runherd.kube.exec_plugin import ExecConfig
from tests.controlplane.certificates import Authority
from tests.controlplane.control_plane import ControlPlane
from tests.kube.exec_program import Program, credential
from tests.kube.on_control_plane import client_of, config_of

REVIEWS = dynamic_resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False)


async def user_of(client: Client) -> dict[str, object]:
    """What the server says about us."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    review: DynamicObject = await client.create(REVIEWS, body)
    user: dict[str, object] = review.body["status"]["userInfo"]
    return user


def anonymous(control_plane: ControlPlane) -> ClientConfig:
    return ClientConfig(server=control_plane.url, certificate_authority=control_plane.ca_data)


async def test_a_client_certificate(control_plane: ControlPlane) -> None:
    async with client_of(config_of(control_plane.kubeconfig("jane", ["dev"]))) as client:
        user = await user_of(client)
    assert (user["username"], user["groups"]) == ("jane", ["dev", "system:authenticated"])


async def test_a_service_account(control_plane: ControlPlane, namespace: str) -> None:
    admin = control_plane.client()
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
    await asyncio.to_thread(admin.create, f"/api/v1/namespaces/{namespace}/serviceaccounts", body)
    kubeconfig = await asyncio.to_thread(control_plane.service_account_kubeconfig, namespace, "robot")
    async with client_of(config_of(kubeconfig)) as client:
        assert (await user_of(client))["username"] == f"system:serviceaccount:{namespace}:robot"
        with pytest.raises(ForbiddenError):
            await client.list(CONFIG_MAPS, namespace)


async def test_a_token_file_whose_token_is_replaced_when_the_server_rejects_it(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    await asyncio.to_thread(control_plane.client().create, path, body)
    token = await asyncio.to_thread(control_plane.service_account_token, namespace, "robot")
    (tmp_path / "token").write_text("expired.made.up")
    async with client_of(replace(anonymous(control_plane), token_file=tmp_path / "token")) as client:
        with pytest.raises(UnauthorizedError):
            await user_of(client)
        (tmp_path / "token").write_text(token)
        assert (await user_of(client))["username"] == f"system:serviceaccount:{namespace}:robot"


async def test_impersonation(control_plane: ControlPlane) -> None:
    impersonation = Impersonation("jane", "u1", ("dev", "ops"), {"example.com/Scopes": ("a", "b")})
    config = replace(config_of(control_plane.admin_kubeconfig), impersonation=impersonation)
    async with client_of(config) as client:
        assert await user_of(client) == {
            "username": "jane",
            "uid": "u1",
            "groups": ["dev", "ops", "system:authenticated"],
            "extra": {"example.com/scopes": ["a", "b"]},
        }


async def test_a_certificate_of_a_plugin_is_replaced_when_the_server_rejects_it(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    stranger = Authority("nobody-knows").client("jane")
    jane, john = (config_of(control_plane.kubeconfig(name)) for name in ("jane", "john"))
    pairs = [(stranger.certificate, stranger.key)]
    pairs += [(each.client_certificate or b"", each.client_key or b"") for each in (jane, john)]
    program = Program(
        tmp_path,
        *(credential(clientCertificateData=pair[0].decode(), clientKeyData=pair[1].decode()) for pair in pairs),
    )
    plugin = ExecConfig(program.path, "client.authentication.k8s.io/v1", environment={"PATH": "/usr/bin:/bin"})
    async with client_of(replace(anonymous(control_plane), exec=plugin)) as client:
        for _ in range(2):
            assert (await user_of(client))["username"] == "jane"
        assert len(program.calls) == 2


async def test_nobody(control_plane: ControlPlane, namespace: str) -> None:
    async with client_of(anonymous(control_plane)) as client:
        with pytest.raises((ForbiddenError, UnauthorizedError)):
            await client.list(CONFIG_MAPS, namespace)
