"""Watch events, and how they are read from the stream of lines that the server sends.

Most lines are changes of objects, and are decoded in one step straight into the typed event. Bookmarks and errors
carry something else than the watched kind; those lines are decoded a second time, which is rare enough not to matter.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import msgspec

from runherd.api.meta import ApiStruct, ObjectMeta
from runherd.api.resource import ApiObject
from runherd.kube.codec import decoder_of
from runherd.kube.errors import DecodeError, api_error
from runherd.wire.answering import close_chunks
from runherd.wire.transport import ConnectionLostError, DeadlineExceededError

__all__ = ["BookmarkObject", "WatchEvent", "WatchOptions", "read_events"]

T = TypeVar("T", bound=ApiObject)

#: The annotation of the bookmark that ends the initial events of a streaming list.
_INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class WatchEvent(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """Something happened to ``object``.

    Of a ``DELETED`` event the object is its last state, with the resource version of the deletion. Of a ``BOOKMARK``
    it is a :class:`BookmarkObject`: nothing but metadata, of which only the resource version means something.
    """

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: T

    @property
    def resource_version(self) -> str:
        """Where a new watch continues behind this event."""
        return self.object.metadata.resource_version

    @property
    def initial_events_end(self) -> bool:
        """Whether this is the bookmark behind the last of the initial events of a streaming list."""
        return self.type == "BOOKMARK" and self.object.metadata.annotations.get(_INITIAL_EVENTS_END) == "true"


class BookmarkObject(ApiStruct, frozen=True, kw_only=True):
    """What a bookmark carries."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()


class _RawEvent(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """Deadlines of watches, in seconds.

    A watch ends when the server ends it, after a time that the client chose at random, so that watches don't all end
    together: ``shortest`` to ``longest``, client-go's numbers. ``grace`` later the connection is given up.

    That alone would leave a dead connection (its peer vanished while this machine slept, or a firewall forgot it)
    unnoticed for minutes. Servers send bookmarks about once a minute, but not all do, and none before the first
    event. So ``silence`` counts from the first bookmark of a stream on: then a stream without a byte for so long is
    given up, and the watch that follows continues where it was. That costs nothing if it was alive after all.
    """

    shortest: int = 300
    longest: int = 600
    grace: float = 30.0
    silence: float | None = 150.0
    open_within: float = 60.0


_raw_decoder = msgspec.json.Decoder(_RawEvent)
_bookmark_decoder = msgspec.json.Decoder(BookmarkObject)


async def read_events(
    chunks: AsyncIterator[bytes], type_: type[T], what: str, silence: float | None
) -> AsyncGenerator[WatchEvent[T], None]:
    """The events in ``chunks``; ends when the server ends the stream.

    Raises :class:`~runherd.kube.errors.ApiError` for an ERROR event, :class:`ConnectionLostError` when the stream ends
    inside a line, :class:`DeadlineExceededError` after ``silence`` seconds (see :class:`WatchOptions`), and
    :class:`~runherd.kube.errors.DecodeError` for a line that is no event. An incomplete line is never delivered.
    """
    decoder: msgspec.json.Decoder[WatchEvent[T]] = decoder_of(type_, WatchEvent)
    decode = decoder.decode
    buffer = _LineBuffer()
    bookmarked = False
    try:
        while (chunk := await _next_chunk(chunks, what, silence if bookmarked else None)) is not None:
            for line in buffer.feed(chunk):
                try:
                    event = decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    if not line.strip():
                        continue
                    event = _decode_unusual(line, what, error)
                if event.type == "BOOKMARK":
                    bookmarked = True
                    event = _decode_unusual(line, what, None)
                yield event
    finally:
        await close_chunks(chunks)
    if buffer.is_inside_a_line():
        raise ConnectionLostError(f"{what}: the stream ended inside an event", request_sent=True)


async def _next_chunk(chunks: AsyncIterator[bytes], what: str, silence: float | None) -> bytes | None:
    """The next piece of the stream; ``None`` at its end."""
    try:
        async with asyncio.timeout(silence):
            return await anext(chunks, None)
    except TimeoutError:
        text = f"{what}: nothing came for {silence:g} s on a stream that had bookmarks"
        raise DeadlineExceededError(text, request_sent=True) from None


class _LineBuffer:
    """Cuts chunks into lines. A line may span many chunks: its pieces are joined once, when its end has come."""

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that ``chunk`` completes."""
        lines = chunk.split(b"\n")
        last = lines.pop()
        if lines and self._pieces:
            self._pieces.append(lines[0])
            lines[0] = b"".join(self._pieces)
            self._pieces.clear()
        if last:
            self._pieces.append(last)
        return lines

    def is_inside_a_line(self) -> bool:
        return any(piece.strip() for piece in self._pieces)


def _decode_unusual(line: bytes, what: str, error: Exception | None) -> WatchEvent[Any]:
    """The bookmark in ``line``. Raises what an ERROR event says, and ``error`` for any other line."""
    try:
        raw = _raw_decoder.decode(line)
        if raw.type == "BOOKMARK":
            return WatchEvent("BOOKMARK", _bookmark_decoder.decode(raw.object))
    except (msgspec.DecodeError, UnicodeDecodeError) as malformed:
        raise DecodeError(f"{what}: a line of the stream is no watch event: {malformed}") from None
    if raw.type == "ERROR":
        raise api_error(what, 500, bytes(raw.object))
    raise DecodeError(f"{what}: the object of {raw.type[:20]} event can't be read: {error}{_named(raw.object)}")


def _named(object_: msgspec.Raw) -> str:
    try:
        metadata = _bookmark_decoder.decode(object_).metadata
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    return f" (in {metadata.namespace}/{metadata.name})"
