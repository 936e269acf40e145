"""The arguments of a call, one row per value, so that a person can read each of them.

Nothing is left out or hidden: invisible characters are made visible and counted.
"""

import json
import re
from typing import Any, Final

import attrs

from cortex.domain.argument_brief import leaves
from cortex.domain.canonical import Path, canonical, field_of
from cortex.domain.safe import safe

LONG_CHARS: Final = 400
LONG_LINES: Final = 8

BLANKS_MIN: Final = 24
"""Deeper than most text is indented."""

_BLANK: Final = r"[ \t\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]"
_BLANKS: Final = re.compile(
    rf"(?P<lines>(?:{_BLANK}*\n){{4,}})|{_BLANK}{{{BLANKS_MIN},}}|\A{_BLANK}+|{_BLANK}+\Z"
)
_BLANKS_IN_JSON: Final = re.compile(rf"(?:{_BLANK}|\\[ntr]){{{BLANKS_MIN},}}")
_MARK: Final = re.compile("⟦U\\+[0-9A-F]{4,6}⟧")


@attrs.frozen(kw_only=True)
class ArgumentRow:
    """One value, or an empty list or object; safe to display."""

    field: str
    """The path of the value: `order.lines[0].price`."""
    value: str
    """Text keeps its line breaks, with runs of blanks marked; other values are JSON."""
    is_text: bool
    hidden_count: int
    """Number of invisible characters in the value or its name; each is shown as `⟦U+202E⟧`."""

    @property
    def is_long(self) -> bool:
        """Whether it needs more room than other rows."""
        return len(self.value) > LONG_CHARS or self.value.count("\n") >= LONG_LINES


def argument_rows(arguments: Any) -> list[ArgumentRow]:
    """Return every value of plain JSON in its original order."""
    return [_row(path, value) for path, value in leaves(arguments, ())]


def hidden_count(text: str) -> int:
    """Return the number of invisible characters in a text."""
    return len(_MARK.findall(safe(text, newline="\n"))) - len(_MARK.findall(text))


def with_marked_blanks(text: str) -> str:
    """Return text in which runs of blanks push nothing out of sight and trailing blanks show.

    A run of blanks becomes one mark with its length.
    """

    def mark(found: re.Match[str]) -> str:
        if lines := found["lines"]:
            return f"\n⟦{lines.count(chr(10)) - 1:,} blank lines⟧\n"
        return _mark(len(found[0]))

    return _BLANKS.sub(mark, text)


def marked_json(value: Any) -> str:
    """Return canonical JSON on one line, safe to display; runs of blanks become a mark."""
    return safe(_BLANKS_IN_JSON.sub(_mark_in_json, canonical(value)))


def _mark_in_json(found: re.Match[str]) -> str:
    return _mark(len(re.sub(r"\\.", " ", found[0])))


def _mark(count: int) -> str:
    return f"⟦{count:,} {'blank' if count == 1 else 'blanks'}⟧"


def visible_json(value: Any) -> str:
    r"""Return JSON for people to edit: invisible characters are written as `\u202e`."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return "\n".join(
        line if safe(line) == line else "".join(map(_escaped, line)) for line in text.split("\n")
    )


def _escaped(char: str) -> str:
    """Return a character, or the JSON escape of an invisible one."""
    if safe(char) == char:
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _row(path: Path, value: Any) -> ArgumentRow:
    is_text = isinstance(value, str)
    text = value if is_text else canonical(value)
    return ArgumentRow(
        field=field_of(path),
        value=safe(with_marked_blanks(text) if is_text else text, newline="\n"),
        is_text=is_text,
        hidden_count=hidden_count(text) + sum(hidden_count(str(step)) for step in path),
    )
