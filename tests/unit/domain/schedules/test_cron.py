"""When cron expressions fire, and which are refused.

The instants of the table were worked out by hand, from calendars and the published changes of each
zone; none was computed by the code that is judged.
"""

from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cortex.domain.schedules.cron import Cron, CronError, jitter, local_time

CASES = Path(__file__).with_name("cron_cases.txt")


def _cases() -> list[object]:
    rows = [line for line in CASES.read_text().splitlines() if line and line[0] != "#"]
    return [
        pytest.param(*(part.strip() for part in rest), id=what.strip())
        for what, *rest in (row.split("|") for row in rows)
    ]


@pytest.mark.parametrize("expression, zone, after, expected", _cases())
def test_an_expression_fires_at_these_instants(
    expression: str, zone: str, after: str, expected: str
) -> None:
    wanted = [datetime.fromisoformat(each).replace(tzinfo=UTC) for each in expected.split()]
    start = datetime.fromisoformat(after).replace(tzinfo=UTC)
    found = Cron.parse(expression, zone).after(start)
    assert list(islice(found, len(wanted))) == wanted


def test_the_table_has_as_many_cases_as_it_promises() -> None:
    assert len(_cases()) >= 60


@pytest.mark.parametrize(
    "expression, zone, field, message, hint",
    [
        ("0 0 31 2 *", "UTC", "cron", "'0 0 31 2 *' never fires", "no month has that day"),
        ("0 0 31 4,6,9,11 *", "UTC", "cron", "never fires", "no month has that day"),
        ("0 0 30 2 */2", "UTC", "cron", "never fires", "no month has that day"),
        ("60 * * * *", "UTC", "cron", "minute '60' is not valid", "0 to 59"),
        ("* 24 * * *", "UTC", "cron", "hour '24' is not valid", "0 to 23"),
        ("* * 0 * *", "UTC", "cron", "day of month '0' is not valid", "1 to 31"),
        ("* * * 13 *", "UTC", "cron", "month '13' is not valid", "1 to 12"),
        ("* * * * 8", "UTC", "cron", "day of week '8' is not valid", "0 to 7"),
        ("* * * * MON#6", "UTC", "cron", "day of week 'MON#6' is not valid", "0 to 7"),
        ("*/0 * * * *", "UTC", "cron", "minute '*/0' is not valid", "0 to 59"),
        ("30-10 * * * *", "UTC", "cron", "minute '30-10' is not valid", "0 to 59"),
        ("* * * *", "UTC", "cron", "has 4 of 5 fields", "minute, hour"),
        ("0 * * * * *", "UTC", "cron", "has 6 of 5 fields", "minute, hour"),
        ("@daily", "UTC", "cron", "has 1 of 5 fields", "minute, hour"),
        ("", "UTC", "cron", "has 1 of 5 fields", "minute, hour"),
        ("1," * 120 + "1 * * * *", "UTC", "cron", "has 249 characters", "at most 200"),
        ("* * * * *", "Europe/Berln", "tz", "'Europe/Berln' is not a time zone", "Europe/Berlin"),
        ("* * * * *", "/etc/passwd", "tz", "'/etc/passwd' is not a time zone", "Europe/Berlin"),
        ("* * * * *", "../../etc", "tz", "is not a time zone", "UTC"),
        ("* * * * *", "Europe", "tz", "'Europe' is not a time zone", "did you mean"),
        ("* * * * *", "", "tz", "'' is not a time zone", "UTC"),
        ("* * * * *", "localtime", "tz", "'localtime' is not a time zone", ""),
        ("* * * * *", "a\0b", "tz", r"'a\x00b' is not a time zone", ""),
    ],
)
def test_invalid_cron_or_zone_is_refused_with_a_hint(
    expression: str, zone: str, field: str, message: str, hint: str
) -> None:
    with pytest.raises(CronError) as refused:
        Cron.parse(expression, zone)
    assert refused.value.field == field
    assert message in refused.value.message
    assert "\n" not in refused.value.message
    assert hint in refused.value.hint


def test_spaces_do_not_matter() -> None:
    assert Cron.parse("  0   3 * *  * ").expression == "0 3 * * *"


def test_jitter_depends_on_name_and_instant_alone() -> None:
    first, second = (datetime(2026, 1, day, 3, tzinfo=UTC) for day in (1, 2))
    delays = {jitter(name, at, 600) for name in ("a", "b") for at in (first, second)}
    assert len(delays) == 4
    assert all(0 <= each.total_seconds() < 600 for each in delays)
    assert jitter("a", first, 600) == jitter("a", local_time(first, "Europe/Berlin"), 600)
    assert not jitter("a", first, 0)


def test_jitter_spreads_over_its_whole_length() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    delays = [jitter(f"s{n}", at, 100).total_seconds() for n in range(1000)]
    assert min(delays) < 2
    assert max(delays) > 98
    assert 45 < sum(delays) / 1000 < 55


FIELD = st.text(alphabet="0123456789*/,-#LWMONJAFR?", min_size=1, max_size=9)


@settings(max_examples=400, deadline=None)
@given(fields=st.lists(FIELD, min_size=4, max_size=6))
def test_any_text_fires_in_order_or_is_refused(fields: list[str]) -> None:
    start = datetime(2026, 3, 28, 23, 30, tzinfo=UTC)
    try:
        cron = Cron.parse(" ".join(fields), "Europe/Berlin")
    except CronError:
        return
    found = list(islice(cron.after(start), 5))
    assert found == sorted(set(found))
    assert all(at > start and not at.second for at in found)


@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25"])
@pytest.mark.parametrize(
    "expression", ["30 2 * * *", "*/20 2 * * *", "30 * * * *", "15,45 1-3 * * *"]
)
def test_instants_do_not_depend_on_where_the_search_begins(expression: str, day: str) -> None:
    """After an outage it begins in the middle of a change of clocks."""
    cron = Cron.parse(expression, "Europe/Berlin")
    midnight = datetime.fromisoformat(day).replace(tzinfo=UTC)
    instants = list(islice(cron.after(midnight - timedelta(hours=3)), 40))
    for minutes in range(0, 300, 10):
        begin = midnight + timedelta(minutes=minutes)
        assert next(cron.after(begin)) == next(each for each in instants if each > begin)
