"""Times: local with their zone on terminals, UTC for everything else."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from cortex.domain.phrases import at_instant, clock_time, date_time, day_time

AT = datetime(2026, 11, 23, 13, 46, 55, 120_000, tzinfo=UTC)


@pytest.fixture(params=["UTC", "Europe/Berlin", "Asia/Kolkata"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def test_what_people_see_names_its_zone(zone: str) -> None:
    day, clock = {
        "UTC": ("13:46:55Z", "13:46:55.1Z"),
        "Europe/Berlin": ("14:46:55 CET", "14:46:55.1 CET"),
        "Asia/Kolkata": ("19:16:55 IST", "19:16:55.1 IST"),
    }[zone]
    assert (day_time(AT), clock_time(AT)) == (day, clock)
    assert date_time(AT) == at_instant(AT, is_tty=True) == f"2026-11-23 {day}"


@pytest.mark.usefixtures("zone")
def test_what_programs_read_is_utc() -> None:
    assert at_instant(AT, is_tty=False) == "2026-11-23T13:46:55.120Z"
