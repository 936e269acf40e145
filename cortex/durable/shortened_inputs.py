"""Inputs of steps that are too long for the record: each value keeps its beginning and a digest.

So two of them can be compared value by value, although neither is complete.
"""

import hashlib
import re
from typing import Any, Final

import orjson

_CUT: Final = re.compile(r"… \[([0-9,]+) bytes, digest ([0-9a-f]{8})\]\Z")
_LEAST_BYTES: Final = 80
"""The least room of one value: less would show nothing of it."""


def shortened(text: str, bytes_max: int) -> str:
    """Return an input, the JSON text of an object, in about `bytes_max` bytes.

    Short values stay whole; the others share the rest of the room.
    """
    values = orjson.loads(text)
    if not isinstance(values, dict) or len(values) * _LEAST_BYTES > bytes_max:
        return _cut(text.encode(), text, bytes_max)
    raw = {name: _dumped(value) for name, value in values.items()}
    left = bytes_max - 2 - sum(len(_dumped(name)) + 2 for name in raw)
    kept: dict[str, Any] = {}
    for count, name in enumerate(sorted(raw, key=lambda name: len(raw[name]))):
        share = max(_LEAST_BYTES, left // (len(raw) - count))
        value = values[name]
        if len(raw[name]) > share:
            shown = value if isinstance(value, str) else raw[name].decode()
            value = _cut(raw[name], shown, share)
        kept[name] = value
        left -= len(_dumped(value))
    return _dumped(kept).decode()


def same_value(one: Any, other: Any) -> bool:
    """Return whether two values of kept inputs are surely equal; either may have been cut."""
    if one == other and type(one) is type(other):
        return True
    marks = _mark(one), _mark(other)
    if marks == (None, None):
        return False
    return (marks[0] or _mark_of(_dumped(one))) == (marks[1] or _mark_of(_dumped(other)))


def _cut(raw: bytes, shown: str, bytes_max: int) -> str:
    size, digest = _mark_of(raw)
    end = f"… [{size} bytes, digest {digest}]"
    room = max(0, bytes_max - len(end.encode()) - 2)
    beginning = shown[:room]
    while len(dumped := _dumped(beginning)) - 2 > room:
        beginning = beginning[: len(beginning) * room // len(dumped)]
    return beginning + end


def _mark_of(raw: bytes) -> tuple[str, str]:
    return f"{len(raw):,}", hashlib.blake2b(raw, digest_size=4).hexdigest()


def _mark(value: Any) -> tuple[str, str] | None:
    found = _CUT.search(value) if isinstance(value, str) else None
    return None if found is None else (found[1], found[2])


def _dumped(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
