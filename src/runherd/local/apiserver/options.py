"""The options of requests: of writes (query parameters), of deletions (a body), and resourceVersions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from runherd.local.apiserver.bodies import media_type_of, parse
from runherd.local.apiserver.errors import bad_request, invalid, not_supported, unsupported_feature
from runherd.local.apiserver.targets import Query, fits

__all__ = ["DeleteOptions", "FieldValidation", "field_validation", "parse_resource_version", "refuse_dry_run"]

FieldValidation = Literal["Ignore", "Strict", "Warn"]

_RESOURCE_VERSION = re.compile("[0-9]{1,19}")
_PROPAGATION_POLICIES = ("Background", "Foreground", "Orphan")


def parse_resource_version(text: str) -> int:
    """A resourceVersion as a number, 0 where there is none. Raises a 400 where it is none of ours."""
    if not text:
        return 0
    if _RESOURCE_VERSION.fullmatch(text) is None:
        raise bad_request(
            f'Invalid value: "{text}": resourceVersion: strconv.ParseUint: parsing "{text}": invalid syntax'
        )
    return int(text)


def field_validation(query: Query) -> FieldValidation:
    """What is done about unknown and duplicate fields; ``Warn`` unless the client says otherwise."""
    match query.text("fieldValidation"):
        case "" | "Warn":
            return "Warn"
        case "Strict":
            return "Strict"
        case "Ignore":
            return "Ignore"
        case other:
            error = not_supported("fieldValidation", other, ["Ignore", "Strict", "Warn", ""])
            raise invalid("meta.k8s.io", "CreateOptions", "", [error])


def refuse_dry_run(query: Query) -> None:
    """Raises a 501 where the request asks for a dry run: carrying it out instead would be worse."""
    if query.texts("dryRun"):
        raise unsupported_feature("dry run")


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """How to delete. ``None`` and ``""`` mean that the client leaves it to the server."""

    grace_period_seconds: int | None = None
    uid: str = ""
    resource_version: str = ""

    @classmethod
    def read(cls, body: bytes, content_type: str, query: Query) -> DeleteOptions:
        """From a request, whose body outranks its query.

        Raises a 400 for malformed options and a 501 for what this server leaves out (dry run, foreground and orphan
        deletion).
        """
        refuse_dry_run(query)
        given = cls._body(body, content_type) if body else {}
        grace = given.get("gracePeriodSeconds", query.integer("gracePeriodSeconds"))
        policy = given.get("propagationPolicy") or query.text("propagationPolicy")
        orphan = given.get("orphanDependents", query.flag("orphanDependents"))
        preconditions = given.get("preconditions") or {}
        if (grace is not None and not _is_integer(grace)) or not isinstance(preconditions, dict):
            raise bad_request("DeleteOptions: gracePeriodSeconds is a number of 64 bits, preconditions are an object")
        if given.get("dryRun"):
            raise unsupported_feature("dry run")
        if policy and policy not in _PROPAGATION_POLICIES:
            error = not_supported("propagationPolicy", policy, [*_PROPAGATION_POLICIES, "nil"])
            raise invalid("meta.k8s.io", "DeleteOptions", "", [error])
        if orphan or policy == "Orphan":
            raise unsupported_feature("orphan deletion (propagationPolicy Orphan)")
        if policy == "Foreground":
            raise unsupported_feature("foreground deletion (propagationPolicy Foreground)")
        return cls(grace, str(preconditions.get("uid") or ""), str(preconditions.get("resourceVersion") or ""))

    @staticmethod
    def _body(body: bytes, content_type: str) -> dict[str, Any]:
        try:
            value = parse(body, media_type_of(content_type))
        except ValueError as error:
            raise bad_request(f"couldn't get version/kind; {error}") from error
        if value is None:
            return {}
        if not isinstance(value, dict) or value.get("kind", "DeleteOptions") != "DeleteOptions":
            raise bad_request("expected a DeleteOptions object in the body")
        return value


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and fits(value, 64)
