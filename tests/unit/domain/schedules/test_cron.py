"""When cron expressions fire. The expected instants were worked out by hand from calendars and
the published changes of each zone; none was computed by the code that is judged."""

from datetime import UTC, datetime
from itertools import islice

import pytest

from cortex.domain.schedules.cron import Cron, CronError, jitter, local_time

# what | cron | zone | after, in UTC | the next instants, in UTC
CASES = """
plain: each minute                | * * * * *        | UTC | 2026-01-01T00:00:00 | 2026-01-01T00:01 2026-01-01T00:02
plain: strictly after             | 0 3 * * *        | UTC | 2026-01-01T03:00:00 | 2026-01-02T03:00
plain: a second before            | 0 3 * * *        | UTC | 2026-01-01T02:59:59 | 2026-01-01T03:00
plain: within the minute          | 0 3 * * *        | UTC | 2026-01-01T03:00:01 | 2026-01-02T03:00
plain: steps                      | */25 * * * *     | UTC | 2026-01-01T00:00:00 | 2026-01-01T00:25 2026-01-01T00:50 2026-01-01T01:00
plain: a list and a range         | 0,30 8-9 * * *   | UTC | 2026-01-01T08:10:00 | 2026-01-01T08:30 2026-01-01T09:00 2026-01-01T09:30 2026-01-02T08:00
plain: a start and a step         | 5/20 6 * * *     | UTC | 2026-01-01T00:00:00 | 2026-01-01T06:05 2026-01-01T06:25 2026-01-01T06:45
plain: working days               | 0 9 * * MON-FRI  | UTC | 2026-01-02T09:00:00 | 2026-01-05T09:00 2026-01-06T09:00
plain: Sunday is 0                | 0 9 * * 0        | UTC | 2026-01-01T00:00:00 | 2026-01-04T09:00
plain: Sunday is 7                | 0 9 * * 7        | UTC | 2026-01-01T00:00:00 | 2026-01-04T09:00
plain: day or weekday             | 0 0 13 * FRI     | UTC | 2026-02-10T00:00:00 | 2026-02-13T00:00 2026-02-20T00:00 2026-02-27T00:00 2026-03-06T00:00
plain: day and weekday with a star | 0 0 */2 * MON   | UTC | 2026-06-01T00:00:00 | 2026-06-15T00:00 2026-06-29T00:00
plain: a zone of a quarter hour   | 0 6 * * *        | Asia/Kathmandu | 2026-01-01T00:00:00 | 2026-01-01T00:15 2026-01-02T00:15
plain: a zone a day ahead         | 0 0 1 1 *        | Pacific/Kiritimati | 2025-12-30T00:00:00 | 2025-12-31T10:00
plain: a zone far behind          | 0 0 1 1 *        | Pacific/Pago_Pago | 2025-12-30T00:00:00 | 2026-01-01T11:00

month: the 31st only where there is one | 0 0 31 * * | UTC | 2026-03-31T00:00:00 | 2026-05-31T00:00 2026-07-31T00:00 2026-08-31T00:00
month: the 30th leaves February out     | 0 0 30 * * | UTC | 2026-01-30T00:00:00 | 2026-03-30T00:00
month: last day                   | 0 0 L * *        | UTC | 2026-01-31T00:00:00 | 2026-02-28T00:00 2026-03-31T00:00 2026-04-30T00:00
month: last day of a leap February | 0 0 L 2 *       | UTC | 2027-03-01T00:00:00 | 2028-02-29T00:00 2029-02-28T00:00
month: last weekday, a Friday     | 0 18 LW * *      | UTC | 2026-01-01T00:00:00 | 2026-01-30T18:00 2026-02-27T18:00 2026-03-31T18:00
month: last Friday                | 0 18 * * 5L      | UTC | 2026-01-01T00:00:00 | 2026-01-30T18:00 2026-02-27T18:00
month: first Monday               | 0 8 * * MON#1    | UTC | 2026-01-01T00:00:00 | 2026-01-05T08:00 2026-02-02T08:00
month: fifth Monday               | 0 8 * * MON#5    | UTC | 2026-01-01T00:00:00 | 2026-03-30T08:00 2026-06-29T08:00 2026-08-31T08:00
month: two names                  | 0 0 1 JAN,JUL *  | UTC | 2026-01-01T00:00:00 | 2026-07-01T00:00 2027-01-01T00:00
month: last day by local time     | 0 0 L * *        | America/New_York | 2026-02-28T05:00:00 | 2026-03-31T04:00

leap: 29 February                 | 0 0 29 2 *       | UTC | 2026-01-01T00:00:00 | 2028-02-29T00:00 2032-02-29T00:00
leap: 29 February after 2096      | 0 0 29 2 *       | UTC | 2096-03-01T00:00:00 | 2104-02-29T00:00
leap: 2000 was one                | 0 0 29 2 *       | UTC | 1999-01-01T00:00:00 | 2000-02-29T00:00
leap: 29 February on a Sunday     | 0 0 29 2 */7     | UTC | 2026-01-01T00:00:00 | 2032-02-29T00:00 2060-02-29T00:00
leap: five Mondays in February    | 0 0 * 2 MON#5    | UTC | 2026-01-01T00:00:00 | 2044-02-29T00:00
leap: no leap second in 2016      | * * * * *        | UTC | 2016-12-31T23:58:30 | 2016-12-31T23:59 2017-01-01T00:00 2017-01-01T00:01

year: change                      | 0 0 * * *        | UTC | 2026-12-30T12:00:00 | 2026-12-31T00:00 2027-01-01T00:00
year: change by local time        | 0 0 1 1 *        | Europe/Berlin | 2026-06-01T00:00:00 | 2026-12-31T23:00
year: the last minute             | 59 23 31 12 *    | America/New_York | 2026-01-01T04:59:00 | 2027-01-01T04:59
year: each quarter hour over it   | */15 * * * *     | Asia/Kolkata | 2026-12-31T18:00:00 | 2026-12-31T18:15 2026-12-31T18:30 2026-12-31T18:45

gap Berlin: a time within it      | 30 2 * * *       | Europe/Berlin | 2026-03-28T00:00:00 | 2026-03-28T01:30 2026-03-29T01:00 2026-03-30T00:30
gap Berlin: its first minute      | 0 2 * * *        | Europe/Berlin | 2026-03-28T12:00:00 | 2026-03-29T01:00 2026-03-30T00:00
gap Berlin: two times within, once | 0,30 2 * * *    | Europe/Berlin | 2026-03-28T12:00:00 | 2026-03-29T01:00 2026-03-30T00:00 2026-03-30T00:30
gap Berlin: within and after      | 30 2,3 * * *     | Europe/Berlin | 2026-03-28T12:00:00 | 2026-03-29T01:00 2026-03-29T01:30 2026-03-30T00:30
gap Berlin: meets a time after it | 0 2,3 * * *      | Europe/Berlin | 2026-03-28T12:00:00 | 2026-03-29T01:00 2026-03-30T00:00 2026-03-30T01:00
gap Berlin: only on that day      | 15 2 29 3 *      | Europe/Berlin | 2026-01-01T00:00:00 | 2026-03-29T01:00 2027-03-29T00:15
gap Berlin: before it             | 59 1 * * *       | Europe/Berlin | 2026-03-28T12:00:00 | 2026-03-29T00:59 2026-03-29T23:59
gap Berlin: after it              | 0 3 * * *        | Europe/Berlin | 2026-03-28T12:00:00 | 2026-03-29T01:00 2026-03-30T01:00
gap Berlin: half-hourly goes on   | */30 * * * *     | Europe/Berlin | 2026-03-29T00:15:00 | 2026-03-29T00:30 2026-03-29T01:00 2026-03-29T01:30
gap Berlin: each second hour has a shorter pause | 0 */2 * * * | Europe/Berlin | 2026-03-28T22:30:00 | 2026-03-28T23:00 2026-03-29T02:00 2026-03-29T04:00
gap Berlin: began within it, in UTC | 30 2 * * *     | Europe/Berlin | 2026-03-29T01:00:00 | 2026-03-30T00:30
gap New York: a time within it    | 30 2 * * *       | America/New_York | 2026-03-07T12:00:00 | 2026-03-08T07:00 2026-03-09T06:30
gap New York: hourly              | 0 * * * *        | America/New_York | 2026-03-08T05:30:00 | 2026-03-08T06:00 2026-03-08T07:00 2026-03-08T08:00
gap Sydney: a time within it      | 15 2 * * *       | Australia/Sydney | 2026-10-03T00:00:00 | 2026-10-03T16:00 2026-10-04T15:15
gap Lord Howe: half an hour       | 15 2 * * *       | Australia/Lord_Howe | 2026-10-03T00:00:00 | 2026-10-03T15:30 2026-10-04T15:15
gap Lord Howe: after it           | 45 2 * * *       | Australia/Lord_Howe | 2026-10-03T00:00:00 | 2026-10-03T15:45 2026-10-04T15:45
gap at midnight, Havana           | 0 0 * * *        | America/Havana | 2026-03-07T12:00:00 | 2026-03-08T05:00 2026-03-09T04:00
gap at midnight, Sao Paulo 2018   | 30 0 * * *       | America/Sao_Paulo | 2018-11-03T12:00:00 | 2018-11-04T03:00 2018-11-05T02:30
gap at midnight: quarter-hourly   | */15 * 4 11 *    | America/Sao_Paulo | 2018-11-03T12:00:00 | 2018-11-04T03:00 2018-11-04T03:15
gap of a day, Apia 2011           | 0 12 * * *       | Pacific/Apia | 2011-12-29T12:00:00 | 2011-12-29T22:00 2011-12-30T10:00 2011-12-30T22:00

fold Berlin: a time within it, once | 30 2 * * *     | Europe/Berlin | 2026-10-24T12:00:00 | 2026-10-25T00:30 2026-10-26T01:30
fold Berlin: two times, once each | 0,30 2 * * *     | Europe/Berlin | 2026-10-24T12:00:00 | 2026-10-25T00:00 2026-10-25T00:30 2026-10-26T01:00
fold Berlin: asked in its second hour | 30 2 * * *   | Europe/Berlin | 2026-10-25T01:10:00 | 2026-10-26T01:30
fold Berlin: asked between the hours | 45 2 * * *    | Europe/Berlin | 2026-10-25T00:50:00 | 2026-10-26T01:45
fold Berlin: after it             | 0 3 * * *        | Europe/Berlin | 2026-10-24T12:00:00 | 2026-10-25T02:00 2026-10-26T02:00
fold Berlin: half-hourly in both  | */30 * * * *     | Europe/Berlin | 2026-10-24T23:45:00 | 2026-10-25T00:00 2026-10-25T00:30 2026-10-25T01:00 2026-10-25T01:30 2026-10-25T02:00
fold Berlin: hourly in both       | 0 * * * *        | Europe/Berlin | 2026-10-24T23:30:00 | 2026-10-25T00:00 2026-10-25T01:00 2026-10-25T02:00
fold Berlin: each minute of an hour, twice | */30 2 * * * | Europe/Berlin | 2026-10-24T12:00:00 | 2026-10-25T00:00 2026-10-25T00:30 2026-10-25T01:00 2026-10-25T01:30 2026-10-26T01:00
fold New York: a time within it   | 30 1 * * *       | America/New_York | 2026-10-31T12:00:00 | 2026-11-01T05:30 2026-11-02T06:30
fold New York: hourly in both     | 0 * * * *        | America/New_York | 2026-11-01T04:30:00 | 2026-11-01T05:00 2026-11-01T06:00 2026-11-01T07:00
fold Sydney: a time within it     | 30 2 * * *       | Australia/Sydney | 2026-04-04T00:00:00 | 2026-04-04T15:30 2026-04-05T16:30
fold Lord Howe: half an hour      | 45 1 * * *       | Australia/Lord_Howe | 2026-04-04T00:00:00 | 2026-04-04T14:45 2026-04-05T15:15
fold at midnight, Havana          | 15 0 * * *       | America/Havana | 2026-10-31T12:00:00 | 2026-11-01T04:15 2026-11-02T05:15

zone change: Caracas 2016, half an hour forward | 45 2 * * * | America/Caracas | 2016-04-30T12:00:00 | 2016-05-01T07:00 2016-05-02T06:45
zone change: Pyongyang 2018       | 45 23 * * *      | Asia/Pyongyang | 2018-05-03T18:00:00 | 2018-05-04T15:00 2018-05-05T14:45
zone change: Istanbul stays in summer time from 2016 | 0 9 * * * | Europe/Istanbul | 2016-11-06T12:00:00 | 2016-11-07T06:00
zone change: Sao Paulo without summer time from 2019 | 0 9 * * * | America/Sao_Paulo | 2019-11-03T12:30:00 | 2019-11-04T12:00
zone change: Moscow 2014, an hour back | 30 1 * * *  | Europe/Moscow | 2014-10-25T12:00:00 | 2014-10-25T21:30 2014-10-26T22:30
"""


def _cases() -> list[object]:
    rows = [line for line in CASES.splitlines() if line]
    return [
        pytest.param(*(part.strip() for part in rest), id=what.strip())
        for what, *rest in (row.split("|") for row in rows)
    ]


@pytest.mark.parametrize(("expression", "zone", "after", "expected"), _cases())
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
    ("expression", "zone", "field", "message", "hint"),
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
def test_what_cannot_fire_is_refused(
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
