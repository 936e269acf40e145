"""The last gate before the terminal: no text can carry a control byte through it.

What screens show was made safe before, visibly. This one holds for every widget there is, ours and
Textual's: an escape sequence in a text would act on the terminal that shows it.
"""

import unicodedata
from functools import lru_cache
from typing import Final

from rich.cells import get_character_cell_size
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

_FORBIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_ASCII: Final = {
    ord(sign): plain
    for signs, plain in (
        ("…≈", "~"),
        ("·", "."),
        ("—\N{EN DASH}─━▔", "-"),
        ("│┃⋮▏", "|"),
        ("┌┐└┘├┤┬┴┼", "+"),
        ("⟦", "["),
        ("⟧", "]"),
        ("→▸", ">"),
        ("←◂", "<"),
        ("↑▲", "^"),
        ("↓▼▾", "v"),
        ("▁", "_"),
        ("▂▃▄", "="),
        ("█▎▍▌▋▊▉▅▆▇▓", "#"),
        ("░▒", ":"),
        ("○", "."),
        ("●", ">"),
        ("◆", "@"),
        ("↻", "r"),
        ("✓", "+"),
        ("✗\N{MULTIPLICATION SIGN}", "x"),
        ("⊘", "-"),
    )
    for sign in signs
}


class SafeFilter(LineFilter):
    """Drops what acts on a terminal; with `is_ascii` only seven bits are left."""

    def __init__(self, *, is_ascii: bool) -> None:
        super().__init__()
        self.is_ascii = is_ascii

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002 -- Textual's
        """Return the segments, each as wide as before; the same list if all may pass."""
        if all(self._may_pass(segment) for segment in segments):
            return segments
        return [
            segment
            if self._may_pass(segment)
            else Segment(clean(segment.text, is_ascii=self.is_ascii), segment.style)
            for segment in segments
        ]

    def _may_pass(self, segment: Segment) -> bool:
        text, _, control = segment
        return bool(control) or (text.isprintable() and (not self.is_ascii or text.isascii()))


@lru_cache(8192)
def clean(text: str, *, is_ascii: bool) -> str:
    """Return the text without control and format characters, which take no cell either."""
    if not text.isprintable():
        text = "".join(c for c in text if unicodedata.category(c) not in _FORBIDDEN)
    if not is_ascii:
        return text
    return "".join(
        c if c.isascii() else "?" * get_character_cell_size(c) for c in text.translate(_ASCII)
    )
