"""Retry-After: both forms, and whatever else servers send."""

from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex.agent.models.anthropic_errors import ERRORS
from cortex.domain.retry import (
    FALLBACK_S,
    LONGEST_S,
    parse_http_date,
    parse_retry_after,
    retry_after_of,
    should_retry_of,
)

NOW = datetime(1994, 11, 6, 8, 49, 0, tzinfo=UTC)
LIMIT = "anthropic-ratelimit"
RESETS = {
    f"{LIMIT}-requests-reset": "1994-11-06T08:49:30Z",
    f"{LIMIT}-input-tokens-reset": "1994-11-06T09:50:30+01:00",
}
REMAINING = [name.replace("reset", "remaining") for name in RESETS]


@pytest.mark.parametrize(
    "value, seconds",
    [
        ("0", 0),
        ("20", 20),
        (" 20 ", 20),
        ("1.5", 1.5),
        ("007", 7),
        ("3600", 3600),
        ("86400", 86_400),
        # the three forms of an HTTP date
        ("Sun, 06 Nov 1994 08:49:37 GMT", 37),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 37),
        ("Sun Nov  6 08:49:37 1994", 37),
        # a date that has passed is no pause
        ("Sun, 06 Nov 1994 08:48:00 GMT", 0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
    ],
)
def test_retry_after_is_read_in_both_forms(value: str, seconds: float) -> None:
    assert parse_retry_after(value, now=NOW) == seconds


@pytest.mark.parametrize(
    "value",
    [
        "",
        "-1",
        "-0",
        "+5",
        "soon",
        "nan",
        "inf",
        "1e3",
        "0x10",
        "1_000",
        "\u0663",  # three, in Arabic digits
        "20 seconds",
        "20, 30",
        "86401",
        "9" * 5_000,
        "Sun, 06 Nov 2094 08:49:37 GMT",
        "Sun, 99 Nov 1994 99:49:37 GMT",
        "Sun, 06 Nov 99999999 08:49:37 GMT",
        "\0",
    ],
)
def test_nonsense_is_a_minute(value: str) -> None:
    assert parse_retry_after(value, now=NOW) == FALLBACK_S == 60


def test_a_date_without_a_clock_is_a_minute() -> None:
    assert parse_retry_after("Sun, 06 Nov 1994 08:49:37 GMT", now=None) == FALLBACK_S
    assert parse_retry_after("5", now=None) == 5


def test_a_date_counts_from_the_date_of_its_own_response() -> None:
    skewed = NOW + timedelta(hours=1)
    headers = httpx2.Headers(
        {"Retry-After": "Sun, 06 Nov 1994 08:49:37 GMT", "Date": "Sun, 06 Nov 1994 08:49:30 GMT"}
    )
    assert retry_after_of(headers, now=skewed) == 7
    del headers["Date"]
    assert retry_after_of(headers, now=NOW) == 37
    headers["Date"] = "today"
    assert retry_after_of(headers, now=NOW) == 37
    assert retry_after_of(httpx2.Headers(), now=NOW) is None


@pytest.mark.parametrize(
    "headers, status, seconds",
    [
        ({"retry-after-ms": "1500", "retry-after": "60"}, 429, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "60"}, 429, 60),
        ({"retry-after-ms": "250"}, 503, 0.25),
        ({"retry-after-ms": "9" * 18}, 503, FALLBACK_S),
        # of the limits that are used up, the last one; else the first one to be reset
        ({**RESETS, f"{LIMIT}-requests-remaining": "0"}, 429, 30),
        ({**RESETS, **dict.fromkeys(REMAINING, "0")}, 429, 90),
        (RESETS, 429, 30),
        ({f"{LIMIT}-unified-reset": str(int(NOW.timestamp()) + 12)}, 429, 12),
        ({**RESETS, "retry-after": "5"}, 429, 5),
        (RESETS, 529, None),
        (RESETS, None, None),
        ({f"{LIMIT}-requests-reset": "1994-11-06T08:00:00Z"}, 429, 0),
        ({f"{LIMIT}-requests-reset": "tomorrow"}, 429, None),
        ({f"{LIMIT}-requests-reset": "9" * 400}, 429, None),
        ({f"{LIMIT}-requests-reset": "1999-11-06T08:00:00Z"}, 429, FALLBACK_S),
    ],
)
def test_other_headers_ask_for_a_pause(
    headers: dict[str, str], status: int | None, seconds: float | None
) -> None:
    """As the SDK of Anthropic raises them in job code."""
    given = httpx2.Headers(headers)
    pause_s = retry_after_of(given, now=NOW)
    error = Exception()
    error.response = httpx2.Response(status or 200, headers=given)  # type: ignore[attr-defined]
    assert (ERRORS.pause_s(error, NOW) if pause_s is None else pause_s) == seconds


def test_should_retry_header_is_read() -> None:
    for value, meaning in (("true", True), ("false", False), (" False ", False), ("maybe", None)):
        assert should_retry_of(httpx2.Headers({"X-Should-Retry": value})) is meaning
    assert should_retry_of(httpx2.Headers()) is None


@given(st.text())
def test_every_text_gives_a_bounded_pause(value: str) -> None:
    assert 0 <= parse_retry_after(value, now=NOW) <= LONGEST_S


@given(st.integers(0, int(LONGEST_S)), st.integers(-12, 12))
def test_dates_and_seconds_agree(seconds: int, hours: int) -> None:
    due = (NOW + timedelta(seconds=seconds)).astimezone(timezone(timedelta(hours=hours)))
    assert parse_retry_after(format_datetime(due), now=NOW) == seconds
    assert parse_retry_after(str(seconds), now=NOW) == seconds
    assert parse_http_date(format_datetime(due)) == due
