"""Between objects and the bytes on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Generic, TypeVar, cast

import msgspec

from runherd.api.meta import ApiStruct, ListMeta
from runherd.api.resource import ApiObject, Resource
from runherd.kube.dynamic import from_plain, to_plain
from runherd.kube.errors import DecodeError

__all__ = ["Identity", "WireList", "decode_list", "decode_object", "decoder_of", "encode_object", "identity_of"]

T = TypeVar("T", bound=ApiObject)
R = TypeVar("R")

_encode = msgspec.json.Encoder(enc_hook=to_plain).encode


class WireList(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A list as it is sent. Its items carry no ``apiVersion`` and ``kind`` where the kind is a built-in one."""

    kind: str = ""
    metadata: ListMeta = ListMeta()
    items: list[T] | None = None


class Identity(ApiStruct, frozen=True, kw_only=True):
    """The part of an object's metadata that says where it is written to."""

    name: str = ""
    namespace: str = ""
    generate_name: str = ""


class _Identified(ApiStruct, frozen=True, kw_only=True):
    metadata: Identity = Identity()


@cache
def decoder_of(type_: Any, container: Any = None) -> msgspec.json.Decoder[Any]:
    """The decoder for ``type_``, or for ``container[type_]``; made once."""
    return msgspec.json.Decoder(type_ if container is None else container[type_], dec_hook=from_plain)


_identified_decoder = msgspec.json.Decoder(_Identified)


def decode_object(type_: type[R], body: bytes, what: str) -> R:
    """The object in ``body``. ``what`` names the request in the :class:`DecodeError` for a body that doesn't fit."""
    try:
        decoder: msgspec.json.Decoder[R] = decoder_of(cast(Any, type_))
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"{what}: the answer can't be read as {type_.__name__}: {error}") from None


def decode_list(resource: Resource[T], body: bytes, what: str) -> WireList[T]:
    """The list in ``body``; errors as in :func:`decode_object`.

    Another kind of answer, or one without a resource version, is an error, too: read as an empty list it would tell a
    cache that everything was deleted.
    """
    try:
        decoder: msgspec.json.Decoder[WireList[T]] = decoder_of(resource.type, WireList)
        answer = decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"{what}: the answer can't be read as a list of {resource.kind}: {error}") from None
    if answer.kind not in ("", f"{resource.kind}List"):
        raise DecodeError(f"{what}: the answer is a {answer.kind}, not a {resource.kind}List")
    if not answer.metadata.resource_version:
        raise DecodeError(f"{what}: the list has no resource version")
    return answer


def encode_object(object_: ApiObject | Mapping[str, Any] | bytes) -> bytes:
    """What is sent for ``object_``: a struct, plain data, or bytes that are encoded already."""
    return object_ if isinstance(object_, bytes) else _encode(object_)


def identity_of(object_: ApiObject | Mapping[str, Any] | bytes) -> Identity:
    """Where an object that is about to be sent belongs. Raises :class:`ValueError` when it has no readable metadata."""
    try:
        if isinstance(object_, bytes):
            return _identified_decoder.decode(object_).metadata
        if isinstance(object_, Mapping):
            return msgspec.convert(object_.get("metadata", {}), Identity)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ValueError(f"the object's metadata can't be read: {error}") from None
    metadata = object_.metadata
    return Identity(name=metadata.name, namespace=metadata.namespace, generate_name=metadata.generate_name)
