"""The runner that closes requests without a decision in time."""

from typing import Any
from uuid import UUID

from cortex.actors.runner import TickBudget, TickResult
from cortex.domain.job import Suspend
from cortex.runtime.maintenance.expiries import Expiries
from cortex.store import approvals, tasks
from tests.support.eventually import eventually_async
from tests.support.records.approvals import a_request, a_verdict, facts, suspension
from tests.support.records.factories import Bench
from tests.support.records.rows import assert_one_truth, job_count, job_row, move_clock
from tests.support.servers.postgres import sql


async def ask(bench: Bench, count: int = 1, **fields: Any) -> list[UUID]:
    """Let `count` jobs ask; return their requests."""
    requests = [a_request(**fields) for _ in range(count)]
    claims = await bench.claimed(count)
    waits: list[Suspend] = [
        suspension(claim, request) for claim, request in zip(claims, requests, strict=True)
    ]
    done = await bench.port(tasks.suspend, pod_id=bench.pod.id, operations=waits)
    assert len(done) == count
    return [request.id for request in requests]


def statuses(dsn: str) -> dict[str, int]:
    rows = sql(dsn, "SELECT status, count(*) AS n FROM cortex.approval GROUP BY status")
    return {row["status"]: row["n"] for row in rows}


async def test_only_due_requests_expire(bench: Bench, database: str) -> None:
    (due,) = await ask(bench)
    await ask(bench, expires_s=9000.0)
    runner = Expiries(bench.port, rng=bench.rng)
    assert await runner.tick(TickBudget()) == TickResult(next_s=5.0)
    assert statuses(database) == {"PENDING": 2}
    move_clock(database, 3600 - 60)
    soon = await bench.port(approvals.expire)
    assert (soon.count, soon.is_skipped) == (0, False)
    assert 0 < soon.due_in_s <= 60, "it knows when the first one expires"
    move_clock(database, 3601)
    assert (await runner.tick(TickBudget())).items == 1
    assert statuses(database) == {"EXPIRED": 1, "PENDING": 1}
    ((what, data),) = facts(database, due)
    assert (what, data["risk"]) == ("approval_expired", "MED")
    assert_one_truth(database)


async def test_more_than_a_batch_is_closed_without_a_pause(bench: Bench, database: str) -> None:
    count = 2 * approvals.EXPIRE_BATCH + 1
    bench.slots = count
    await ask(bench, count, on_expiry="tell")
    move_clock(database, 3601)
    await bench.start(Expiries(bench.port, rng=bench.rng))
    await eventually_async(lambda: statuses(database) == {"EXPIRED": count}, what="all are closed")
    tasks_of = "SELECT count(*) AS n FROM cortex_worker.task WHERE state = 'READY'"
    assert sql(database, tasks_of)[0]["n"] == count
    assert_one_truth(database)


async def test_expiries_wait_out_an_outage(bench: Bench, database: str) -> None:
    await ask(bench)
    move_clock(database, 3601)
    bench.port.refuse(approvals.expire)
    bench.port.lose_reply(approvals.expire)
    await bench.start(Expiries(bench.port, rng=bench.rng))
    await eventually_async(lambda: statuses(database) == {"EXPIRED": 1}, what="it is closed")
    await eventually_async(lambda: bench.port.faults_left == 0, what="both faults were met")
    assert job_count(database, "status = 'FAILED' AND error_code = 'approval_expired'") == 1


async def test_two_pods_close_each_once(bench: Bench, database: str) -> None:
    ids = await ask(bench, 60)
    move_clock(database, 3601)
    for _ in range(2):
        await bench.start(Expiries(bench.port, rng=bench.rng))
    await eventually_async(lambda: statuses(database) == {"EXPIRED": 60}, what="all are closed")
    assert [len(facts(database, each)) for each in ids[:5]] == [1] * 5


async def test_request_decided_in_time_stays_decided(bench: Bench, database: str) -> None:
    request = a_request()
    (claim,) = await bench.claimed()
    wait = suspension(claim, request)
    await bench.port(tasks.suspend, pod_id=bench.pod.id, operations=[wait])
    await bench.port(approvals.decide, [a_verdict(request)])
    move_clock(database, 3601)
    await Expiries(bench.port, rng=bench.rng).tick(TickBudget())
    assert statuses(database) == {"APPROVED": 1}
    assert job_row(database, claim.lease.job_id)["task_state"] == "READY"
