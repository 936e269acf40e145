"""A breaker that a person holds open, in words."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from cortex.domain.phrases import time_of_day


def is_held(row: Mapping[str, Any], now: datetime) -> bool:
    """Tell whether a person holds it open, and no end of that has passed."""
    until = row["open_until"]
    return row["forced_by"] is not None and (until is None or until > now)


def held_told(row: Mapping[str, Any], now: datetime) -> str:
    """Say who holds it open, until when and why: `held open by ana until 12:30 "deploy"`.

    `row` has `forced_by`, `forced_reason` and `open_until`; text of people, to be made safe.
    """
    by, until = row["forced_by"], row["open_until"]
    if until is not None and until <= now:
        return f"was held open by {by} until {time_of_day(until, now)}: the next call tries it"
    when = "" if until is None else f" until {time_of_day(until, now)}"
    return f'held open by {by}{when} "{row["forced_reason"]}"'
