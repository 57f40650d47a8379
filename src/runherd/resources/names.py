"""The names of child objects (``docs/spec/controllers.md`` 8.3)."""

from __future__ import annotations

from random import Random

__all__ = [
    "ephemeral_runner_generate_name",
    "ephemeral_runner_name",
    "listener_config_secret_name",
    "listener_name",
    "listener_proxy_secret_name",
    "name_hash",
    "runner_proxy_secret_name",
]

_FNV_OFFSET = 0x811C9DC5
_FNV_PRIME = 0x01000193
_DIGITS = str.maketrans("0123456789", "456789bcdf")
_HASH_LENGTH = 8

# How an API server completes a generateName, so that a name made here can't be told from one made there.
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_MAX_GENERATED_NAME = 63


def name_hash(text: str) -> str:
    """FNV-1a (32 bits) of ``text`` in UTF-8 as a decimal number in letters that spell nothing, at most 8 of them."""
    value = _FNV_OFFSET
    for byte in text.encode():
        value = (value ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return str(value).translate(_DIGITS)[:_HASH_LENGTH]


def listener_name(runner_set: str, namespace: str, runner_group: str, config_url: str) -> str:
    """The AutoscalingListener of a runner set, and of its pod, service account, role and role binding.

    ``runner_group`` and ``config_url`` are the raw values of the runner set's spec; the group may be empty.
    """
    return f"{runner_set}-{name_hash(f'{namespace}@{runner_group}@{config_url}')}-listener"


def listener_config_secret_name(listener: str) -> str:
    """The Secret with the listener's configuration file."""
    return f"{listener}-config"


def listener_proxy_secret_name(listener: str) -> str:
    """The Secret with the listener's proxies."""
    return f"{listener}-proxy"


def runner_proxy_secret_name(runner_set: str, namespace: str) -> str:
    """The Secret with the proxies of an EphemeralRunnerSet's runners."""
    return f"{runner_set}-{name_hash(namespace)}-runner-proxy"


def ephemeral_runner_generate_name(runner_set: str) -> str:
    """``metadata.generateName`` of the runners of an EphemeralRunnerSet."""
    return f"{runner_set}-runner-"


def ephemeral_runner_name(runner_set: str, random: Random) -> str:
    """A name for a new runner, which is also its pod's and its JIT secret's; at most 63 characters.

    It is what the API server would have made of :func:`ephemeral_runner_generate_name`. Chosen here, it makes a create
    repeatable: a runner whose create was answered with a broken connection is found again.
    """
    base = ephemeral_runner_generate_name(runner_set)[: _MAX_GENERATED_NAME - _SUFFIX_LENGTH]
    return base + "".join(random.choices(_SUFFIX_ALPHABET, k=_SUFFIX_LENGTH))
