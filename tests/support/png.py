"""Makes a screenshot small: a palette of the colours that it has most of, and the best of zlib."""

import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import Final

COLOURS_MAX: Final = 256
GRAIN: Final = 8
"""Colours nearer than that are one: the edges of letters have hundreds."""
_HEAD: Final = b"\x89PNG\r\n\x1a\n"

Colour = tuple[int, ...]


def smaller(png: bytes) -> bytes:
    """Return a PNG of 8 bits a channel in 256 colours; what alpha it has is not looked at."""
    chunks = dict[bytes, bytes]()
    for kind, body in _chunks(png):
        chunks[kind] = chunks.get(kind, b"") + body
    width, height, depth, kind_of_colour = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert (depth, kind_of_colour) in {(8, 2), (8, 6)}
    size = 3 if kind_of_colour == 2 else 4
    rows = list(_rows(zlib.decompress(chunks[b"IDAT"]), width * size, size))
    pixels = [[tuple(row[at : at + 3]) for at in range(0, len(row), size)] for row in rows]
    palette = _palette(pixels)
    known: dict[Colour, int] = {}
    lines = b"".join(b"\0" + bytes(_index(each, palette, known) for each in row) for row in pixels)
    return _HEAD + b"".join(
        (
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", bytes(channel for colour in palette for channel in colour)),
            _chunk(b"IDAT", zlib.compress(lines, 9)),
            _chunk(b"IEND", b""),
        )
    )


def _palette(pixels: list[list[Colour]]) -> list[Colour]:
    """The commonest colours; of those that are one, the commonest stands for all."""
    chosen: dict[Colour, Colour] = {}
    for colour, _ in Counter(colour for row in pixels for colour in row).most_common():
        chosen.setdefault(tuple(channel // GRAIN for channel in colour), colour)
    return list(chosen.values())[:COLOURS_MAX]


def _index(colour: Colour, palette: list[Colour], known: dict[Colour, int]) -> int:
    if colour not in known:
        distances = [
            sum((a - b) ** 2 for a, b in zip(colour, each, strict=True)) for each in palette
        ]
        known[colour] = distances.index(min(distances))
    return known[colour]


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(_HEAD)
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        yield png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        at += length + 12


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _rows(raw: bytes, length: int, size: int) -> Iterator[bytearray]:
    """Undo the filter of each row."""
    above = bytearray(length)
    for start in range(0, len(raw), length + 1):
        how, row = raw[start], bytearray(raw[start + 1 : start + 1 + length])
        for at in range(length):
            left = row[at - size] if at >= size else 0
            corner = above[at - size] if at >= size else 0
            guess = (0, left, above[at], (left + above[at]) // 2, _paeth(left, above[at], corner))
            row[at] = (row[at] + guess[how]) & 255
        yield row
        above = row


def _paeth(left: int, up: int, corner: int) -> int:
    guess = left + up - corner
    return min((left, up, corner), key=lambda each: abs(guess - each))
