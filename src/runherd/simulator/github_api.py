"""The REST API's part of the login (2.2): from a credential to an admin token."""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

from runherd.simulator.context import Context
from runherd.simulator.errors import GithubApiError
from runherd.simulator.exchange import Call, json_response
from runherd.simulator.message_queue import rfc3339
from runherd.simulator.model import Scope
from runherd.simulator.router import Route
from runherd.wire.transport import Response

__all__ = ["github_api_routes"]


class _Registration(msgspec.Struct):
    url: str
    runner_event: str = ""


def github_api_routes(context: Context) -> list[Route]:
    """Paths are relative to the API's base: ``api.<host>/`` or ``<host>/api/v3/``."""
    api = _GithubApi(context)
    return [
        Route("POST", "app/installations/{id}/access_tokens", "login.access_token", api.access_token),
        Route("POST", "orgs/{o}/actions/runners/registration-token", "login.registration_token", api.organization),
        Route("POST", "enterprises/{e}/actions/runners/registration-token", "login.registration_token", api.enterprise),
        Route("POST", "repos/{o}/{r}/actions/runners/registration-token", "login.registration_token", api.repository),
        Route("POST", "actions/runner-registration", "login.runner_registration", api.runner_registration),
    ]


class _GithubApi:
    def __init__(self, context: Context) -> None:
        self._context = context

    async def access_token(self, call: Call, installation_id: str) -> Response:
        if not installation_id.isdigit():
            raise GithubApiError(404, "Not Found")
        token, expires = self._context.tokens.installation_token(int(installation_id), call.authorization())
        return json_response({"token": token, "expires_at": rfc3339(expires)}, 201)

    async def organization(self, call: Call, organization: str) -> Response:
        return self._registration_token(call, Scope(organization=organization.lower()))

    async def enterprise(self, call: Call, enterprise: str) -> Response:
        return self._registration_token(call, Scope(enterprise=enterprise.lower()))

    async def repository(self, call: Call, organization: str, repository: str) -> Response:
        return self._registration_token(call, Scope(organization=organization.lower(), repository=repository.lower()))

    async def runner_registration(self, call: Call) -> Response:
        try:
            registration = msgspec.json.decode(call.body, type=_Registration)
            scope = Scope.of(urlsplit(registration.url).path)
        except (msgspec.DecodeError, ValueError):
            raise GithubApiError(
                422, "The body must have the url of an enterprise, organization or repository"
            ) from None
        if registration.runner_event != "register":
            raise GithubApiError(422, f"runner_event {registration.runner_event!r} is not supported")
        token = self._context.tokens.admin_token(scope, call.authorization("RemoteAuth"))
        return json_response({"url": self._context.tenants.service_url(call, scope), "token": token})

    def _registration_token(self, call: Call, scope: Scope) -> Response:
        token, expires = self._context.tokens.registration_token(scope, call.authorization())
        self._context.tenants.require(scope)
        return json_response({"token": token, "expires_at": rfc3339(expires)}, 201)
