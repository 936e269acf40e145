"""Small files that are what they say, made by hand."""

import struct
import zlib


def png(width: int, height: int, *, color: int = 0) -> bytes:
    """Return an image of one color."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = (b"\0" + bytes([color, 0, 0]) * width) * height
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def pdf(pages: int, *, packed: bool = False) -> bytes:
    """Return what a PDF of so many pages has of them; `packed`: in an object stream."""
    objects = b"<< /Type /Pages >>" + b"<< /Type /Page /Parent 2 0 R >>" * pages
    if packed:
        stream = zlib.compress(objects)
        head = b"1 0 obj << /Type /ObjStm /N 3 /First 10 /Length %d >> stream\n" % len(stream)
        objects = head + stream + b"\nendstream endobj"
    return b"%PDF-1.7\n" + objects + b"\n%%EOF"
