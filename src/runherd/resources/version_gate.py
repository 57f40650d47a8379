"""Which runner sets this manager takes care of, by the version of the chart that made them.

``docs/spec/controllers.md`` 9.4 and D-14.
"""

from __future__ import annotations

import re

__all__ = ["COMPATIBLE_VERSION", "is_supported", "versions_match"]

#: The upstream version that this manager behaves like.
COMPATIBLE_VERSION = "0.14.2"

#: The upstream minor versions of major 0 whose runner sets are taken over as they are.
_SUPPORTED_MINORS = range(9, 15)

_NUMBER = "(?:0|[1-9][0-9]*)"
_VERSION = re.compile(rf"({_NUMBER})(?:\.({_NUMBER})(?:\.{_NUMBER}(?![0-9]).*)?)?", re.DOTALL)


def is_supported(label: str, build: str = COMPATIBLE_VERSION) -> bool:
    """Whether a set whose label ``app.kubernetes.io/version`` is ``label`` is taken care of (D-14).

    ``build`` is the version that the manager says it has; ``dev`` takes care of all sets.
    """
    if versions_match(label, build):
        return True
    version = _major_minor(label)
    return version is not None and version[0] == 0 and version[1] in _SUPPORTED_MINORS


def versions_match(label: str, build: str) -> bool:
    """Whether a manager built as ``build`` takes care of a set with the version ``label``, by upstream's rule (9.4)."""
    if build == "dev" or build.startswith("canary-") or label == build:
        return True
    version = _major_minor(label)
    return version is not None and version == _major_minor(build)


def _major_minor(text: str) -> tuple[int, int] | None:
    match = _VERSION.fullmatch(text)
    # Lengths are bounded: int() refuses to read thousands of digits.
    return (int(match[1]), int(match[2] or 0)) if match and len(text) <= 255 else None
