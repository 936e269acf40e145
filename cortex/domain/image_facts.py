"""What the first bytes of a file say about it: the type by its content, never by its name."""

import re
import struct
import zlib
from collections.abc import Iterator
from itertools import islice
from typing import Final

import attrs

PNG: Final = "image/png"
JPEG: Final = "image/jpeg"
GIF: Final = "image/gif"
WEBP: Final = "image/webp"
PDF: Final = "application/pdf"
NAMES: Final = {PNG: "PNG", JPEG: "JPEG", GIF: "GIF", WEBP: "WebP", PDF: "PDF"}

_JPEG_SEGMENTS_MAX: Final = 1_000
_START_OF_FRAME: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_WITHOUT_LENGTH: Final = frozenset({0x01, *range(0xD0, 0xD9)})
_INFLATED_BYTES_MAX: Final = 16_777_216
_STREAM_BYTES_MAX: Final = 1_048_576
_STREAMS_MAX: Final = 500
_COUNTED_MAX: Final = 10_000
"""Far more pages than any model takes."""
_HEAD_BYTES_MAX: Final = 600
"""From the type of an object stream to its content."""
_STREAM: Final = re.compile(rb"[^>]{0,500}>>\s{0,20}stream\r?\n")
_FILL: Final = re.compile(rb"\xff+")
"""Bytes before a marker of a JPEG; the last one is part of it."""
_PAGE: Final = re.compile(rb"/Type\s*/Page(?![a-zA-Z])")


@attrs.frozen(kw_only=True)
class Sniffed:
    """A type that models can see, and its size as a picture or in pages, if that is known."""

    media_type: str
    width: int | None = None
    height: int | None = None
    pages: int | None = None


def sniffed(data: bytes) -> Sniffed | None:
    """Return what a file is; None: nothing that models can see."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return _image(PNG, _png(data))
    if data.startswith(b"\xff\xd8\xff"):
        return _image(JPEG, _jpeg(data))
    if data.startswith((b"GIF87a", b"GIF89a")):
        return _image(GIF, _unpacked("<HH", data, 6))
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return _image(WEBP, _webp(data))
    if data.startswith(b"%PDF-"):
        return Sniffed(media_type=PDF, pages=_pages(data))
    return None


def _pages(data: bytes) -> int | None:
    """Return the number of pages; None if it is hidden, as in an encrypted file.

    Newer files compress the objects that describe their pages.
    """
    count = _count_of(data)
    left = _INFLATED_BYTES_MAX
    for packed in _object_streams(data):
        try:
            objects = zlib.decompressobj().decompress(packed, max(left, 1))
        except zlib.error:
            continue
        left -= len(objects)
        count += _count_of(objects)
        if left <= 0:
            return None
    return count or None


def _count_of(objects: bytes) -> int:
    return sum(1 for _ in islice(_PAGE.finditer(objects), _COUNTED_MAX))


def _object_streams(data: bytes) -> Iterator[bytes]:
    """Yield the beginning of what follows the heads of object streams; a bounded number."""
    place = 0
    for _ in range(_STREAMS_MAX):
        place = data.find(b"/ObjStm", place) + 1
        if not place:
            return
        head = _STREAM.match(data, place, place + _HEAD_BYTES_MAX)
        if head is not None:
            yield data[head.end() : head.end() + _STREAM_BYTES_MAX]


def _image(media_type: str, size: tuple[int, ...] | None) -> Sniffed:
    width, height = size if size is not None else (None, None)
    return Sniffed(media_type=media_type, width=width, height=height)


def _unpacked(form: str, data: bytes, place: int) -> tuple[int, ...] | None:
    if len(data) < place + struct.calcsize(form):
        return None
    return struct.unpack_from(form, data, place)


def _png(data: bytes) -> tuple[int, ...] | None:
    return _unpacked(">II", data, 16) if data[12:16] == b"IHDR" else None


def _jpeg(data: bytes) -> tuple[int, ...] | None:
    """Return the size in the first frame's header."""
    place = 2
    for _ in range(_JPEG_SEGMENTS_MAX):
        if (fill := _FILL.match(data, place)) is not None:
            place = fill.end() - 1
        if data[place : place + 1] != b"\xff" or place + 1 >= len(data):
            return None
        marker = data[place + 1]
        if marker in _START_OF_FRAME:
            found = _unpacked(">HH", data, place + 5)
            return None if found is None else (found[1], found[0])
        length = (2,) if marker in _WITHOUT_LENGTH else _unpacked(">H", data, place + 2)
        if length is None or length[0] < 2:  # noqa: PLR2004 -- it counts its own bytes
            return None
        place += 2 if marker in _WITHOUT_LENGTH else 2 + length[0]
    return None


def _webp(data: bytes) -> tuple[int, ...] | None:
    match data[12:16]:
        case b"VP8 ":
            found = _unpacked("<HH", data, 26)
            return None if found is None else (found[0] & 0x3FFF, found[1] & 0x3FFF)
        case b"VP8L":
            bits = _unpacked("<I", data, 21)
            if bits is None:
                return None
            return (bits[0] & 0x3FFF) + 1, (bits[0] >> 14 & 0x3FFF) + 1
        case b"VP8X" if len(data) >= 30:  # noqa: PLR2004 -- the end of its header
            size = (data[24:27], data[27:30])
            return tuple(int.from_bytes(each, "little") + 1 for each in size)
        case _:
            return None
