"""The runner of schedules: waits for the next instant, fires it once, and keeps its pace."""

from collections.abc import MutableMapping
from datetime import UTC, datetime, timedelta
from typing import Any

from cortex.actors.runner import IDLE, SOON_S, TickBudget, TickResult
from cortex.domain.schedules.schedule import Schedule
from cortex.postgres.bridge import Port
from cortex.runtime.maintenance.schedules import Schedules, declare
from cortex.store import pods
from cortex.store.background import schedules
from tests.support.holder import holding
from tests.support.records.factories import Bench, a_pod
from tests.support.records.faulty_port import FaultyPort
from tests.support.records.rows import job_count, seeded_random, stop_clock
from tests.support.servers.postgres import sql

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


async def apply(bench: Bench, dsn: str, **given: Any) -> None:
    sql(dsn, "DELETE FROM cortex.schedule")
    stop_clock(dsn, NOON)
    made = Schedule.make(**{"name": "s", "cron": "* * * * *", "type": "work", **given})
    await bench.port(schedules.apply, [made], by="ana", reason="")


async def tick(bench: Bench) -> TickResult:
    return await Schedules(bench.port, rng=bench.rng).tick(TickBudget())


async def test_a_tick_names_the_time_of_the_next_instant(bench: Bench, database: str) -> None:
    await apply(bench, database)
    stop_clock(database, NOON + timedelta(seconds=50))
    assert await tick(bench) == TickResult(next_s=10.0)
    stop_clock(database, NOON + MINUTE)
    assert await tick(bench) == TickResult(items=1, next_s=IDLE.cap_s)
    assert job_count(database, "type = 'work'") == 1


async def test_an_outage_is_filled_at_a_steady_pace(bench: Bench, database: str) -> None:
    await apply(bench, database, backfill="6h", overlap="queue")
    stop_clock(database, NOON + 30 * MINUTE)
    assert await tick(bench) == TickResult(items=20, next_s=SOON_S)
    assert await tick(bench) == TickResult(items=10, next_s=1.0)


async def test_a_schedule_that_is_just_changed_is_left_for_the_next_tick(
    bench: Bench, database: str
) -> None:
    await apply(bench, database)
    stop_clock(database, NOON + MINUTE)
    with holding(database, "SELECT name FROM cortex.schedule FOR UPDATE"):
        assert await tick(bench) == TickResult()
    assert (await tick(bench)).items == 1


async def test_a_problem_is_logged_once_while_it_lasts(
    bench: Bench, database: str, log_lines: list[MutableMapping[str, Any]]
) -> None:
    await apply(bench, database)
    sql(database, "UPDATE cortex.schedule SET zone = 'Mars/Base'")
    runner = Schedules(bench.port, rng=bench.rng)
    for minutes in (1, 2, 3):
        stop_clock(database, NOON + minutes * MINUTE)
        await runner.tick(TickBudget())
    lines = [line for line in log_lines if line["event"] == "schedule not fired"]
    assert [(line["schedule"], line["problem"]) for line in lines] == [
        ("s", "'Mars/Base' is not a time zone")
    ]


async def test_pod_declares_its_schedules_once_a_locked_row_is_free(
    port: Port, database: str
) -> None:
    faulty = FaultyPort(port)
    faulty.refuse(schedules.declare, is_locked=True)
    made = Schedule.make(name="s", cron="* * * * *", type="work")
    pod = a_pod()
    await port(pods.register, pod)
    await declare(faulty, [made], pod, rng=seeded_random())
    assert not faulty.faults_left
    assert sql(database, "SELECT origin FROM cortex.schedule WHERE name = 's'")
