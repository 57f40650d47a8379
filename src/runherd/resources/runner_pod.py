"""The pod of an EphemeralRunner (``docs/spec/controllers.md`` 8.10)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from runherd.api.actions import EphemeralRunner, EphemeralRunnerSpec
from runherd.api.constants import (
    CONTAINER_RUNNER,
    ENV_EXTRA_USER_AGENT,
    ENV_JIT_CONFIG,
    ENV_RETURN_VERSION_DEPRECATED_EXIT_CODE,
    EPHEMERAL_RUNNER_TRUE,
    LABEL_EPHEMERAL_RUNNER,
    LABEL_POD_TEMPLATE_HASH,
    SECRET_KEY_JIT_TOKEN,
)
from runherd.api.templates import decode_template
from runherd.resources.owner import built_metadata
from runherd.resources.proxy_environment import from_secret, proxy_environment

__all__ = ["runner_pod"]


def runner_pod(runner: EphemeralRunner, build_version: str) -> dict[str, Any]:
    """The body of the pod of ``runner``, which reads its JIT configuration from the secret of the same name.

    ``build_version`` is the manager's, which the runner tells the service. All but the containers called ``runner`` is
    the template itself, shared with the pods of all other runners of its set.
    """
    template = decode_template(runner.spec.metadata)
    name = runner.metadata.name
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": built_metadata(
            name,
            runner.metadata.namespace,
            labels={
                **runner.metadata.labels,
                **(template.get("labels") or {}),
                LABEL_EPHEMERAL_RUNNER: EPHEMERAL_RUNNER_TRUE,
                LABEL_POD_TEMPLATE_HASH: _template_hash(runner.spec),
            },
            annotations={**runner.metadata.annotations, **(template.get("annotations") or {})},
            owner=runner,
        ),
        "spec": _pod_spec(decode_template(runner.spec.spec), _environment(runner, build_version)),
    }


def _pod_spec(template: Mapping[str, Any], environment: list[dict[str, Any]]) -> Mapping[str, Any]:
    containers = [
        {**container, "env": [*(container.get("env") or ()), *environment]}
        if container.get("name") == CONTAINER_RUNNER
        else container
        for container in template.get("containers") or ()
    ]
    return {**template, "containers": containers}


def _environment(runner: EphemeralRunner, build_version: str) -> list[dict[str, Any]]:
    """What the runner container gets after the user's own variables; of two with one name the later one counts."""
    return [
        from_secret(ENV_JIT_CONFIG, runner.metadata.name, SECRET_KEY_JIT_TOKEN),
        {"name": ENV_EXTRA_USER_AGENT, "value": f"actions-runner-controller/{build_version}"},
        {"name": ENV_RETURN_VERSION_DEPRECATED_EXIT_CODE, "value": "1"},
        *proxy_environment(runner.spec.proxy, runner.spec.proxy_secret_ref),
    ]


def _template_hash(spec: EphemeralRunnerSpec) -> str:
    """Equal for pods of the same template. (It is opaque: ARC's differs from pod to pod.)"""
    return hashlib.sha256(bytes(spec.metadata) + b"\n" + bytes(spec.spec)).hexdigest()[:10]
