"""The last filter before the terminal: it removes every control byte from text.

Text is already escaped visibly where it is rendered. This filter covers every widget, including
Textual's own, because an escape sequence in text would control the operator's terminal.
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
        ("◔", "z"),
        ("≠", "/"),
    )
    for sign in signs
}


class SafeFilter(LineFilter):
    """Removes characters that control the terminal; `is_ascii` also removes all non-ASCII."""

    def __init__(self, *, is_ascii: bool) -> None:
        super().__init__()
        self.is_ascii = is_ascii

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002 -- Textual's
        """Return the segments at the same widths; the same list if nothing changes."""
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
    """Return the text without control and format characters, which occupy no cells."""
    if not text.isprintable():
        text = "".join(c for c in text if unicodedata.category(c) not in _FORBIDDEN)
    if not is_ascii:
        return text
    return "".join(
        c if c.isascii() else "?" * get_character_cell_size(c) for c in text.translate(_ASCII)
    )
