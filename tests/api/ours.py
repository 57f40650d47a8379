"""What our definitions have beyond upstream's: the optional status fields, as ``docs/spec/crds.md`` 8 lists them."""

from __future__ import annotations

import copy
from typing import Any

Schema = dict[str, Any]

CONDITIONS: Schema = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["status", "type"],
        "properties": {
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "message": {"type": "string"},
            "observedGeneration": {"type": "integer", "format": "int64"},
            "reason": {"type": "string"},
            "status": {"type": "string"},
            "type": {"type": "string"},
        },
    },
    "x-kubernetes-list-map-keys": ["type"],
    "x-kubernetes-list-type": "map",
}
RECENT_FAILURES: Schema = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "exitCode": {"type": "integer", "format": "int32"},
            "message": {"type": "string"},
            "nodeName": {"type": "string"},
            "podName": {"type": "string"},
            "podUID": {"type": "string"},
            "reason": {"type": "string"},
            "time": {"type": "string", "format": "date-time"},
        },
    },
}


def with_our_fields(kind: str, upstream: Schema) -> Schema:
    """``upstream``, the schema of ``kind``, with our status fields added."""
    result = copy.deepcopy(upstream)
    properties = result["properties"]["status"].setdefault("properties", {})
    properties["conditions"] = CONDITIONS
    if kind == "EphemeralRunner":
        properties["recentFailures"] = RECENT_FAILURES
    return result
