"""The properties of a stream: terminal or not, width, colours, characters."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Final, TextIO

import attrs

from cortex.domain.phrases import rfc3339
from cortex.view.phrases import at_instant, clock_time

WIDTH_DEFAULT: Final = 100
WIDTH_MIN: Final = 40

# Only the sixteen colours that every terminal theme defines.
_CODES: Final = {
    "dim": "2",
    "bold": "1",
    "pend": "2",
    "run": "36",
    "accent": "34",
    "appr": "1;35",
    "retry": "33",
    "done": "32",
    "fail": "31",
    "alarm": "1;31",
    "canc": "2",
    "warn": "33",
}

# One cell for one cell, so that aligned text stays aligned.
_ASCII: Final = str.maketrans(
    "…·—\N{EN DASH}─│⟦⟧→█▏▎▍▌▋▊▉░○●◆◔≠↻✓✗⊘",
    "~----|[]>########:.>@z/r+x-",
)
_DUMB: Final = frozenset({None, "", "dumb"})
"""Values of TERM for terminals without escape sequences, or with unknown abilities."""
_COERCED: Final = frozenset({"C.UTF-8", "C.utf8", "UTF-8"})
"""Python itself sets LC_CTYPE to these when the locale is C."""


@attrs.frozen(kw_only=True)
class Terminal:
    """A stream and its abilities."""

    stream: TextIO
    is_tty: bool
    has_color: bool
    is_ascii: bool
    moves_cursor: bool
    """Whether a line can be rewritten in place."""

    @property
    def width(self) -> int:
        """Cells per line now: a window may be resized."""
        return max(WIDTH_MIN, shutil.get_terminal_size((WIDTH_DEFAULT, 24)).columns)

    def paint(self, text: str, style: str) -> str:
        """Return styled text; unchanged on a stream without colours."""
        code = _CODES.get(style)
        return f"\x1b[{code}m{text}\x1b[0m" if code and self.has_color and text else text

    def clock(self, instant: datetime) -> str:
        """Return the local time of day on a terminal, else the exact instant in UTC."""
        return clock_time(instant) if self.is_tty else rfc3339(instant)

    def date(self, instant: datetime) -> str:
        """Return the local date and time on a terminal, else the exact instant in UTC."""
        return at_instant(instant, is_tty=self.is_tty)

    def plain(self, text: str) -> str:
        """Return text in characters that this stream can show."""
        return text.translate(_ASCII) if self.is_ascii else text

    def write(self, line: str, *, end: str = "\n") -> None:
        """Write one line; raises `BrokenPipeError` when the reader is gone."""
        print(self.plain(line), file=self.stream, end=end)

    def flush(self) -> None:
        self.stream.flush()


def terminal_of(stream: TextIO, *, color: str, environ: Mapping[str, str] = os.environ) -> Terminal:
    """Examine a stream; `color` is auto, always or never."""
    is_tty = stream.isatty()
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
    return Terminal(
        stream=stream,
        is_tty=is_tty,
        has_color=_has_color(color, is_tty=is_tty, environ=environ),
        is_ascii=_is_ascii(stream, environ),
        moves_cursor=is_tty and environ.get("TERM") not in _DUMB,
    )


def stdout_terminal(color: str) -> Terminal:
    return terminal_of(sys.stdout, color=color)


def stderr_terminal(arguments: Sequence[str] = ()) -> Terminal:
    """Return stderr, for messages; follows `--color` even if other arguments are wrong."""
    words = list(arguments)
    given = [word.removeprefix("--color=") for word in words if word.startswith("--color=")]
    given += [b for a, b in pairwise(words) if a == "--color"]
    return terminal_of(sys.stderr, color=given[-1] if given else "auto")


def _has_color(color: str, *, is_tty: bool, environ: Mapping[str, str]) -> bool:
    if color in {"always", "never"}:
        return color == "always"
    if environ.get("NO_COLOR") or environ.get("CORTEX_NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return is_tty and environ.get("TERM") not in _DUMB


def _is_ascii(stream: TextIO, environ: Mapping[str, str]) -> bool:
    encoding = (stream.encoding or "ascii").lower().replace("-", "")
    ctype = environ.get("LC_CTYPE", "")
    chosen = (environ.get("LC_ALL"), "" if ctype in _COERCED else ctype, environ.get("LANG"))
    locale = next((each for each in chosen if each), "")
    return encoding != "utf8" or locale in {"C", "POSIX"} or environ.get("TERM") == "linux"
