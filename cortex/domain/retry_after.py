"""How long a server asks to be left alone: the Retry-After header in both of its forms."""

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, Protocol

FALLBACK_S: Final = 60.0
"""For a header that makes no sense: the server did ask for a pause."""
LONGEST_S: Final = 86_400.0
"""More than a day is no pause but a mistake."""

_SECONDS: Final = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18})?")


class Headers(Protocol):
    """Headers of a response, whatever HTTP library they come from."""

    def get(self, name: str, /) -> str | None:
        """The value of a header, or None."""
        ...


def retry_after_of(headers: Headers, *, now: datetime | None) -> float | None:
    """Return the seconds that a response asks for, None if it has no Retry-After header.

    A date counts from the response's own Date header, so that no clock need agree with the
    server's; without one from `now`, which must have a time zone.
    """
    value = headers.get("retry-after")
    if value is None:
        return None
    sent = headers.get("date")
    return parse_retry_after(value, now=(parse_http_date(sent) if sent else None) or now)


def parse_retry_after(value: str, *, now: datetime | None) -> float:
    """Return the seconds that a Retry-After header asks for; `FALLBACK_S` if it is nonsense.

    Nonsense is what is no number and no date, negative, or longer than `LONGEST_S`; also a date
    with no `now` to count from. A date that has passed is no pause: 0. Nothing caps the rest: how
    long a job will wait is its policy's to say.
    """
    text = value.strip()
    if _SECONDS.fullmatch(text):
        asked_s = float(text)
    else:
        due = parse_http_date(text)
        if due is None or now is None:
            return FALLBACK_S
        asked_s = max(0.0, (due - now).total_seconds())
    return asked_s if asked_s <= LONGEST_S else FALLBACK_S


def parse_http_date(value: str) -> datetime | None:
    """Return the moment that an HTTP date names, in any of its three forms; None if it is none."""
    try:
        moment = parsedate_to_datetime(value)
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    except (ValueError, TypeError, IndexError, OverflowError):  # all of them seen from fuzzing it
        return None
