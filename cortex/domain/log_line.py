"""Log lines of jobs: their levels, their sizes, and what a line says."""

import math
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, Protocol

import orjson

from cortex.domain.errors import InvalidValueError
from cortex.domain.hot import hot
from cortex.domain.job import Claim, Lease
from cortex.domain.key_shapes import is_secret_name, masked, masked_value
from cortex.domain.redaction import begun_in, redact, storable

MESSAGE_CHARS_MAX: Final = 8_000
"""Longest message of a line; tracebacks are shorter."""
FIELDS_CHARS_MAX: Final = 4_000
"""Longest JSON of a line's fields."""
FIELDS_MAX: Final = 32
FIELD_CHARS_MAX: Final = 1_000
"""Longest text of one field."""
NAME_CHARS_MAX: Final = 200
"""Longest name of a logger or a field."""
LOOKAHEAD_CHARS: Final = 512
"""Read beyond a cut, so that a secret of a known form that stands there is seen as a whole."""


class Level(IntEnum):
    """As `logging` numbers them; other numbers count as the next lower one."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40
    CRITICAL = 50

    @classmethod
    def of_number(cls, number: int) -> "Level":
        """Return the level for any number of `logging`."""
        if (found := _BY_NUMBER.get(number)) is not None:
            return found
        known = cls.DEBUG
        for each in cls:
            if each <= number:
                known = each
        return known

    @classmethod
    def of_word(cls, word: str) -> "Level":
        """Return the level for the name of one. Raises `InvalidValueError`."""
        found = _WORDS.get(str(word).lower())
        if found is None:
            raise InvalidValueError(
                f"log level {word!r:.40} is unknown", hint=f"levels: {', '.join(LEVELS)}"
            )
        return found

    @property
    def word(self) -> str:
        """Its name, as people write it."""
        return self.name.lower()


_BY_NUMBER: Final = {each.value: each for each in Level}
LEVELS: Final = tuple(each.word for each in Level)
_WORDS: Final = {each.word: each for each in Level} | {
    "warn": Level.WARNING,
    "exception": Level.ERROR,
    "err": Level.ERROR,
    "fatal": Level.CRITICAL,
    "msg": Level.INFO,
}
"""Names of levels, and of the methods of loggers."""


def level_of_method(name: str) -> Level:
    """Return the level of a logger's method, such as `exception`; INFO if it is unknown."""
    return _WORDS.get(name, Level.INFO)


@hot(kw_only=True)
class LogLine:
    """A line that code of a job has written, as it is kept."""

    lease: Lease
    """The attempt that wrote it, whoever owns the job now."""
    job_type: str
    traceparent: str | None
    number: int
    """Order among the lines of one process; with the attempt it identifies the line."""
    written_at: float
    """By the clock of its buffer."""
    level: Level
    step: str | None
    """Key of the step that wrote it; None: the handler itself."""
    source: str | None
    """The logger's name, or the stream."""
    message: str
    fields: str | None
    """JSON text of an object."""
    dropped: int | None = None
    """Lines that are missing here; this one says why."""


LINE_COST: Final = 200
"""Characters that a line counts besides its text."""


def size_of(line: LogLine) -> int:
    """Return the characters that a line counts while it waits."""
    return LINE_COST + len(line.message) + (0 if line.fields is None else len(line.fields))


class JobLog(Protocol):
    """Takes the lines that jobs of one pod write, from any thread; never waits and never raises."""

    def add(
        self,
        claim: Claim,
        level: Level,
        message: str,
        *,
        step: str | None,
        source: str | None,
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep a line of an attempt, or count it as dropped."""

    def write(self, claim: Claim, text: str, *, step: str | None, stream: str, thread: int) -> None:
        """Keep what an attempt prints, by lines; the rest of one that is not ended waits."""


def kept_text(text: str, *, limit: int = MESSAGE_CHARS_MAX, length: int | None = None) -> str:
    """Return text that can be stored: without secrets and cut; a cut shows the original length.

    No secret is cut in half, and the cost does not grow with the text. `length`: of the original,
    if the text is only its beginning.
    """
    length = len(text) if length is None else length
    if length <= limit:
        clean = storable(masked(redact(text)))
        return clean if len(clean) <= limit else clean[:limit]
    begun = text[: limit + LOOKAHEAD_CHARS]
    begun = storable(masked(redact(begun[: len(begun) - begun_in(begun)])))
    return f"{begun[:limit]}… ({length:,} characters)"


def without_long_secrets(text: str) -> str:
    """Return text that is about to be split into lines, without secrets of several lines.

    Such as a private key, of which no line would be recognised.
    """
    return masked(redact(text)) if "\n" in text[:-1] else text


def kept_fields(fields: Mapping[str, Any] | None) -> str | None:
    """Return fields as JSON text that can be stored; None for none. Never raises.

    Values without a JSON form become text. What is too long is cut, what is too many is counted.
    """
    if not fields:
        return None
    kept: dict[str, Any] = {}
    size = 0
    for name, value in fields.items():
        shown = _plain(masked_value({name: value})[name] if is_secret_name(str(name)) else value)
        size += len(name) + (len(shown) if isinstance(shown, str) else 16)
        if len(kept) == FIELDS_MAX or size > FIELDS_CHARS_MAX:
            kept["…"] = f"{len(fields) - len(kept)} more fields"
            break
        kept[kept_text(str(name), limit=NAME_CHARS_MAX)] = shown
    return orjson.dumps(kept).decode()


def _plain(value: Any) -> Any:
    """Return a value of JSON: numbers and booleans as they are, everything else as clean text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, int) and -_INT_MAX < value < _INT_MAX:
        return int(value)
    if isinstance(value, dict | list | tuple):
        text = _json(masked_value(value))
        if text is not None and len(text) <= FIELD_CHARS_MAX and kept_text(text) == text:
            return orjson.loads(text)
    return kept_text(value if isinstance(value, str) else shown(value), limit=FIELD_CHARS_MAX)


def _json(value: Any) -> str | None:
    """Return JSON text that Postgres can store; None if there is none."""
    try:
        text = orjson.dumps(value, default=shown).decode()
    except (TypeError, ValueError, RecursionError):
        return None
    return None if "\\u0000" in text else text


_INT_MAX: Final = 2**53


def shown(value: object) -> str:
    """Return a value as text, whatever its own code does."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 -- code of the application
        return f"<{type(value).__name__} that cannot be shown>"
