"""Schedules with real pods: one job per instant through kills, outages and races of pods."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import Cortex
from tests.support.eventually import eventually
from tests.support.pods import Pods, until_pods
from tests.support.records.rows import assert_one_truth, move_clock
from tests.support.servers.postgres import sql

APP = ("--app", "tests.support.apps.schedule_app")
HOURLY = "0 * * * *"
HOUR = timedelta(hours=1)
FLAGGED_WITHIN_S = 10.0


@pytest.fixture
def scheduled(database: str, tmp_path: Path) -> Iterator[Pods]:
    """Pods whose code declares a schedule for each hour."""
    sql(database, "DELETE FROM cortex.schedule")
    pods = Pods(database, tmp_path, {"SCHEDULE": HOURLY})
    yield pods
    pods.close()


def now(dsn: str) -> datetime:
    at: datetime = sql(dsn, "SELECT cortex.now() AS at")[0]["at"]
    return at.astimezone(UTC)


def to_past_the_hour(dsn: str, *, hours: int = 0) -> datetime:
    """Move the clock to half past some later hour; return that hour."""
    ahead = now(dsn).replace(minute=30, second=0, microsecond=0) + (1 + hours) * HOUR
    real: datetime = sql(dsn, "SELECT statement_timestamp() AS at")[0]["at"]
    move_clock(dsn, (ahead - real).total_seconds())
    return ahead.replace(minute=0)


def jobs(dsn: str) -> list[dict[str, Any]]:
    rows = sql(
        dsn,
        "SELECT i.instant, i.outcome, j.status::text, j.result FROM cortex.schedule_instant i "
        "LEFT JOIN cortex.job j ON j.id = i.job_id ORDER BY i.instant",
    )
    return [dict(row) for row in rows]


def until_all_ended(dsn: str, count: int) -> None:
    def ended() -> bool:
        rows = jobs(dsn)
        return len(rows) == count and all(row["status"] == "COMPLETED" for row in rows)

    eventually(ended, what=f"{count} instants with completed jobs")


def assert_one_job_each(dsn: str, instants: list[datetime]) -> None:
    """Each instant has one completed job, which knew it; there is no other job."""
    rows = jobs(dsn)
    assert [row["instant"] for row in rows] == instants
    assert [row["result"] for row in rows] == [f'"{each.isoformat()}"' for each in instants]
    assert sql(dsn, "SELECT count(*) AS n FROM cortex.job")[0]["n"] == len(instants)
    assert_one_truth(dsn)


def test_an_outage_is_filled_once_by_two_pods_that_start_together(scheduled: Pods) -> None:
    dsn = scheduled.dsn
    to_past_the_hour(dsn)
    scheduled.start(*APP).stop()
    last = to_past_the_hour(dsn, hours=5)
    pair = [scheduled.launch(*APP) for _ in range(2)]
    for each in pair:
        each.until_ready()
    until_all_ended(dsn, 6)
    assert_one_job_each(dsn, [last - n * HOUR for n in range(5, -1, -1)])


def test_pods_and_ticks_at_once_fire_each_instant_once(scheduled: Pods) -> None:
    dsn = scheduled.dsn
    to_past_the_hour(dsn)
    scheduled.start(*APP).stop()
    last = to_past_the_hour(dsn, hours=7)
    ticks = [scheduled.launch_tick(app=APP[1]) for _ in range(2)]
    pair = [scheduled.launch(*APP) for _ in range(2)]
    for tick in ticks:
        assert tick.exit_code(within_s=60) == 0
    for pod in pair:
        pod.until_ready()
    until_all_ended(dsn, 8)
    assert_one_job_each(dsn, [last - n * HOUR for n in range(7, -1, -1)])


def test_a_cluster_without_a_pod_fires_by_ticks_alone(scheduled: Pods, tmp_path: Path) -> None:
    dsn = scheduled.dsn
    to_past_the_hour(dsn)
    scheduled.start(*APP).stop()
    last = to_past_the_hour(dsn)
    first, second = (scheduled.tick(app=APP[1]) for _ in range(2))
    assert [each.runners["schedules"]["items"] for each in (first, second)] == [1, 0]
    (row,) = Cortex(tmp_path, dsn)("schedules", "ls", "--json").document["schedules"]
    assert row["state"] == "ok", "the next tick runs its jobs"
    assert_one_job_each(dsn, [last])


@pytest.mark.smoke("Each instant of a schedule submits one job", case="after_fire:1")
@pytest.mark.parametrize("point", ["before_fire:2", "after_fire:1"])
def test_a_pod_killed_while_it_fires_leaves_one_job_per_instant(
    scheduled: Pods, point: str
) -> None:
    dsn = scheduled.dsn
    to_past_the_hour(dsn)
    scheduled.start(*APP).stop()
    first = scheduled.launch(*APP, crash_at=point)
    first.until_ready()
    last = to_past_the_hour(dsn, hours=2)
    sql(dsn, "SELECT pg_notify('cortex_breaker', 'a hint')")
    eventually(lambda: not first.is_alive, what="the pod is killed at the point")
    scheduled.start(*APP)
    until_all_ended(dsn, 3)
    assert_one_job_each(dsn, [last - 2 * HOUR, last - HOUR, last])


def test_a_schedule_without_a_pod_or_code_is_flagged_soon(scheduled: Pods, tmp_path: Path) -> None:
    cortex = Cortex(tmp_path, scheduled.dsn)

    def state() -> str:
        (row,) = cortex("schedules", "ls", "--json").document["schedules"]
        return str(row["state"])

    pod = scheduled.start(*APP)
    assert state() == "ok"
    refused = cortex("schedules", "rm", "digest", "--reason", "x", "--yes")
    assert (refused.code, "declared by code of a living pod" in refused.err) == (5, True)
    pod.kill()
    began = time.monotonic()
    eventually(lambda: state() == "unserved", what="it is flagged", within_s=FLAGGED_WITHIN_S)
    assert time.monotonic() - began < FLAGGED_WITHIN_S
    del scheduled.environment["SCHEDULE"]
    scheduled.start(*APP)
    # Its takeover holds the dead pod's lock for a moment, as if that pod were at work.
    until_pods(scheduled.dsn, DEAD=1)
    eventually(lambda: state() == "undeclared", what="no code declares it")
    found = {each["check"]: each for each in cortex("doctor", "--json").document["checks"]}
    assert (found["schedules"]["grade"], found["schedules"]["found"]) == (
        "FAIL",
        "digest: no living pod's code declares it",
    )
    assert cortex("schedules", "rm", "digest", "--reason", "x", "--yes").code == 0


def test_an_applied_schedule_wakes_the_pods(scheduled: Pods, tmp_path: Path) -> None:
    dsn = scheduled.dsn
    del scheduled.environment["SCHEDULE"]
    scheduled.start(*APP)
    real: datetime = sql(dsn, "SELECT statement_timestamp() AS at")[0]["at"]
    target = real.replace(second=0, microsecond=0) + timedelta(minutes=5)
    move_clock(dsn, (target - real).total_seconds() - 5)
    cortex = Cortex(tmp_path, dsn)
    text = 'name: each-minute\ncron: "* * * * *"\njob: digest\ninstant_as: scheduled_at\n'
    assert cortex("schedules", "apply", "-", stdin=text).code == 0
    until_all_ended(dsn, 1)
    assert_one_job_each(dsn, [target])
