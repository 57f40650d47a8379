"""The content of secrets on its way to the API server."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping

__all__ = ["encoded_data"]


def encoded_data(data: Mapping[str, str]) -> dict[str, str]:
    """``data`` of a secret as it is sent: base64 of UTF-8."""
    return {key: b64encode(value.encode()).decode() for key, value in data.items()}
