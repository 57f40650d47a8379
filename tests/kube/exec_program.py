"""A credential plugin, for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["V1", "Program", "credential"]

V1 = "client.authentication.k8s.io/v1"


class Program:
    """A plugin in ``folder``, which prints what ``answers`` says: the n-th call the n-th, then the last."""

    def __init__(self, folder: Path, *answers: Any, before: str = "") -> None:
        self._folder = folder
        for number, answer in enumerate(answers):
            (folder / f"answer{number}").write_text(answer if isinstance(answer, str) else json.dumps(answer))
        (folder / "plugin").write_text(
            f"""#!/bin/sh
cd {folder}
echo "$@" >> calls
printf '%s' "$KUBERNETES_EXEC_INFO" > info
printf '%s' "$PROFILE" > profile
{before}
number=$(($(wc -l < calls) - 1))
[ -e answer$number ] || number={len(answers) - 1}
cat answer$number
"""
        )
        (folder / "plugin").chmod(0o755)

    @property
    def calls(self) -> list[str]:
        file = self._folder / "calls"
        return file.read_text().splitlines() if file.exists() else []

    @property
    def files(self) -> set[str]:
        return {path.name for path in self._folder.iterdir()}

    def seen(self, name: str) -> str:
        return (self._folder / name).read_text()

    @property
    def path(self) -> str:
        return str(self._folder / "plugin")


def credential(version: str = V1, **status: Any) -> dict[str, Any]:
    return {"kind": "ExecCredential", "apiVersion": version, "status": status}
