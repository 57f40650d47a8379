"""Which form and media type an answer takes, by the request's ``Accept`` header."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from runherd.local.apiserver.errors import not_acceptable

__all__ = ["JSON", "PROTOBUF", "YAML", "Form", "Representation", "negotiate", "parse_accept"]

JSON = "application/json"
YAML = "application/yaml"
#: For request bodies only; see :mod:`runherd.local.apiserver.protobuf`.
PROTOBUF = "application/vnd.kubernetes.protobuf"

#: ``Object`` as it is; a ``Table`` for people; ``PartialObjectMetadata`` with no more than metadata.
Form = Literal["Object", "Table", "PartialObjectMetadata", "APIGroupDiscoveryList"]
_MEDIA_TYPES = {JSON: JSON, "*/*": JSON, "application/*": JSON, YAML: YAML}
#: What ``as=`` may ask for; a list's and an item's form go by one name.
_FORMS: dict[tuple[str, str], Form] = {
    ("Table", "meta.k8s.io"): "Table",
    ("PartialObjectMetadata", "meta.k8s.io"): "PartialObjectMetadata",
    ("PartialObjectMetadataList", "meta.k8s.io"): "PartialObjectMetadata",
    ("APIGroupDiscoveryList", "apidiscovery.k8s.io"): "APIGroupDiscoveryList",
}
_FORM_VERSIONS = {"Table": "v1", "PartialObjectMetadata": "v1", "APIGroupDiscoveryList": "v2"}


@dataclass(frozen=True, slots=True)
class Representation:
    """How an answer is written."""

    media_type: str = JSON
    form: Form = "Object"

    @property
    def content_type(self) -> str:
        if self.form == "APIGroupDiscoveryList":
            return f"{self.media_type};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        return self.media_type


_PLAIN = Representation()


def negotiate(accept: str, forms: frozenset[Form] = frozenset()) -> Representation:
    """The best representation that the client takes and the endpoint has (``forms``, besides ``Object``).

    Raises a 406 where there is none, as for clients that take nothing but protobuf.
    """
    if not accept or accept == JSON:
        return _PLAIN
    for media_type, parameters in parse_accept(accept):
        known = _MEDIA_TYPES.get(media_type)
        if known is None:
            continue
        wanted = parameters.get("as", "")
        if not wanted:
            return Representation(known)
        form = _FORMS.get((wanted, parameters.get("g", "")))
        if form is not None and form in forms and parameters.get("v") == _FORM_VERSIONS[form]:
            return Representation(known, form)
    raise not_acceptable([JSON, YAML])


def parse_accept(accept: str) -> list[tuple[str, dict[str, str]]]:
    """The media types of an ``Accept`` header with their parameters, best first."""
    clauses = []
    for position, clause in enumerate(accept.split(",")):
        media_type, *rest = (part.strip() for part in clause.split(";"))
        parameters = {key.strip(): value.strip() for key, _, value in (part.partition("=") for part in rest)}
        try:
            quality = float(parameters.pop("q", "1"))
        except ValueError:
            quality = 0.0
        if quality > 0:
            clauses.append((-quality, position, media_type.lower(), parameters))
    return [(media_type, parameters) for _, _, media_type, parameters in sorted(clauses, key=lambda each: each[:2])]
