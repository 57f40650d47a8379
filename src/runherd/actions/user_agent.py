"""The ``User-Agent`` that the service knows its clients by, a JSON object (``docs/spec/actions-service.md`` 8.1)."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from runherd import __version__

__all__ = ["UserAgent"]


@dataclass(frozen=True, slots=True)
class UserAgent:
    """Who calls, and on behalf of which scale set (0: none in particular)."""

    subsystem: str
    system: str = "actions-runner-controller"
    version: str = "NA"
    commit_sha: str = "NA"
    scale_set_id: int = 0
    build_version: str = __version__
    build_commit_sha: str = "unknown"
    kind: str = "scaleset"

    def for_scale_set(self, scale_set_id: int) -> UserAgent:
        """The same caller on behalf of another scale set."""
        return replace(self, scale_set_id=scale_set_id)

    def header(self) -> str:
        """The header's value: compact JSON in a fixed order of keys, ASCII only."""
        return json.dumps(
            {
                "system": self.system,
                "version": self.version,
                "commit_sha": self.commit_sha,
                "scale_set_id": self.scale_set_id,
                "subsystem": self.subsystem,
                "build_version": self.build_version,
                "build_commit_sha": self.build_commit_sha,
                "kind": self.kind,
            },
            separators=(",", ":"),
        )
