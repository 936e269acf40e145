"""Which schedules are refused, and what a tick does about one that is due."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cortex.domain.schedules.schedule import MISSED_COUNTED, Schedule, ScheduleError

THREE = datetime(2026, 1, 1, 3, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def schedule(**given: Any) -> Schedule:
    return Schedule.make(**{"name": "s", "cron": "0 3 * * *", "type": "work", **given})


@pytest.mark.parametrize(
    "given, field, message",
    [
        ({"name": "a b"}, "name", "'a b' does not match"),
        ({"cron": "0 0 31 2 *"}, "cron", "'0 0 31 2 *' never fires"),
        ({"tz": "Mars/Base"}, "tz", "'Mars/Base' is not a time zone"),
        ({"backfill": "6 hours"}, "backfill", "'6 hours' is not a time such as 90s"),
        ({"backfill": -1}, "backfill", "-1 is outside 0 to 366d"),
        ({"backfill": "400d"}, "backfill", "'400d' is outside 0 to 366d"),
        ({"backfill": True}, "backfill", "True is not a time"),
        ({"backfill": 1.5}, "backfill", "1.5 is not a time"),
        ({"overlap": "wait"}, "overlap", "'wait' is none of skip, queue, cancel_previous"),
        ({"jitter": "2h"}, "jitter", "'2h' is outside 0 to 1h"),
        ({"jitter": 90, "cron": "* * * * *"}, "jitter", "90 s is longer than the 60 s between"),
        ({"type": None}, "job", "is missing"),
        ({"type": "run_agent"}, "agent", "is missing"),
        ({"agent": "a"}, "agent", "'a' is of no use to job type 'work'"),
        ({"tenant": ""}, "tenant", "does not have 1 to 100"),
        ({"arguments": {"x": float("nan")}}, "arguments", "cannot be stored"),
        ({"arguments": {"x": b"a"}}, "arguments", "cannot be stored"),
        ({"arguments": {"x": "[" * 10_000, "y": "a" * 300_000}}, "arguments", "have 310,0"),
        ({"instant_as": "1st"}, "instant_as", "'1st' is not the name"),
        ({"instant_as": "x", "arguments": {"x": 1}}, "instant_as", "'x' is given"),
    ],
)
def test_a_schedule_that_cannot_be_used_is_refused(
    given: dict[str, Any], field: str, message: str
) -> None:
    with pytest.raises(ScheduleError) as refused:
        schedule(**given)
    assert refused.value.field == field
    assert message in refused.value.message


def test_spans_and_seconds_are_the_same() -> None:
    assert schedule(backfill="6h", jitter="60s") == schedule(backfill=21_600, jitter=60)


def test_an_agent_runs_by_its_own_job_type() -> None:
    assert schedule(type=None, agent="researcher").type == "run_agent"


def test_a_job_gets_its_instant() -> None:
    made = schedule(arguments={"a": 1}, instant_as="at")
    assert made.arguments_at(THREE) == {"a": 1, "at": "2026-01-01T03:00:00+00:00"}


def test_schedule_never_fires_early() -> None:
    plan = schedule().plan(THREE, now=THREE - timedelta(microseconds=1), limit=9)
    assert (plan.fire, plan.missed, plan.next_at) == ((), None, THREE)


def test_an_instant_fires_when_it_is_due() -> None:
    plan = schedule().plan(THREE, now=THREE, limit=9)
    assert (plan.fire, plan.missed, plan.next_at) == ((THREE,), None, THREE + DAY)


@pytest.mark.parametrize("late_s, fires", [(60, True), (61, False)])
def test_without_backfill_there_is_a_minute_of_grace(late_s: int, fires: bool) -> None:
    plan = schedule().plan(THREE, now=THREE + timedelta(seconds=late_s), limit=9)
    assert bool(plan.fire) == fires
    assert (plan.missed is None) == fires
    assert plan.next_at == THREE + DAY


def test_the_backfill_period_is_filled_oldest_first() -> None:
    hourly = schedule(cron="0 * * * *", backfill="6h")
    plan = hourly.plan(THREE, now=THREE + 9.5 * HOUR, limit=99)
    assert plan.fire == tuple(THREE + n * HOUR for n in (4, 5, 6, 7, 8, 9))
    assert plan.missed is not None
    assert (plan.missed.first, plan.missed.last) == (THREE, THREE + 3 * HOUR)
    assert (plan.missed.count, plan.missed.is_more) == (4, False)
    assert plan.next_at == THREE + 10 * HOUR


def test_plan_fires_up_to_its_limit_and_keeps_the_rest() -> None:
    plan = schedule(cron="* * * * *", backfill="6h").plan(THREE, now=THREE + 2 * HOUR, limit=20)
    assert plan.fire == tuple(THREE + n * MINUTE for n in range(20))
    assert plan.next_at == THREE + 20 * MINUTE


def test_after_years_without_a_pod_missed_instants_are_counted_up_to_a_limit() -> None:
    now = THREE + 3000 * DAY
    plan = schedule(cron="* * * * *").plan(THREE, now=now, limit=20)
    assert plan.missed is not None
    assert plan.missed.is_more
    assert plan.missed.count == MISSED_COUNTED + 1
    assert plan.fire == (now - MINUTE, now)


def test_jitter_delays_each_instant_by_its_own_time() -> None:
    spread = schedule(cron="0 * * * *", jitter=1800)
    due = spread.due_at(THREE)
    assert THREE < due < THREE + timedelta(minutes=30)
    assert due - THREE != spread.due_at(THREE + HOUR) - THREE - HOUR
    assert spread.plan(THREE, now=due - timedelta(milliseconds=1), limit=9).fire == ()
    assert spread.plan(THREE, now=due, limit=9).fire == (THREE,)


def test_lateness_counts_from_the_jittered_time() -> None:
    spread = schedule(cron="0 * * * *", jitter=1800)
    due = spread.due_at(THREE)
    on_time, late = (due + timedelta(seconds=s) for s in (60, 61))
    assert spread.plan(THREE, now=on_time, limit=9).fire == (THREE,)
    missed = spread.plan(THREE, now=late, limit=9).missed
    assert missed is not None
    assert missed.count == 1


def test_a_schedule_that_ends_has_no_next_instant() -> None:
    rare = schedule(cron="0 0 29 2 */7")
    assert rare.next_after(datetime(9999, 1, 1, tzinfo=UTC)) is None
