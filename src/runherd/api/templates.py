"""Pod templates inside our kinds: kept as the bytes they came in, shared by all holders, decoded once per content.

Every EphemeralRunner carries its set's whole pod template, some kilobytes that no controller looks at except when it
builds the pod. The API server writes equal templates as equal bytes (it sorts the keys), so a thousand runners of a
set hold one object here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from runherd.api.constants import CONTAINER_RUNNER, ENV_CONTAINER_HOOKS
from runherd.api.meta import ApiStruct

__all__ = [
    "NO_TEMPLATE",
    "TemplateContainer",
    "TemplateEnvVar",
    "TemplatePodSpec",
    "decode_pod_spec",
    "decode_template",
    "has_container_hook",
    "share_template",
    "work_folder",
]

#: Stands in fields whose template is absent. It is false; every other template is true.
NO_TEMPLATE = msgspec.Raw()

# More distinct templates than this are correct but no longer shared: a bound for a process that runs for a year.
_MAX_CONTENTS = 1024


class TemplateEnvVar(ApiStruct, frozen=True, kw_only=True):
    """An environment variable of a template: its name alone matters to the controllers."""

    name: str = ""


class TemplateContainer(ApiStruct, frozen=True, kw_only=True):
    """What is read of a template's container."""

    name: str = ""
    working_dir: str = ""
    env: list[TemplateEnvVar] = []


class TemplatePodSpec(ApiStruct, frozen=True, kw_only=True):
    """What is read of a template's pod spec. The whole of it: :func:`decode_template`."""

    containers: list[TemplateContainer] = []


def share_template(raw: msgspec.Raw) -> msgspec.Raw:
    """The one object for ``raw``'s content, independent of the message that ``raw`` is a view into.

    ``NO_TEMPLATE`` for empty content and for a JSON null.
    """
    content = bytes(raw)
    return NO_TEMPLATE if content in (b"", b"null") else _share(content)


def decode_pod_spec(raw: msgspec.Raw) -> TemplatePodSpec:
    """What is read of the pod spec ``raw``, an empty one for ``NO_TEMPLATE``.

    Raises msgspec.DecodeError when it is no pod spec.
    """
    return _decode_pod_spec(bytes(raw)) if raw else TemplatePodSpec()


def decode_template(raw: msgspec.Raw) -> Mapping[str, Any]:
    """All of ``raw`` as plain JSON values, ``{}`` for ``NO_TEMPLATE``. All callers share it: copy before changing."""
    return _decode_template(bytes(raw)) if raw else {}


def work_folder(pod_spec: msgspec.Raw) -> str:
    """The working directory of container ``runner``, ``""`` when it sets none (``docs/spec/controllers.md`` 7.4)."""
    container = _runner_container(pod_spec)
    return container.working_dir if container else ""


def has_container_hook(pod_spec: msgspec.Raw) -> bool:
    """Whether container ``runner`` is set up to make further pods for its job (``docs/spec/controllers.md`` 3.4)."""
    container = _runner_container(pod_spec)
    return container is not None and any(variable.name == ENV_CONTAINER_HOOKS for variable in container.env)


def _runner_container(pod_spec: msgspec.Raw) -> TemplateContainer | None:
    for container in decode_pod_spec(pod_spec).containers:
        if container.name == CONTAINER_RUNNER:
            return container
    return None


@lru_cache(_MAX_CONTENTS)
def _share(content: bytes) -> msgspec.Raw:
    return msgspec.Raw(content)


@lru_cache(_MAX_CONTENTS)
def _decode_pod_spec(content: bytes) -> TemplatePodSpec:
    return msgspec.json.decode(content, type=TemplatePodSpec)


@lru_cache(_MAX_CONTENTS)
def _decode_template(content: bytes) -> Mapping[str, Any]:
    return msgspec.json.decode(content, type=dict[str, Any])
