"""Text from jobs, models and the database, made harmless for a terminal and a reader.

A model's text may contain escape sequences that move the cursor or write the clipboard, marks that
reverse the reading order, and invisible characters. All of them become visible: `⟦U+202E⟧`.
"""

import re
import unicodedata
from collections.abc import Callable
from typing import Final

TAB: Final = "    "
MARKS_MAX: Final = 6
"""Marks without a cell of their own, per letter: stacks of them paint over other lines, and without
a bound a text of a single cell could have any length. Burmese needs five."""

_MARKS: Final = frozenset({"Mn", "Me", "Mc"})
# Characters that join the letter before although Unicode does not call them marks: the vowels and
# finals of Hangul, skin colours.
_JOINING: Final = frozenset(
    map(chr, (*range(0x1160, 0x1200), *range(0xD7B0, 0xD800), *range(0x1F3FB, 0x1F400)))
)
_NOT_PRINTED: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_BLANK: Final = frozenset(
    # Blank, or only changing the look of the letter before, although Unicode calls them letters,
    # marks or symbols: fillers of Hangul and Braille, selectors, the joiner of graphemes.
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
) | {chr(code) for code in (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))}
_LINE_END: Final = re.compile(r"\r\n|\n")
# The glue of emoji: without the joiner and the selector the same pictures are visible.
_EMOJI_GLUE: Final = re.compile(
    r"(?<=[\u2190-\u2bff\u3030-\u3299\U0001f000-\U0001faff])[\ufe0e\ufe0f\u200d]+"
)


def safe(text: str, *, newline: str = " ") -> str:
    r"""Return text that shows all its characters and has no effect on a terminal.

    `newline` stands for each line break: a space for one line, "\n" to keep the lines. Idempotent.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _LINE_END.sub("\n", text).replace("\t", TAB)
    return newline.join(_visible(line) for line in text.split("\n"))


def unglued(text: str) -> str:
    """Return text without the glue of emoji: the same pictures are visible."""
    return _EMOJI_GLUE.sub("", text)


def escaped(text: str) -> str:
    r"""Return a JSON document of the same value with escapes for everything that `safe` would mark.

    As JSON writes it: `\u202e`. Inside JSON only strings can contain it.
    """
    return "\n".join(_marked(line, _json_escape) for line in text.split("\n"))


def _visible(line: str) -> str:
    return _marked(unglued(line), lambda char: f"⟦U+{ord(char):04X}⟧")


def _json_escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _marked(line: str, mark: Callable[[str], str]) -> str:
    """Return a line with a mark for each invisible character."""
    if line.isascii() and line.isprintable():
        return line
    shown: list[str] = []
    marks = 0
    for char in line:
        category = unicodedata.category(char)
        marks = marks + 1 if category in _MARKS or char in _JOINING else 0
        is_hidden = marks > MARKS_MAX or category in _NOT_PRINTED or char in _BLANK
        shown.append(mark(char) if is_hidden else char)
    return "".join(shown)
