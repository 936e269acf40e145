"""Families on pods that are killed: the record is judged by itself."""

from collections.abc import Iterator
from uuid import UUID

from tests.children.conftest import Family
from tests.support.eventually import eventually
from tests.support.records.rows import seeded_random
from tests.support.servers.postgres import sql

FAMILIES = 4
CHILDREN = 25
KILLS = 3

# Of all children: one job each, which has ended once; nothing is held or left to be done.
WRONG = """
SELECT 'child without an end' AS what, c.job_id::text AS id FROM cortex.job_child c
WHERE c.ended_at IS NULL OR c.is_held AND c.parent_id NOT IN (
    SELECT j.id FROM cortex.job_record j WHERE j.status <> 'COMPLETED')
UNION ALL
SELECT 'child without a job', c.job_id::text FROM cortex.job_child c
WHERE NOT c.is_held AND NOT EXISTS (SELECT FROM cortex.job_record j WHERE j.id = c.job_id)
UNION ALL
SELECT 'job without a place', j.id::text FROM cortex.job_record j
WHERE j.parent_id IS NOT NULL AND NOT EXISTS (SELECT FROM cortex.job_child c WHERE c.job_id = j.id)
UNION ALL
SELECT 'ended more than once', h.job_id::text FROM cortex.job_history h
WHERE h.new IN ('COMPLETED', 'FAILED', 'CANCELLED') GROUP BY h.job_id HAVING count(*) > 1
UNION ALL
SELECT 'outlives its parent', j.id::text FROM cortex.job_record j
JOIN cortex.job_record p ON p.id = j.parent_id
WHERE p.finished_at IS NOT NULL AND j.finished_at IS NULL
UNION ALL SELECT 'wait', w.job_id::text FROM cortex.job_wait w
UNION ALL SELECT 'cut', k.parent_id::text FROM cortex.child_cut k"""


def wrong(dsn: str) -> list[str]:
    return [f"{row['what']}: {row['id']}" for row in sql(dsn, WRONG)]


def _results(family: Family, jobs: list[UUID]) -> Iterator[object]:
    for each in jobs:
        row = family.row(each)
        yield row["result"] if row["finished_at"] is not None else None


def test_families_come_through_the_deaths_of_their_pods(family: Family) -> None:
    dice = seeded_random()
    numbers = list(range(CHILDREN))
    jobs = [family.submit("total", numbers=numbers, pause_s=0.05) for _ in range(FAMILIES)]
    cut = family.submit("total", numbers=numbers, pause_s=60.0)
    pod = family.start()
    for _ in range(KILLS):
        goal = dice.randrange(10, 20)
        had = family.states()["COMPLETED"]
        eventually(
            lambda had=had, goal=goal: family.states()["COMPLETED"] >= had + goal,  # type: ignore[misc]
            what="more children have ended",
        )
        pod.kill()
        pod = family.start()
    sql(
        family.dsn,
        "UPDATE cortex.job_record SET cancel_requested_at = cortex.now(), status = 'CANCELLED', "
        "cancelled_by = 'me', worker_job_id = NULL, next_retry_at = NULL, waiting_on = NULL "
        "WHERE id = $1 AND worker_job_id IS NULL AND finished_at IS NULL",
        cut,
    )
    total = 2 * sum(numbers)
    eventually(
        lambda: [*_results(family, jobs)] == [total] * FAMILIES and not wrong(family.dsn),
        what="all have ended, and nothing is wrong",
    )
    assert family.row(cut)["status"] == "CANCELLED"
    assert len(family.children(jobs[0])) == CHILDREN
