"""The secret with which a runner starts, and what it says later about the registration (8.11, 7.1.7).

Section numbers are those of ``docs/spec/controllers.md``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runherd.actions.objects import JitRunnerConfig
from runherd.api.actions import EphemeralRunner, ResourceMeta
from runherd.api.constants import (
    SECRET_KEY_JIT_TOKEN,
    SECRET_KEY_RUNNER_ID,
    SECRET_KEY_RUNNER_NAME,
    SECRET_KEY_SCALE_SET_ID,
)
from runherd.resources.merge import merge_labels
from runherd.resources.owner import built_metadata
from runherd.resources.secret_data import encoded_data

__all__ = ["InvalidRegistrationError", "Registration", "jit_secret", "registration_in"]

_MAX_ID = 2**63 - 1


class InvalidRegistrationError(ValueError):
    """A JIT secret names no registration. That is not the same as there being none."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A runner as the service knows it."""

    runner_id: int
    runner_name: str


def jit_secret(runner: EphemeralRunner, config: JitRunnerConfig, excluded_prefixes: tuple[str, ...]) -> dict[str, Any]:
    """The body of the secret with ``config``, the registration of ``runner``. Never log it."""
    override = runner.spec.ephemeral_runner_config_secret_metadata or ResourceMeta()
    registered = config.runner
    scale_set = registered.runner_scale_set_id or runner.spec.runner_scale_set_id
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": built_metadata(
            runner.metadata.name,
            runner.metadata.namespace,
            labels=merge_labels(override.labels, {}, excluded_prefixes),
            annotations=override.annotations,
            owner=runner,
        ),
        "data": encoded_data(
            {
                SECRET_KEY_JIT_TOKEN: config.encoded_jit_config,
                SECRET_KEY_RUNNER_NAME: registered.name,
                SECRET_KEY_RUNNER_ID: str(registered.id),
                SECRET_KEY_SCALE_SET_ID: str(scale_set),
            }
        ),
    }


def registration_in(data: Mapping[str, bytes]) -> Registration:
    """The registration that a JIT secret with the (decoded) ``data`` names.

    Raises :class:`InvalidRegistrationError` unless ``runnerId`` is a positive decimal number of 64 bits.
    """
    text = data.get(SECRET_KEY_RUNNER_ID, b"").decode("ascii", "replace")
    runner_id = int(text) if re.fullmatch(r"\+?[0-9]{1,30}", text) else 0
    if not 0 < runner_id <= _MAX_ID:
        raise InvalidRegistrationError(
            f"key {SECRET_KEY_RUNNER_ID} of the runner's JIT secret holds no runner id, but a positive number is needed"
        )
    return Registration(runner_id, data.get(SECRET_KEY_RUNNER_NAME, b"").decode("utf-8", "replace"))
