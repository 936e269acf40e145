"""Values as text for people: short and relative, local and rounded; and exact for programs."""

import json
import re
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final, Protocol

import orjson

from cortex.domain.phrases import rfc3339, to_plain
from cortex.domain.safe import safe
from cortex.domain.usage import Usage

_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_DAY_S: Final = 86_400
NOTHING: Final = "\N{EN DASH}"
TODAY: Final = timedelta(hours=20)
"""For instants further away the date is shown, too."""
_UTC_TIME: Final = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_THOUSAND: Final = 1_000
_MILLION: Final = 1_000_000


class ReadAt(Protocol):
    """A row with the database time at which it was read."""

    @property
    def now(self) -> datetime: ...


def since_s(row: ReadAt, instant: datetime) -> float:
    """Return the seconds from an instant to the row's `now`, both by the database's clock."""
    return (row.now - instant).total_seconds()


def age(seconds: float) -> str:
    """Return how long ago something was, by its largest unit: now, 3s, 2m, 5h, 3d."""
    whole = int(seconds)
    if whole < 1:
        return "now"
    for unit, seconds_each in (("d", _DAY_S), ("h", _HOUR_S), ("m", _MINUTE_S)):
        if whole >= seconds_each:
            return f"{whole // seconds_each}{unit}"
    return f"{whole}s"


def clock_time(instant: datetime) -> str:
    """Return the local time of day with its zone for people who watch, to a tenth of a second."""
    local = instant.astimezone()
    return f"{local:%H:%M:%S}.{local.microsecond // 100_000}{_zone(local)}"


def day_time(instant: datetime) -> str:
    """Return the local time of day with its zone, for people: 14:46:55 CET, or 13:46:55Z."""
    local = instant.astimezone()
    return f"{local:%H:%M:%S}{_zone(local)}"


def date_time(instant: datetime) -> str:
    """Return a local instant with its zone, for people: 2026-11-23 14:46:55 CET."""
    local = instant.astimezone()
    return f"{local:%Y-%m-%d %H:%M:%S}{_zone(local)}"


def localised(sentence: str) -> str:
    """Return a sentence of ours with the output of `utc_time` in local time, for a terminal."""
    return _UTC_TIME.sub(lambda match: date_time(datetime.fromisoformat(match[0])), sentence)


def at_instant(instant: datetime, *, is_tty: bool) -> str:
    """Return an instant for a page: local with its zone on a terminal, else in UTC."""
    return date_time(instant) if is_tty else rfc3339(instant)


def _zone(local: datetime) -> str:
    return f" {local:%Z}" if local.utcoffset() else "Z"


def time_of_day(instant: datetime, now: datetime) -> str:
    """Return the local time of day with its zone, for people, with the date unless it is clear."""
    local = instant.astimezone()
    day = "" if abs(now - instant) < TODAY else f"{local:%Y-%m-%d} "
    return f"{day}{local:%H:%M}{_zone(local)}"


def money(usd: Decimal | float | None) -> str:
    """Return dollars with as many digits as are useful."""
    if usd is None:
        return NOTHING
    amount = Decimal(str(usd))
    if not amount:
        return "$0"
    return f"${amount:,.2f}" if amount >= Decimal("0.995") else f"${amount:.4f}"


def count(number: float | None) -> str:
    """Return a count: 999, 1.2k, 3.4M."""
    if number is None:
        return NOTHING
    if number < _THOUSAND:
        return f"{number:g}"
    if number < _MILLION:
        return f"{number / _THOUSAND:.1f}k"
    return f"{number / _MILLION:.1f}M"


def size(number: float | None) -> str:
    """Return a number of bytes."""
    if number is None:
        return NOTHING
    kibi = 1024
    for unit in ("B", "kB", "MB", "GB"):
        if number < kibi:
            return f"{number:.1f} {unit}" if unit == "GB" else f"{number:.0f} {unit}"
        number /= kibi
    return f"{number:.1f} TB"


def tokens(usage: dict[str, Any]) -> str:
    """Return the tokens of a call: read and written."""
    used = Usage.known_part(usage)
    return f"{count(used.prompt_tokens)}→{count(used.output_tokens)}"


def exact(value: Any) -> str:
    """Return a value on one line, in full, for output to programs."""
    plain = to_plain(value)
    match plain:
        case None:
            return NOTHING
        case str():
            return safe(plain) or NOTHING
        case bool() | dict() | list():
            return safe(json_text(plain))
        case float():
            return f"{plain:g}"
        case _:
            return str(plain)


def json_text(plain: Any, *, is_indented: bool = False) -> str:
    """Return plain types as JSON; whole numbers may be of any length."""
    try:
        return orjson.dumps(plain, option=orjson.OPT_INDENT_2 if is_indented else 0).decode()
    except (
        TypeError
    ):  # arguments may contain numbers of more than 64 bits, which orjson does not write
        indent, separators = (2, None) if is_indented else (None, (",", ":"))
        return json.dumps(plain, ensure_ascii=False, indent=indent, separators=separators)
