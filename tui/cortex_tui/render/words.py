"""Formats that only the screens need besides `cortex.view.phrases`: ticking or rounded."""

from typing import Final

from cortex.domain.errors import CortexError
from cortex.domain.safe import safe
from cortex.view.phrases import count, localised

_MINUTE_S: Final = 60
_HOUR_S: Final = 3_600
_DAY_S: Final = 86_400


def failed(error: CortexError, *, with_hint: bool = False) -> str:
    """Return the message of an error, safe, with local times like all times on a terminal."""
    hint = f" · {error.hint}" if with_hint and error.hint else ""
    return safe(localised(f"{error.message}{hint}"))


def countdown(seconds: float) -> str:
    """Format a countdown: 04:12, 23:10:00, 3d 04:12."""
    whole = max(0, int(seconds))
    days, rest = divmod(whole, _DAY_S)
    hours, rest = divmod(rest, _HOUR_S)
    minutes, left = divmod(rest, _MINUTE_S)
    if days:
        return f"{days}d {hours:02}:{minutes:02}"
    return f"{hours:02}:{minutes:02}:{left:02}" if hours else f"{minutes:02}:{left:02}"


def span(seconds: float) -> str:
    """Format a duration: 84ms, 3.2s, 02:31."""
    if seconds < 1:
        return f"{max(0.0, seconds) * 1000:.0f}ms"
    return f"{seconds:.1f}s" if seconds < _MINUTE_S else countdown(seconds)


def about(number: int) -> str:
    """Format an approximate number with three digits."""
    if number < 1_000:  # noqa: PLR2004 -- no need to round
        return f"≈ {number}"
    digits = 10 ** (len(str(number)) - 3)
    return f"≈ {number // digits * digits:,}"


def short(number: int) -> str:
    """Format a number below a million in at most four cells, for a column."""
    return f"{number // 1_000}k" if 10_000 <= number < 1_000_000 else count(number)  # noqa: PLR2004


def tokens(read: int, written: int) -> str:
    """Format the tokens of a call: 1.2k→340."""
    return f"{count(read)}→{count(written)}"
