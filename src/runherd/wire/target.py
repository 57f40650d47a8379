"""Where a request goes: the parts of its URL that a transport needs, checked once.

Both transports read URLs through this module, so that what one refuses the other refuses too, and so that every error
names a request in the same words.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from runherd.wire.transport import Request

__all__ = ["USER_AGENT", "Target", "describe"]

#: Sent by callers that name none.
USER_AGENT = "runherd"

# Only visible ASCII: whoever made the URL has quoted the rest, and a line break in it would add headers of its own.
_URL = re.compile(r"([a-zA-Z]{4,5}://[!\"$-.0->@-~]+)((?:/[!\"$->@-~]*)?)((?:\?[!\"$-~]*)?)(?:#[!-~]*)?")

# No user info: credentials belong in headers, where nothing prints them.
_ORIGIN = re.compile(r"(https?)://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{1,5}))?")


class Target(NamedTuple):
    """An absolute http or https URL, split. ``host`` is lower case and without brackets; ``port`` is filled in."""

    scheme: str
    host: str
    port: int
    #: Host and port as the ``Host`` header spells them: the port only where it isn't the scheme's own.
    authority: str
    #: The path, never empty; without the query, so that people may see it.
    path: str
    #: The whole URL as it goes over the wire, without its fragment.
    url: str

    @classmethod
    def parse(cls, url: str) -> Target:
        """Split ``url``. Raises ``ValueError``, which doesn't repeat the URL, when it is not one that we can call."""
        match = _URL.fullmatch(url)
        if match is None:
            raise ValueError(_NOT_A_URL)
        origin, path, query = match.groups()
        scheme, host, port, authority = _parse_origin(origin)
        path = path or "/"
        return cls(scheme, host, port, authority, path, f"{scheme}://{authority}{path}{query}")


_NOT_A_URL = "not an absolute http or https URL without user info, all of it in visible ASCII"


@lru_cache(maxsize=256)
def _parse_origin(origin: str) -> tuple[str, str, int, str]:
    """Scheme, host, port, and the two as the ``Host`` header has them."""
    match = _ORIGIN.fullmatch(origin.lower())
    if match is None:
        raise ValueError(_NOT_A_URL)
    scheme, host, port = match.groups()
    default = 443 if scheme == "https" else 80
    number = default if port is None else int(port)
    if not 0 < number < 65536:
        raise ValueError(f"{number} is no port")
    return scheme, host.strip("[]"), number, host if number == default else f"{host}:{number}"


def describe(request: Request) -> str:
    """Method, scheme, host and path of ``request``: what an error may show of it."""
    try:
        target = Target.parse(request.url)
    except ValueError:
        return f"{request.method} (not a valid URL)"
    return f"{request.method} {target.scheme}://{target.authority}{target.path}"
