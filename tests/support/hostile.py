"""Text that a terminal would obey, or a reader misread, and how to see whether any got through."""

import json
import re
import unicodedata
from typing import Any, Final

PIECES: Final = {
    "clear the screen": "\x1b[2J",
    "colours": "\x1b[31m",
    "write the clipboard": "\x1b]52;c;aGk=\x07",
    "a link": "\x1b]8;;http://evil.test\x1b\\approve\x1b]8;;\x1b\\",
    "a title": "\x1b]0;title\x9c",
    "C1": "\x9b2J\x85\x90\x9d",
    "go back": "abc\b\b\b\r",
    "bells and tabs": "\a\v\f\t\x7f\x00"[:-1],
    "right to left": "\u202etxt.exe\u202c \u2066x\u2069\u061c",
    "nobody sees": "a\u200bb\u200d\u2060\ufeff\u00ad\u3164",
    "other line ends": "one\u2028two\u2029three",
}
HOSTILE: Final = (
    "\x1b[2J\x1b]52;c;aGk=\x07\x1b]8;;u\x1b\\\x9b2J\b\r\x7f\u202ex\u2066\u200b\ufeff\u2028"
)
"""Enough for a name: short, on one line as far as \\n goes."""
LINES: Final = "".join(PIECES.values()) + f"\n$ {HOSTILE}\n"
"""As a model writes it: all of them."""

_SGR: Final = re.compile("\x1b\\[[0-9;]*m")
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Zl", "Zp"})


def treacherous(text: str, *, has_color: bool = False) -> list[str]:
    """Find characters that act on a terminal or are invisible; colours only where asked."""
    shown = _SGR.sub("", text) if has_color else text
    return [
        f"{char!r} in {shown[max(0, at - 40) : at + 10]!r}"
        for at, char in enumerate(shown)
        if unicodedata.category(char) in _INVISIBLE and char != "\n"
    ]


def documents(text: str) -> list[Any]:
    """The JSON documents of an output, one a line or one in all."""
    try:
        return [json.loads(text)]
    except ValueError:
        return [json.loads(line) for line in text.splitlines()]
