"""``runherd crds``: what it prints, and that kubectl takes it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from runherd.api.crds import crd_names, crds
from runherd.cli.main import main
from tests.api import document
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.waiting import wait_until

ANNOTATION_LIMIT = 262_144
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["crds", *arguments])


def documents(result: Result) -> list[Any]:
    """What was printed as yaml."""
    return list(yaml.load_all(result.output, Loader=yaml.CSafeLoader))


def names(objects: Sequence[Any]) -> list[str]:
    return [item["metadata"]["name"] for item in objects]


def test_yaml_is_a_stream_of_documents() -> None:
    assert documents(run()) == crds()
    assert run().output == run("--format", "yaml").output
    assert "&id" not in run().output


def test_json_is_a_list() -> None:
    printed = json.loads(run("--format", "json").output)
    assert printed == {"apiVersion": "v1", "kind": "List", "items": crds()}


def test_output_is_the_same_in_every_process() -> None:
    def printed(seed: str) -> bytes:
        command = [sys.executable, "-m", "runherd", "crds", "--format", "json"]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, env={"PYTHONHASHSEED": seed}).stdout

    assert printed("1") == printed("2")


@pytest.mark.parametrize("name", ["ephemeralrunners", "EphemeralRunners", "ephemeralrunners.actions.github.com"])
def test_one_by_name(name: str) -> None:
    assert names(documents(run(name))) == ["ephemeralrunners.actions.github.com"]
    assert names(json.loads(run(name, "--format", "json").output)["items"]) == ["ephemeralrunners.actions.github.com"]


def test_several_by_name_come_once_and_in_order() -> None:
    printed = run("ephemeralrunners", "autoscalinglisteners", "ephemeralrunners")
    assert names(documents(printed)) == [crd_names()[1], crd_names()[3]]


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    result = run("ephemeralrunners", "runnerdeployments")
    assert result.exit_code == 2
    assert "no definition runnerdeployments: there are autoscalingrunnersets, autoscalinglisteners" in result.output


class Kubectl:
    """Runs kubectl as the cluster's administrator."""

    def __init__(self, program: Path, kubeconfig: Path) -> None:
        self._command = [str(program), f"--kubeconfig={kubeconfig}"]

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        result = subprocess.run(
            [*self._command, *arguments], input=stdin, capture_output=True, text=True, check=False, timeout=60
        )
        assert result.returncode == 0, result.stderr
        return result.stdout


@pytest.fixture
def run_kubectl(kubectl: Path, control_plane: ControlPlane) -> Kubectl:
    return Kubectl(kubectl, control_plane.admin_kubeconfig)


@pytest.mark.parametrize("output", ["yaml", "json"])
def test_kubectl_applies_it_client_side(run_kubectl: Kubectl, control_plane: ControlPlane, output: str) -> None:
    printed = run("--format", output).output
    applied = run_kubectl("apply", "--server-side=false", "-f", "-", stdin=printed)
    assert [line.split()[0] for line in applied.splitlines()] == [
        f"customresourcedefinition.apiextensions.k8s.io/{name}" for name in crd_names()
    ]
    for name in crd_names():
        stored = control_plane.client().get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")
        assert len(stored["metadata"]["annotations"][LAST_APPLIED]) < ANNOTATION_LIMIT / 2
    again = run_kubectl("apply", "--server-side=false", "-f", "-", stdin=printed)
    assert {line.split()[1] for line in again.splitlines()} == {"unchanged"}
    run_kubectl("wait", "--for=condition=Established", *(f"crd/{name}" for name in crd_names()))


COUNTS = {"pendingEphemeralRunners": 5, "runningEphemeralRunners": 6, "failedEphemeralRunners": 9}
URL = "https://github.com/o/r"


@pytest.mark.parametrize(
    ("kind", "spec", "status", "cells"),
    [
        (
            "AutoscalingRunnerSet",
            {"minRunners": 1, "maxRunners": 3},
            {"currentRunners": 4, "phase": "Running", **COUNTS},
            ["1", "3", "4", "Running", "5", "6", "", ""],
        ),
        (
            "AutoscalingListener",
            {"githubConfigUrl": URL, "autoscalingRunnerSetNamespace": "there", "autoscalingRunnerSetName": "it"},
            {},
            [URL, "there", "it"],
        ),
        (
            "EphemeralRunnerSet",
            {"replicas": 7, "patchID": 2},
            {"currentReplicas": 4, "phase": "Outdated", **COUNTS},
            ["7", "4", "5", "6", "", "", "Outdated"],
        ),
        (
            "EphemeralRunner",
            {"githubConfigUrl": URL, "githubConfigSecret": "secret", "runnerScaleSetId": 1},
            {
                "runnerId": 12,
                "phase": "Running",
                "jobRepositoryName": "o/r",
                "jobWorkflowRef": "w",
                "workflowRunId": 34,
                "jobDisplayName": "d",
                "jobId": "j",
                "message": "m",
            },
            [URL, "12", "Running", "o/r", "w", "34", "d", "j", "m"],
        ),
    ],
)
def test_kubectl_prints_the_columns_of_section_3(
    run_kubectl: Kubectl,
    control_plane: ControlPlane,
    namespace: str,
    kind: str,
    spec: dict[str, Any],
    status: dict[str, Any],
    cells: list[str],
) -> None:
    run_kubectl("apply", "-f", "-", stdin=run().output)
    client = control_plane.client()
    collection = f"/apis/actions.github.com/v1alpha1/namespaces/{namespace}/{kind.lower()}s"
    wait_until(lambda: client.request("GET", collection).status == 200, f"{collection} is served")
    body = {"apiVersion": "actions.github.com/v1alpha1", "kind": kind, "metadata": {"name": "x"}, "spec": spec}
    stored = client.create(collection, body)
    assert client.request("PUT", f"{collection}/x/status", {**stored, "status": status}).status == 200

    head, row = printed_table(run_kubectl("get", f"{kind.lower()}s", "-n", namespace))
    assert head == ["NAME", *(column.name.upper() for column in document.columns(kind))]
    assert row[: len(cells) + 1] == ["x", *cells]
    if kind == "EphemeralRunner":
        assert re.fullmatch(r"\d+s", row[-1])
    else:
        assert len(row) == len(cells) + 1


def printed_table(output: str) -> tuple[list[str], list[str]]:
    """The head and the cells of the one row. Several spaces part the columns; one may be within a name."""
    head, row = output.splitlines()
    columns = list(re.finditer(r"\S+( \S+)*", head))
    ends = [column.start() for column in columns[1:]] + [len(row)]
    return [column[0] for column in columns], [
        row[column.start() : end].strip() for column, end in zip(columns, ends, strict=True)
    ]
