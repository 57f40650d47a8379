"""Refusals of the service, with the status and the typed exception that go over the wire (4.2, 4.3)."""

from __future__ import annotations

__all__ = ["GithubApiError", "ServiceError", "bad_request", "unauthorized"]

_TASKS = "GitHub.DistributedTask.WebApi"
_RUNTIME = "GitHub.Actions.Runtime.WebApi"
_NAMESPACES = {
    "TaskAgentExistsException": _TASKS,
    "TaskAgentNotFoundException": _TASKS,
    "TaskAgentJobStillRunningException": _TASKS,
    "TaskAgentSessionConflictException": _TASKS,
    "TaskAgentVersionNotSupportedException": _TASKS,
    "VssUnauthorizedException": "Microsoft.VisualStudio.Services.Common",
    "VssServiceException": "Microsoft.VisualStudio.Services.Common",
}


class ServiceError(Exception):
    """The Actions service refuses a call, with a typed exception in the body."""

    def __init__(self, status: int, exception: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        #: The exception's class name, without namespace: ``TaskAgentExistsException``.
        self.exception = exception
        self.message = message

    def body(self) -> dict[str, object]:
        """The JSON body: ``typeName`` and ``message`` are what clients read."""
        namespace = _NAMESPACES.get(self.exception, _RUNTIME)
        return {
            "$id": "1",
            "innerException": None,
            "message": self.message,
            "typeName": f"{namespace}.{self.exception}, {namespace}",
            "typeKey": self.exception,
            "errorCode": 0,
            "eventId": 3000,
        }


class GithubApiError(Exception):
    """The REST API refuses a call: a body with a ``message`` and no typed exception."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message

    def body(self) -> dict[str, object]:
        return {
            "message": self.message,
            "documentation_url": "https://docs.github.com/rest",
            "status": str(self.status),
        }


def bad_request(message: str) -> ServiceError:
    """The request itself can't be understood."""
    return ServiceError(400, "VssServiceException", message)


def unauthorized(message: str) -> ServiceError:
    """A token is missing, wrong or expired."""
    return ServiceError(401, "VssUnauthorizedException", message)
