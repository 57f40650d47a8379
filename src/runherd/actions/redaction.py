"""Making a foreign text fit to be shown: a service may repeat what it was sent."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["harmless"]

_HIDDEN = "[hidden]"

# A secret that is shorter than this is none, and would tear holes into every text.
_SHORTEST = 4

_ADDRESS = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)(?:[^\s/?#]*@)?(?P<rest>[^\s?#]*)(?:[?#]\S*)?", re.IGNORECASE)

# What tokens look like that we don't know: JSON web tokens, GitHub's own, and anything in base64 that is too long to be
# a name. (Names of runners may be long as well, but have dashes in them.)
_TOKEN = re.compile(
    r"\beyJ[A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]*)*|\b(?:gh[a-z]_|github_pat_)[A-Za-z0-9_]+|[A-Za-z0-9+/=_]{40,}"
)


def harmless(text: str, secrets: Iterable[str], longest: int) -> str:
    """``text`` on one line of at most about ``longest`` characters, without secrets.

    Hidden are ``secrets``, whatever looks like a token, and of addresses the user info, query and fragment.
    """
    # The longest first, in case one is part of another.
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, _HIDDEN)
    text = _ADDRESS.sub(r"\g<scheme>\g<rest>", text)
    text = " ".join(_TOKEN.sub(_HIDDEN, text).split())
    # Cut last: half a secret would not be recognised.
    return text if len(text) <= longest else text[:longest] + "..."
