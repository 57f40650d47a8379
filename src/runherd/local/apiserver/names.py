"""What names, labels and annotation keys may look like, in the real server's words."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

__all__ = [
    "NameRule",
    "config_key_problems",
    "dns_label_problems",
    "dns_subdomain_problems",
    "env_name_problems",
    "label_value_problems",
    "path_segment_problems",
    "qualified_name_problems",
]

#: Tells what is wrong with a name; nothing when it is fine.
NameRule = Callable[[str], list[str]]

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_NAME_PART = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_CONFIG_KEY = "[-._a-zA-Z0-9]+"

_label = re.compile(_LABEL)
_subdomain = re.compile(_SUBDOMAIN)
_name_part = re.compile(_NAME_PART)
_config_key = re.compile(_CONFIG_KEY)
_env_name = re.compile("[ -<>-~]+")

_MAX_LABEL = 63
_MAX_SUBDOMAIN = 253


def _hint(message: str, pattern: str, *examples: str) -> str:
    shown = "or ".join(f"'{example}', " for example in examples).replace(", or", ",  or")
    return f"{message} (e.g. {shown}regex used for validation is '{pattern}')"


_LABEL_HINT = _hint(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character",
    _LABEL,
    "my-name",
    "123-abc",
)
_SUBDOMAIN_HINT = _hint(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character",
    _SUBDOMAIN,
    "example.com",
)
_NAME_PART_HINT = _hint(
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character",
    _NAME_PART,
    "MyName",
    "my.name",
    "123-abc",
)
_VALUE_HINT = _hint(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character",
    f"({_NAME_PART})?",
    "MyValue",
    "my_value",
    "12345",
)
_CONFIG_KEY_HINT = _hint(
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    _CONFIG_KEY,
    "key.name",
    "KEY_NAME",
    "key-name",
)


def _too_long(value: str, limit: int, unit: str = "characters") -> list[str]:
    return [f"must be no more than {limit} {unit}"] if len(value) > limit else []


def dns_label_problems(value: str) -> list[str]:
    """A namespace's or a container's name."""
    problems = _too_long(value, _MAX_LABEL)
    if _label.fullmatch(value) is None:
        problems.append("must not contain dots" if _subdomain.fullmatch(value) else _LABEL_HINT)
    return problems


def dns_subdomain_problems(value: str) -> list[str]:
    """The name of most objects."""
    problems = _too_long(value, _MAX_SUBDOMAIN)
    if _subdomain.fullmatch(value) is None:
        problems.append(_SUBDOMAIN_HINT)
    return problems


def path_segment_problems(value: str) -> list[str]:
    """The name of an object of access control: whatever can stand in a path."""
    if value in {".", ".."}:
        return [f"may not be '{value}'"]
    return [f"may not contain '{bad}'" for bad in "/%" if bad in value]


# The same few keys and values are on every object.
@lru_cache(maxsize=4096)
def qualified_name_problems(value: str) -> tuple[str, ...]:
    """A label's or annotation's key, or a finalizer: ``prefix/name`` or ``name``."""
    prefix, slash, name = value.rpartition("/")
    if "/" in prefix:
        return (
            _hint(
                "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
                "with an alphanumeric character",
                _NAME_PART,
                "MyName",
                "my.name",
                "123-abc",
            )
            + " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
        )
    problems = []
    if slash:
        if not prefix:
            problems.append("prefix part must be non-empty")
        else:
            problems += [f"prefix part {problem}" for problem in dns_subdomain_problems(prefix)]
    if not name:
        problems.append("name part must be non-empty")
    else:
        problems += [f"name part {problem}" for problem in _too_long(name, _MAX_LABEL, "bytes")]
    if _name_part.fullmatch(name) is None:
        problems.append(_NAME_PART_HINT)
    return tuple(problems)


@lru_cache(maxsize=4096)
def label_value_problems(value: str) -> tuple[str, ...]:
    problems = _too_long(value, _MAX_LABEL, "bytes")
    if value and _name_part.fullmatch(value) is None:
        problems.append(_VALUE_HINT)
    return tuple(problems)


def config_key_problems(value: str) -> list[str]:
    """A key of a ConfigMap's or Secret's data."""
    problems = _too_long(value, _MAX_SUBDOMAIN)
    if _config_key.fullmatch(value) is None:
        problems.append(_CONFIG_KEY_HINT)
    if value == ".":
        problems.append("must not be '.'")
    elif value == "..":
        problems.append("must not be '..'")
    elif value.startswith(".."):
        problems.append("must not start with '..'")
    return problems


def env_name_problems(value: str) -> list[str]:
    """The name of an environment variable."""
    if _env_name.fullmatch(value) is None:
        return ["a valid environment variable name must consist only of printable ASCII characters other than '='"]
    return []
