"""What tests may rely on of the control plane."""

import json
import os
import signal
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.controlplane.client import Client
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.plugin import ControlPlaneFactory
from tests.controlplane.processes import ServerError
from tests.controlplane.programs import Programs, find_programs, kubernetes_version
from tests.controlplane.waiting import wait_until


def config_map(name: str, owner: dict[str, Any] | None = None, **data: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name}
    if owner is not None:
        reference = {key: owner[key] for key in ("apiVersion", "kind")}
        reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
        metadata["ownerReferences"] = [reference]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def config_maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def is_running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def pids(control_plane: ControlPlane) -> list[int]:
    servers = (control_plane.etcd, control_plane.apiserver, control_plane.controller_manager)
    return [server.pid for server in servers if server.pid is not None]


def test_is_ready_and_of_the_version_that_go_mod_names(control_plane: ControlPlane) -> None:
    client = control_plane.client()

    assert client.request("GET", "/readyz").body == b"ok"
    assert client.get("/version")["gitVersion"] == kubernetes_version()


def test_server_certificate_is_of_its_own_authority_only(control_plane: ControlPlane) -> None:
    stranger = Client(control_plane.host, control_plane.port, ssl.create_default_context())

    with pytest.raises(ssl.SSLCertVerificationError):
        stranger.request("GET", "/readyz")
    assert control_plane.ca_file.read_bytes() == control_plane.ca_data


def test_user_may_do_what_roles_allow_and_nothing_else(control_plane: ControlPlane, namespace: str) -> None:
    user = control_plane.client("alice", ["developers"])
    assert user.request("GET", config_maps(namespace)).status == 403

    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "developers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "developers"}],
    }
    bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"
    control_plane.client().create(bindings, binding)

    wait_until(lambda: user.request("GET", config_maps(namespace)).status == 200, "the binding is in force")
    assert user.request("POST", config_maps(namespace), config_map("mine")).status == 403


def test_nobody_gets_in_without_credentials(control_plane: ControlPlane) -> None:
    assert control_plane.token_client(None).request("GET", "/api/v1/namespaces").status == 403
    assert control_plane.token_client("made-up").request("GET", "/api/v1/namespaces").status == 401


def test_service_account_token_is_that_service_account(
    control_plane_with_controllers: ControlPlane, namespace: str
) -> None:
    token = control_plane_with_controllers.service_account_token(namespace, "default")

    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = control_plane_with_controllers.token_client(token).create(
        "/apis/authentication.k8s.io/v1/selfsubjectreviews", review
    )

    assert answer["status"]["userInfo"]["username"] == f"system:serviceaccount:{namespace}:default"


def test_pod_is_admitted_and_stays_pending_until_a_test_says_otherwise(
    control_plane_with_controllers: ControlPlane, namespace: str
) -> None:
    client = control_plane_with_controllers.client()
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "runner"},
        "spec": {"containers": [{"name": "runner", "image": "runner"}]},
    }
    path = f"/api/v1/namespaces/{namespace}/pods"

    created = client.create(path, pod)
    assert created["status"]["phase"] == "Pending"
    assert created["spec"]["serviceAccountName"] == "default"

    patch = {"status": {"phase": "Running"}}
    patched = client.request("PATCH", f"{path}/runner/status", patch, content_type="application/merge-patch+json")
    assert patched.json["status"]["phase"] == "Running"


def test_dependents_go_with_their_owner(control_plane_with_controllers: ControlPlane, namespace: str) -> None:
    client = control_plane_with_controllers.client()
    path = config_maps(namespace)
    owner = client.create(path, config_map("owner"))
    client.create(path, config_map("dependent", owner))

    client.delete(f"{path}/owner")

    wait_until(lambda: not client.exists(f"{path}/dependent"), "the dependent is collected")


def test_deleted_namespace_ends_with_all_that_is_in_it(control_plane_with_controllers: ControlPlane) -> None:
    client = control_plane_with_controllers.client()
    name = control_plane_with_controllers.create_namespace("short-lived")
    client.create(config_maps(name), config_map("content"))

    client.delete(f"/api/v1/namespaces/{name}")

    wait_until(lambda: not client.exists(f"/api/v1/namespaces/{name}"), "the namespace is gone")
    assert not client.exists(f"{config_maps(name)}/content")


@pytest.mark.usefixtures("control_plane_with_controllers")
def test_restarted_controllers_follow_owners_of_new_kinds(control_plane_factory: ControlPlaneFactory) -> None:
    control_plane = control_plane_factory()
    client = control_plane.client()
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": "Thing", "plural": "things"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
            ],
        },
    }
    client.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    things = "/apis/example.com/v1/namespaces/default/things"
    wait_until(lambda: client.request("GET", things).status == 200, "the new kind is served")
    control_plane.restart_controller_manager()
    thing = client.create(things, {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "owner"}})
    client.create(config_maps("default"), config_map("dependent", thing))

    client.delete(f"{things}/owner")

    wait_until(lambda: not client.exists(f"{config_maps('default')}/dependent"), "the dependent is collected")


def test_restart_keeps_data_address_and_credentials(control_plane_factory: ControlPlaneFactory) -> None:
    control_plane = control_plane_factory(controllers=())
    client, before = control_plane.client(), control_plane.apiserver.pid
    client.create(config_maps("default"), config_map("kept", key="value"))

    control_plane.restart_apiserver()
    assert client.get(f"{config_maps('default')}/kept")["data"] == {"key": "value"}
    assert control_plane.apiserver.pid != before

    control_plane.apiserver.kill()
    with pytest.raises(ConnectionRefusedError):
        client.request("GET", "/readyz")
    control_plane.etcd.kill()
    control_plane.start_etcd()
    control_plane.start_apiserver()
    assert client.exists(f"{config_maps('default')}/kept")


def test_paused_api_server_answers_when_it_is_resumed(control_plane_factory: ControlPlaneFactory) -> None:
    control_plane = control_plane_factory(controllers=())
    client = control_plane.client()

    control_plane.apiserver.pause()
    with pytest.raises(TimeoutError):
        client.request("GET", "/readyz", timeout_seconds=0.5)
    control_plane.apiserver.resume()

    control_plane.wait_ready()


def test_compaction_makes_old_revisions_gone(control_plane_factory: ControlPlaneFactory) -> None:
    control_plane = control_plane_factory(apiserver_flags=["--watch-cache=false"], controllers=())
    client, path = control_plane.client(), config_maps("default")
    for name in ("one", "two", "three"):
        client.create(path, config_map(name))
    page = client.get(f"{path}?limit=1")["metadata"]
    watch = f"{path}?watch=1&timeoutSeconds=1&resourceVersion={page['resourceVersion']}"
    assert b'"code":410' not in client.request("GET", watch).body
    client.delete(f"{path}/three")

    control_plane.compact()

    assert client.request("GET", f"{path}?limit=1&continue={page['continue']}").status == 410
    assert b'"code":410' in client.request("GET", watch).body


def test_flags_are_given_to_the_api_server(control_plane_factory: ControlPlaneFactory) -> None:
    control_plane = control_plane_factory(apiserver_flags=["--anonymous-auth=false"], controllers=())
    assert control_plane.token_client(None).request("GET", "/readyz").status == 401

    control_plane.restart_apiserver(flags=[])
    assert control_plane.token_client(None).request("GET", "/readyz").status == 200


def test_stop_leaves_no_process_no_port_and_no_file_but_the_logs(
    control_plane_programs: Programs, tmp_path: Path
) -> None:
    control_plane = ControlPlane(control_plane_programs, tmp_path)
    control_plane.start()
    started, client, directory = pids(control_plane), control_plane.client(), control_plane.ca_file.parent
    assert len(started) == (3 if control_plane.has_controllers else 2)
    assert all(is_running(pid) for pid in started)

    control_plane.stop()

    assert not any(is_running(pid) for pid in started)
    with pytest.raises(ConnectionRefusedError):
        client.request("GET", "/readyz")
    assert not directory.exists()
    assert (tmp_path / "kube-apiserver.log").stat().st_size > 0


def test_failed_start_shows_the_log_and_stops_what_was_started(
    control_plane_programs: Programs, tmp_path: Path
) -> None:
    control_plane = ControlPlane(control_plane_programs, tmp_path, apiserver_flags=["--no-such-flag"])

    with pytest.raises(ServerError, match="unknown flag: --no-such-flag") as caught:
        control_plane.start()

    assert str(tmp_path / "kube-apiserver.log") in str(caught.value)
    assert pids(control_plane) == []


REPOSITORY = Path(__file__).parents[2]
KILLED_RUN = """
import json, sys
from pathlib import Path
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.programs import find_programs

control_plane = ControlPlane(find_programs(print), Path(sys.argv[1]))
control_plane.start()
control_plane.apiserver.pause()
servers = (control_plane.etcd, control_plane.apiserver, control_plane.controller_manager)
print(json.dumps([str(control_plane.ca_file.parent), [server.pid for server in servers if server.pid]]), flush=True)
sys.stdin.read()
"""


@pytest.mark.usefixtures("control_plane_programs")
def test_nothing_outlives_a_test_run_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED_RUN, str(tmp_path)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        directory, started = json.loads(run.stdout.readline())
        assert all(is_running(pid) for pid in started)

        run.send_signal(signal.SIGKILL)

    wait_until(lambda: not any(is_running(pid) for pid in started), "the servers are gone")
    wait_until(lambda: not Path(directory).exists(), "the directory is gone")


def test_assets_without_controller_manager_admit_pods_all_the_same(
    control_plane_programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, command in {
        "etcd": control_plane_programs.etcd,
        "kube-apiserver": control_plane_programs.kube_apiserver,
    }.items():
        (tmp_path / name).write_text(f'#!/bin/sh\nexec {" ".join(command)} "$@"\n')
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))

    with ControlPlane(find_programs(print), tmp_path) as control_plane:
        namespace = control_plane.create_namespace()
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "runner"},
            "spec": {"containers": [{"name": "runner", "image": "runner"}]},
        }
        control_plane.client().create(f"/api/v1/namespaces/{namespace}/pods", pod)

        assert not control_plane.has_controllers
        assert len(pids(control_plane)) == 2


def test_kubectl_talks_to_it_as_whom_the_kubeconfig_says(
    control_plane_with_controllers: ControlPlane, namespace: str, kubectl: Path
) -> None:
    def run(kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
        return subprocess.run([kubectl, *arguments], env=environment, capture_output=True, text=True, check=False)

    listed = run(control_plane_with_controllers.admin_kubeconfig, "get", "namespaces", "--output=name")
    assert f"namespace/{namespace}" in listed.stdout.splitlines()

    bob = control_plane_with_controllers.kubeconfig("bob", ["visitors"])
    assert json.loads(run(bob, "auth", "whoami", "--output=json").stdout)["status"]["userInfo"]["username"] == "bob"

    account = control_plane_with_controllers.service_account_kubeconfig(namespace, "default")
    refused = run(account, "get", "secrets", f"--namespace={namespace}")
    assert f'User "system:serviceaccount:{namespace}:default" cannot list resource "secrets"' in refused.stderr
    assert account.stat().st_mode & 0o077 == 0
