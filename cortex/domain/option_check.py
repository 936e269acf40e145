"""Checks of the options with which a program or a job submits jobs."""

from datetime import UTC, datetime, timedelta
from typing import Final

from cortex.domain.errors import UsageError
from cortex.domain.limits import number_of
from cortex.domain.policy import NAME_MAX
from cortex.domain.redaction import storable

TAGS_MAX: Final = 20
EARLIEST: Final = datetime(1, 1, 2, tzinfo=UTC)
LATEST: Final = datetime(9999, 12, 30, tzinfo=UTC)
"""As the database has it: instants that every time zone can show."""


def check_text(name: str, value: object, most: int) -> None:
    """Raise `UsageError` for what is neither None nor text of 1 to `most` characters."""
    if value is None:
        return
    if not isinstance(value, str) or not 1 <= len(value) <= most or storable(value) != value:
        raise UsageError(f"{name} {value!r:.80} is not text of 1 to {most} characters")


def check_whole(name: str, value: object, low: int, high: int, *, is_optional: bool = True) -> None:
    """Raise `UsageError` for what is neither None nor a whole number within these.

    None is refused, too, unless it `is_optional`.
    """
    if value is None and is_optional:
        return
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise UsageError(f"{name} {value!r:.80} is not a whole number from {low} to {high}")


def check_delay(value: object, most_s: float) -> None:
    """Raise `UsageError` for what is neither None nor a number of seconds up to `most_s`."""
    if value is None:
        return
    seconds = number_of(value)
    if seconds is None or not 0 <= seconds <= most_s:
        shown = repr(value)[:80] if seconds is None else f"{seconds:g}"
        raise UsageError(f"delay {shown} is not 0 to {most_s:.0f} seconds")


def checked_seconds(value: object, what: str, *, low_s: float, high_s: float) -> float:
    """Return a time in seconds, given in seconds or as a timedelta.

    Raises `UsageError` that names `what` for anything else, and beyond these bounds.
    """
    seconds = number_of(value.total_seconds() if isinstance(value, timedelta) else value)
    if seconds is None:
        raise UsageError(f"{what} is {value!r:.60}, not seconds or a timedelta")
    if not low_s <= seconds <= high_s:
        raise UsageError(f"{what} {seconds:g} s is not from {low_s:g} to {high_s:.0f} s")
    return seconds


def check_tags(tags: object) -> None:
    """Raise `UsageError` for what is no tuple of a few words."""
    if not isinstance(tags, tuple) or len(tags) > TAGS_MAX:
        raise UsageError(f"tags {tags!r:.80} are not up to {TAGS_MAX} words in a list")
    for tag in tags:
        check_text("tag", tag, NAME_MAX)


def can_show(instant: datetime) -> bool:
    """Return whether the database and every time zone can show an instant."""
    return EARLIEST <= instant <= LATEST


def check_instant(name: str, value: object) -> None:
    """Raise `UsageError` for what is neither None nor an instant that all can show."""
    if value is None:
        return
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise UsageError(
            f"{name} {value!r:.80} is not an instant with a time zone",
            hint="such as datetime.now(UTC) + timedelta(hours=1)",
        )
    if not can_show(value):
        raise UsageError(f"{name} {value} is not an instant of the years 1 to 9999")
