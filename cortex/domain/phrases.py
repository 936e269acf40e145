"""Values as text that is stored, sent or compared: short ids, spans, UTC instants, JSON."""

import re
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

import attrs

from cortex.domain.errors import UsageError

SHORT_ID_DIGITS: Final = 6
SPAN_MAX_S: Final = 100 * 365 * 86_400.0
"""There is nothing older; and the database's calendar is limited, too."""
_SPAN: Final = re.compile(r"([0-9]{1,20})([smhdw])")
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_DAY_S: Final = 86_400


def short_id(job_id: UUID) -> str:
    """Return the end of an id, which differs most: `…9f3a1c`; every command accepts it."""
    return f"…{job_id.hex[-SHORT_ID_DIGITS:]}"


def span(seconds: float) -> str:
    """Return a length of time: 84ms, 3.2s, 2m 31s, 5h 12m, 3d 4h."""
    seconds = max(0.0, seconds)
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 10:  # noqa: PLR2004 -- one digit before the point
        return f"{seconds:.1f}s"
    whole = int(seconds)
    if whole < _MINUTE_S:
        return f"{whole}s"
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S}m {whole % _MINUTE_S:02}s"
    if whole < _DAY_S:
        return f"{whole // _HOUR_S}h {whole % _HOUR_S // _MINUTE_S:02}m"
    return f"{whole // _DAY_S}d {whole % _DAY_S // _HOUR_S}h"


def parse_span(text: str) -> float:
    """Return the seconds of a span as people type it: 90s, 15m, 2h, 3d. Raises `UsageError`."""
    match = _SPAN.fullmatch(text.strip())
    seconds = int(match[1]) * _UNITS_S[match[2]] if match else None
    if seconds is None:
        raise UsageError(f"{text[:80]!r} is not a time such as 90s, 15m, 2h or 3d")
    if seconds > SPAN_MAX_S:
        raise UsageError(f"{text[:80]!r} is more than {SPAN_MAX_S / _DAY_S:,.0f}d")
    return float(seconds)


def rfc3339(instant: datetime) -> str:
    """Return an aware instant for machines, in UTC with milliseconds."""
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def utc_time(instant: datetime) -> str:
    """Return an instant for sentences that programs may read: 2026-11-23T13:46:55Z."""
    return f"{instant.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def to_plain(value: Any) -> Any:  # noqa: PLR0911 -- a table
    """Return a value in JSON's types: instants as RFC 3339, money as numbers."""
    match value:
        case datetime():
            return rfc3339(value)
        case UUID():
            return str(value)
        case Decimal():
            return float(value)
        case bytes():
            return value.hex()
        case Enum():
            return value.value
        case dict():
            return {str(key): to_plain(item) for key, item in value.items()}
        case list() | tuple():
            return [to_plain(item) for item in value]
        case _ if attrs.has(type(value)):
            return to_plain(attrs.asdict(value, recurse=False))
        case _:
            return value
