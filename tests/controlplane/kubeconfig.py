"""Writes kubeconfig files."""

import base64
from pathlib import Path

import yaml

from tests.controlplane.certificates import KeyPair


def write_kubeconfig(file: Path, url: str, ca_data: bytes, user: str, credentials: KeyPair | str) -> None:
    """Write a kubeconfig that stands alone: its one context is ``user`` on the cluster at ``url``.

    ``credentials`` is a client certificate or a bearer token. Only the owner may read the file.
    """
    if isinstance(credentials, KeyPair):
        authentication = {
            "client-certificate-data": _base64(credentials.certificate),
            "client-key-data": _base64(credentials.key),
        }
    else:
        authentication = {"token": credentials}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [
            {"name": "test", "cluster": {"server": url, "certificate-authority-data": _base64(ca_data)}},
        ],
        "users": [{"name": user, "user": authentication}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": user, "namespace": "default"}}],
    }
    write_secret(file, yaml.safe_dump(config, sort_keys=False).encode())


def write_secret(file: Path, content: bytes) -> None:
    """Write a file that only its owner may read."""
    file.touch(mode=0o600)
    file.write_bytes(content)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
