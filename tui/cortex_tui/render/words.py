"""Values in words, short and relative."""

from decimal import Decimal
from typing import Final
from uuid import UUID

NOTHING: Final = "\N{EN DASH}"
ID_DIGITS: Final = 6

_MINUTE_S: Final = 60
_HOUR_S: Final = 3_600
_DAY_S: Final = 86_400


def short_id(which: UUID) -> str:
    """Return the end of an id, which differs most: every command takes it back."""
    return f"…{which.hex[-ID_DIGITS:]}"


def countdown(seconds: float) -> str:
    """Return a time to go that ticks evenly: 04:12, 23:10:00, 3d 04:12."""
    whole = max(0, int(seconds))
    days, rest = divmod(whole, _DAY_S)
    hours, rest = divmod(rest, _HOUR_S)
    minutes, left = divmod(rest, _MINUTE_S)
    if days:
        return f"{days}d {hours:02}:{minutes:02}"
    return f"{hours:02}:{minutes:02}:{left:02}" if hours else f"{minutes:02}:{left:02}"


def age(seconds: float) -> str:
    """Return how long something is past, by its largest unit: now, 3s, 2m, 5h, 3d."""
    whole = int(seconds)
    for unit, each_s in (("d", _DAY_S), ("h", _HOUR_S), ("m", _MINUTE_S), ("s", 1)):
        if whole >= each_s:
            return f"{whole // each_s}{unit}"
    return "now"


def span(seconds: float) -> str:
    """Return how long something took: 84ms, 3.2s, 02:31."""
    if seconds < 1:
        return f"{max(0.0, seconds) * 1000:.0f}ms"
    return f"{seconds:.1f}s" if seconds < _MINUTE_S else countdown(seconds)


def money(usd: Decimal) -> str:
    """Return dollars with as many digits as tell something."""
    if not usd:
        return "$0"
    return f"${usd:,.2f}" if usd >= Decimal("0.995") else f"${usd:.4f}"


def about(number: int) -> str:
    """Return a number that is not exact: three digits of it tell enough."""
    if number < 1_000:  # noqa: PLR2004 -- no need to round
        return f"≈ {number}"
    digits = 10 ** (len(str(number)) - 3)
    return f"≈ {number // digits * digits:,}"


def count(number: int) -> str:
    """Return a number of things: 999, 1.2k, 3.4M."""
    for unit, each in (("M", 1_000_000), ("k", 1_000)):
        if number >= each:
            return f"{number / each:.1f}{unit}"
    return str(number)


def tokens(read: int, written: int) -> str:
    """Return the tokens of a call: 1.2k→340."""
    return f"{count(read)}→{count(written)}"
