"""The URL that says for whom runners are registered: a repository, an organization or an enterprise.

``docs/spec/actions-service.md`` 1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from urllib.parse import quote, unquote, urlsplit

from runherd.actions.errors import InvalidConfigURLError

__all__ = ["ConfigURL", "Scope", "parse_config_url"]

_HOSTED = frozenset({"github.com", "www.github.com", "github.localhost"})
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_CONTROL_OR_SPACE = re.compile(r"[\x00-\x20\x7f]")
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


class Scope(Enum):
    """Whose runners a configuration registers."""

    REPOSITORY = "repository"
    ORGANIZATION = "organization"
    ENTERPRISE = "enterprise"


@dataclass(frozen=True, slots=True)
class ConfigURL:
    """A parsed configuration URL.

    ``url`` is what is sent at registration: the given text without slashes at its ends. ``host`` keeps its port.
    ``organization`` is empty for an enterprise, ``repository`` for an organization. ``repr`` leaves ``url`` out, since
    its user info and query may be secret.
    """

    url: str = field(repr=False)
    scheme: str
    host: str
    scope: Scope
    organization: str = ""
    repository: str = ""
    enterprise: str = ""
    #: Served by GitHub (github.com, ghe.com), not by a GitHub Enterprise Server.
    hosted: bool = False

    def api_url(self, path: str) -> str:
        """The URL of ``path`` (with its leading slash, already percent-encoded) in GitHub's REST API, 1.2."""
        if not self.hosted:
            return f"{self.scheme}://{self.host}/api/v3{path}"
        host = "github.com" if self.host.lower() == "www.github.com" else self.host
        return f"{self.scheme}://api.{host}{path}"

    def __str__(self) -> str:
        """Host and owner, for people: without what else the URL may hold."""
        if self.scope is Scope.ENTERPRISE:
            return f"{self.host}/enterprises/{self.enterprise}"
        return "/".join(filter(None, (self.host, self.organization, self.repository)))

    @property
    def registration_token_path(self) -> str:
        """The API path that answers with a token to register runners here, 2.2 step B."""
        if self.scope is Scope.ENTERPRISE:
            owner = f"enterprises/{quote(self.enterprise, safe='')}"
        elif self.scope is Scope.ORGANIZATION:
            owner = f"orgs/{quote(self.organization, safe='')}"
        else:
            owner = f"repos/{quote(self.organization, safe='')}/{quote(self.repository, safe='')}"
        return f"/{owner}/actions/runners/registration-token"

    @property
    def registration_owner(self) -> tuple[str, ...]:
        """What GitHub counts registrations by: equal for all spellings of the same owner's URL."""
        host = self.host.lower().removeprefix("www.")
        return host, self.scope.value, (self.enterprise or self.organization).lower(), self.repository.lower()


def parse_config_url(text: str, *, force_ghes: bool = False) -> ConfigURL:
    """Parse ``text``, for example ``https://github.com/octo-org``.

    ``force_ghes`` treats every host as a GitHub Enterprise Server; a command sets it when the variable
    ``GITHUB_ACTIONS_FORCE_GHES`` is present, whatever its value. Raises :class:`InvalidConfigURLError`.
    """
    url = text.strip("/")
    # urlsplit forgives most of what is refused here, and would send it to the wrong place.
    if _CONTROL_OR_SPACE.search(url) or _BROKEN_ESCAPE.search(url):
        raise InvalidConfigURLError(text)
    has_scheme = _SCHEME.match(url)
    if has_scheme is None and ":" in url.partition("/")[0]:
        raise InvalidConfigURLError(text)
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        _ = parts.port  # raises for a port that is no number
    except ValueError:
        # From None: urlsplit quotes the whole URL, user info included.
        raise InvalidConfigURLError(text) from None
    # "host:8080/org" reads as the scheme "host" with an opaque rest, which has no path.
    opaque = has_scheme is not None and not url[has_scheme.end() :].startswith("/")
    path = "" if opaque else unquote(parts.path)
    hosted = not force_ghes and (host.lower() in _HOSTED or host.endswith(".ghe.com"))
    match path.strip("/").split("/"):
        case [organization] if organization:
            return ConfigURL(url, parts.scheme, host, Scope.ORGANIZATION, organization, hosted=hosted)
        case [first, enterprise] if first.lower() == "enterprises":
            return ConfigURL(url, parts.scheme, host, Scope.ENTERPRISE, enterprise=enterprise, hosted=hosted)
        case [organization, repository]:
            return ConfigURL(url, parts.scheme, host, Scope.REPOSITORY, organization, repository, hosted=hosted)
    raise InvalidConfigURLError(text)
