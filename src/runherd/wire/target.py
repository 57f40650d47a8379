"""Where a request goes: the parts of its URL that a transport needs, checked once.

Both transports read URLs through this module, so that what one refuses the other refuses too, and so that every error
names a request in the same words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from runherd.wire.transport import Request

__all__ = ["Target", "describe"]

# No user info: credentials belong in headers, where nothing prints them. Only visible ASCII: whoever made the URL has
# quoted the rest, and a line break in it would let the maker write headers.
_URL = re.compile(
    r"(?P<scheme>[Hh][Tt][Tt][Pp][Ss]?)://"
    r"(?P<host>\[[0-9A-Fa-f:.]+(?:%25[!-~]+)?\]|[^\x00-\x20\x7f-\uffff/?#@:\[\]]+)(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>/[!-\x22\x24-\x3e\x40-~]*)?"
    r"(?P<query>\?[!-\x22\x24-~]*)?"
    r"(?:\#[!-~]*)?",
)


@dataclass(frozen=True, slots=True)
class Target:
    """An absolute http or https URL, split. ``host`` is lower case and without brackets; ``port`` is filled in."""

    scheme: str
    host: str
    port: int
    #: Host and port as the ``Host`` header spells them: the port only where it isn't the scheme's own.
    authority: str
    #: Path and query, as they go over the wire; the path is never empty.
    path: str
    #: The same without the query, for people to read.
    shown_path: str

    @classmethod
    def parse(cls, url: str) -> Target:
        """Split ``url``. Raises ``ValueError``, which doesn't repeat the URL, when it is not one that we can call."""
        match = _URL.fullmatch(url)
        if match is None:
            raise ValueError("not an absolute http or https URL without user info, all of it in visible ASCII")
        scheme, host, port, path, query = match.group("scheme", "host", "port", "path", "query")
        scheme = scheme.lower()
        host = host.lower()
        default = 443 if scheme == "https" else 80
        number = default if port is None else int(port)
        if not 0 < number < 65536:
            raise ValueError(f"{number} is no port")
        path = path or "/"
        return cls(
            scheme=scheme,
            host=host.strip("[]"),
            port=number,
            authority=host if number == default else f"{host}:{number}",
            path=path + query if query else path,
            shown_path=path,
        )

    @property
    def url(self) -> str:
        """The URL, whole again (without its fragment)."""
        return f"{self.scheme}://{self.authority}{self.path}"


def describe(request: Request) -> str:
    """Method, scheme, host and path of ``request``: what an error may show of it."""
    try:
        target = Target.parse(request.url)
    except ValueError:
        return f"{request.method} (not a valid URL)"
    return f"{request.method} {target.scheme}://{target.authority}{target.shown_path}"
