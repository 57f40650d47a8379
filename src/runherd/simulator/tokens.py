"""Who may call: personal access tokens, GitHub Apps, and the tokens that the login chain hands out (2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random

import jwt
from jwt.types import Options

from runherd.simulator.errors import GithubApiError, unauthorized
from runherd.simulator.model import Scope
from runherd.simulator.settings import Settings

__all__ = ["Tokens"]

_HOUR = timedelta(hours=1)
# GitHub accepts App JWTs that live ten minutes at most, and allows for clocks that are a little fast.
_APP_JWT_LIFETIME = timedelta(minutes=10)
_CLOCK_DRIFT = timedelta(seconds=60)

# Times are checked here and not by the library, which would ask the machine's clock.
_NO_TIMES: Options = {"verify_exp": False, "verify_iat": False, "verify_nbf": False, "verify_aud": False}


@dataclass(frozen=True, slots=True)
class _App:
    ids: frozenset[str]
    public_key: str | None


@dataclass(frozen=True, slots=True)
class _Issued:
    expires: datetime
    scope: Scope | None = None


class Tokens:
    """Everything that authenticates a caller. Tokens are compared, never parsed, apart from an App's JWT."""

    def __init__(self, settings: Settings, now: Callable[[], datetime], random: Random) -> None:
        self._settings = settings
        self._now = now
        self._random = random
        self._key = f"{random.getrandbits(256):064x}"
        #: Personal access tokens that are accepted.
        self.personal: set[str] = set()
        self._apps: dict[int, _App] = {}
        self._installation: dict[str, _Issued] = {}
        self._registration: dict[str, _Issued] = {}
        self._admin: dict[str, _Issued] = {}

    def add_app(self, ids: set[str], installation_id: int, public_key: str | None = None) -> None:
        """Install a GitHub App. ``ids`` are its app id and client id, as text.

        Its JWTs are checked against ``public_key`` (PEM), and taken on trust where that is ``None``.
        """
        self._apps[installation_id] = _App(frozenset(ids), public_key)

    def installation_token(self, installation_id: int, app_jwt: str) -> tuple[str, datetime]:
        """Step A of the login. Raises 404 for an unknown installation, 401 for a JWT that GitHub would refuse."""
        app = self._apps.get(installation_id)
        if app is None:
            raise GithubApiError(404, "Integration not found")
        self._check_app_jwt(app, app_jwt)
        token = f"ghs_{self._random.getrandbits(180):045x}"
        expires = self._now() + _HOUR
        _forget_expired(self._installation, self._now())
        self._installation[token] = _Issued(expires)
        return token, expires

    def registration_token(self, scope: Scope, credentials: str) -> tuple[str, datetime]:
        """Step B. Raises 401 unless ``credentials`` is a personal access token or an installation token of ours."""
        installation = self._installation.get(credentials)
        if credentials not in self.personal and (installation is None or installation.expires <= self._now()):
            raise GithubApiError(401, "Bad credentials")
        token = f"A{self._random.getrandbits(140):035X}"
        expires = self._now() + _HOUR
        _forget_expired(self._registration, self._now())
        self._registration[token] = _Issued(expires, scope)
        return token, expires

    def admin_token(self, scope: Scope, registration_token: str) -> str:
        """Step C. Raises 401 for a token that isn't of step B, 403 for one that was made for another scope."""
        known = self._registration.get(registration_token)
        if known is None or known.expires <= self._now():
            raise GithubApiError(401, "Bad credentials")
        if known.scope != scope:
            raise GithubApiError(403, f"The registration token is not for {scope}.")
        now = self._now()
        expires = now + timedelta(seconds=self._settings.admin_token_lifetime)
        claims = {
            "iss": "runherd-simulator",
            "nbf": int(now.timestamp()),
            "exp": int(expires.timestamp()),
            "jti": f"{self._random.getrandbits(128):032x}",
        }
        token = jwt.encode(claims, self._key, algorithm="HS256")
        _forget_expired(self._admin, now)
        self._admin[token] = _Issued(expires, scope)
        return token

    def admin_scope(self, token: str) -> Scope:
        """Whose administrator the bearer is. Raises 401."""
        known = self._admin.get(token)
        if known is None or known.scope is None or known.expires <= self._now():
            raise unauthorized("The admin token is not valid (any more).")
        return known.scope

    def expire_admin_tokens(self) -> None:
        """Make all admin tokens invalid, whatever their own ``exp`` says."""
        self._admin.clear()

    def _check_app_jwt(self, app: _App, app_jwt: str) -> None:
        try:
            if app.public_key is None:
                claims = jwt.decode(app_jwt, options={**_NO_TIMES, "verify_signature": False})
            else:
                claims = jwt.decode(app_jwt, app.public_key, algorithms=["RS256"], options=_NO_TIMES)
            issued, expires = int(claims["iat"]), int(claims["exp"])
        except (jwt.InvalidTokenError, KeyError, TypeError, ValueError):
            raise GithubApiError(401, "A JSON web token could not be decoded") from None
        now = self._now()
        if str(claims.get("iss")) not in app.ids:
            raise GithubApiError(401, "'Issuer' claim ('iss') must be an Integer or the client id of the App")
        if issued > (now + _CLOCK_DRIFT).timestamp():
            raise GithubApiError(401, "'Issued at' claim ('iat') must be an Integer representing a time in the past")
        if not now.timestamp() < expires <= (now + _APP_JWT_LIFETIME + _CLOCK_DRIFT).timestamp():
            raise GithubApiError(401, "'Expiration time' claim ('exp') must be within the next 10 minutes")


def _forget_expired(issued: dict[str, _Issued], now: datetime) -> None:
    for token in [token for token, known in issued.items() if known.expires <= now]:
        del issued[token]
