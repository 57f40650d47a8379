"""Where etcd, kube-apiserver and kube-controller-manager come from."""

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.controlplane.cache import Report, cache_directory, cached

SOURCES = Path(__file__).parent
_PACKAGES_PER_REPORT = 100


class ProgramsUnavailableError(Exception):
    """There is neither Go to build the control plane nor ``KUBEBUILDER_ASSETS``."""


class BuildError(Exception):
    """The control plane did not build, or ``KUBEBUILDER_ASSETS`` lacks a program."""


@dataclass(frozen=True)
class Programs:
    """The start of each program's command line, to which its flags are added."""

    etcd: Sequence[str]
    kube_apiserver: Sequence[str]
    kube_controller_manager: Sequence[str] | None
    """None where ``KUBEBUILDER_ASSETS`` has none: then nothing collects garbage or ends namespaces."""


def find_programs(report: Report) -> Programs:
    """Return the programs of ``KUBEBUILDER_ASSETS`` where it is set, else our own, built if need be.

    The first build takes minutes (8 of CPU time on a fast core); ``report`` gets its progress.

    Raises ProgramsUnavailableError without Go and assets; BuildError, with the
    compiler's output, when the build fails.
    """
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets:
        return _assets(Path(assets).resolve())
    go = shutil.which("go")
    if go is None:
        raise ProgramsUnavailableError(
            "no control plane to test against: there is neither Go on PATH to build it nor KUBEBUILDER_ASSETS; "
            "install Go (https://go.dev/dl), or set KUBEBUILDER_ASSETS to a directory with etcd and kube-apiserver"
        )
    program = str(_built(go, report))
    return Programs(
        etcd=(program, "etcd"),
        kube_apiserver=(program, "kube-apiserver"),
        kube_controller_manager=(program, "kube-controller-manager"),
    )


def kubernetes_version() -> str:
    """Return the version of Kubernetes that go.mod names, such as ``v1.36.3``."""
    match = re.search(r"^\tk8s\.io/kubernetes (v\S+)$", (SOURCES / "go.mod").read_text(), re.MULTILINE)
    if match is None:
        raise BuildError(f"{SOURCES / 'go.mod'} does not require k8s.io/kubernetes")
    return match[1]


def _assets(directory: Path) -> Programs:
    missing = [name for name in ("etcd", "kube-apiserver") if not os.access(directory / name, os.X_OK)]
    if missing:
        raise BuildError(f"KUBEBUILDER_ASSETS={directory} has no program {' and no '.join(missing)}")
    manager = directory / "kube-controller-manager"
    return Programs(
        etcd=(str(directory / "etcd"),),
        kube_apiserver=(str(directory / "kube-apiserver"),),
        kube_controller_manager=(str(manager),) if os.access(manager, os.X_OK) else None,
    )


def built_program(go: str, sources: Path, cache: Path, name: str, report: Report, linker_flags: str = "-s -w") -> Path:
    """Return the program ``name``, built from the Go module in ``sources`` into ``cache`` unless it is there.

    It is built anew when its sources, its flags or the Go that builds it change. Raises BuildError, with the
    compiler's output, when the build fails.
    """
    flags = ["-trimpath", f"-ldflags={linker_flags}"]
    environment = {**os.environ, "CGO_ENABLED": "0"}
    key = hashlib.sha256("\0".join([*flags, _toolchain(go, sources, environment)]).encode())
    for source in sorted([sources / "go.mod", sources / "go.sum", *sources.glob("*.go")]):
        content = source.read_bytes()
        key.update(f"\0{source.name}\0{len(content)}\0".encode() + content)

    def build(directory: Path) -> None:
        command = [go, "build", "-v", *flags, "-o", str(directory / name), "."]
        _compile(command, sources, environment, f"the program {name}", report)

    return cached(cache / key.hexdigest()[:16], build, report) / name


def _built(go: str, report: Report) -> Path:
    flags = _linker_flags(kubernetes_version())
    return built_program(go, SOURCES, cache_directory() / "controlplane", "controlplane", report, flags)


def _linker_flags(version: str) -> str:
    """Stamp ``version`` where Kubernetes' own release build does, so that /version tells it."""
    major, minor, _ = version.removeprefix("v").split(".", 2)
    stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean", "gitCommit": ""}
    package = "k8s.io/component-base/version"
    return " ".join(["-s", "-w", *(f"-X={package}.{name}={value}" for name, value in stamps.items())])


def _toolchain(go: str, sources: Path, environment: dict[str, str]) -> str:
    """Name the Go that builds here (its toolchain line may select another than ``go`` itself) and for what."""
    command = [go, "env", "GOVERSION", "GOOS", "GOARCH"]
    result = subprocess.run(command, cwd=sources, env=environment, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise BuildError(f"{' '.join(command)} failed in {sources}:\n{result.stderr}")
    return result.stdout


def _compile(command: list[str], sources: Path, environment: dict[str, str], what: str, report: Report) -> None:
    report(f"building {what}; the first time takes minutes (the control plane 8 to 15 of CPU time)")
    lines: list[str] = []
    with subprocess.Popen(
        command, cwd=sources, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line)
            if len(lines) % _PACKAGES_PER_REPORT == 0:
                report(f"building {what}: {len(lines)} packages so far, last {line.strip()}")
    if process.returncode != 0:
        raise BuildError(f"{what} did not build ({' '.join(command)}):\n{''.join(lines[-40:])}")
    report(f"{what} is built")
