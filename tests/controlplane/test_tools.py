import json
import subprocess
from pathlib import Path


def test_kubectl_and_helm_are_of_the_versions_that_tests_are_written_for(kubectl: Path, helm: Path) -> None:
    version = subprocess.run([kubectl, "version", "--client", "--output=json"], capture_output=True, check=True).stdout
    assert json.loads(version)["clientVersion"]["gitVersion"].startswith("v1.37.")

    version = subprocess.run([helm, "version", "--template={{.Version}}"], capture_output=True, check=True).stdout
    assert version.startswith(b"v4.3.")
