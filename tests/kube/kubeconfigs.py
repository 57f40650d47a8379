"""Kubeconfig files for tests, and the certificates in them."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.controlplane.certificates import Authority, KeyPair

__all__ = ["authority", "b64", "kubeconfig", "pair", "write"]


@cache
def authority(name: str = "one") -> Authority:
    """A certificate authority; the same for the same name."""
    return Authority(name)


@cache
def pair(user: str = "someone") -> KeyPair:
    """A client's certificate and key; the same for the same name."""
    return authority().client(user, [])


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def kubeconfig(
    *,
    clusters: Mapping[str, Mapping[str, Any]] | None = None,
    users: Mapping[str, Mapping[str, Any]] | None = None,
    contexts: Mapping[str, Mapping[str, Any]] | None = None,
    current: str = "",
) -> dict[str, Any]:
    """The content of a file; by default one that connects ``me`` to ``here`` in the context ``it``."""
    clusters = {"here": {"server": "https://api.test:6443"}} if clusters is None else clusters
    users = {"me": {"token": "t0"}} if users is None else users
    contexts = {"it": {"cluster": "here", "user": "me"}} if contexts is None else contexts
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": body} for name, body in clusters.items()],
        "users": [{"name": name, "user": body} for name, body in users.items()],
        "contexts": [{"name": name, "context": body} for name, body in contexts.items()],
        **({"current-context": current} if current else {}),
    }


def write(path: Path, *contents: Mapping[str, Any] | str) -> str:
    """Write files ``path``, ``path-1`` ... and return what ``KUBECONFIG`` has to be to name them all."""
    paths: Sequence[Path] = [path.with_name(f"{path.name}-{n}") if n else path for n in range(len(contents))]
    for target, content in zip(paths, contents, strict=True):
        target.write_text(content if isinstance(content, str) else yaml.safe_dump(dict(content)))
    return os.pathsep.join(map(str, paths))
