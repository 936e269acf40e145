"""What else knows of families: retention, budgets, retries by people."""

from uuid import UUID

from cortex.store import jobs
from tests.children.conftest import Parents
from tests.support.records.rows import new_id
from tests.support.servers.postgres import sql

RESERVE = """
SELECT r.verdict, r.budget FROM cortex.reserve(
    $1, $2, 1, $3, $2, 'default', NULL, NULL, 'ask', 'm', 10, 5, 10, 5) AS r"""


def ended(parents: Parents, *ids: UUID) -> None:
    """Make jobs end that no pod has."""
    for each in ids:
        parents.end(each)


def deleted(parents: Parents, *roots: UUID) -> tuple[int, int]:
    (row,) = sql(
        parents.stage.dsn, "SELECT * FROM cortex.delete_retired($1::uuid[], NULL)", list(roots)
    )
    return row["lineages"], row["jobs"]


def test_children_are_deleted_before_their_parent_and_while_nobody_needs_them(
    parents: Parents,
) -> None:
    dsn = parents.stage.dsn
    sql(
        dsn,
        "INSERT INTO cortex.retention (completed_s, failed_s, changed_by, reason) "
        "VALUES (86400, 86400, 'me', 'x')",
    )
    claim = parents.running()
    parent = claim.lease.job_id
    ids = parents.spawn(claim, 2, let_go=2)
    ended(parents, *ids)
    old = "UPDATE cortex.job_record SET finished_at = finished_at - interval '3 days' WHERE id = $1"
    for each in ids:
        sql(dsn, old, each)
    assert deleted(parents, *ids) == (0, 0)  # the parent may ask how they ended
    parents.stage.suspend(claim.lease, delay_s=600.0, on="sleep")
    ended(parents, parent)
    sql(dsn, old, parent)
    assert deleted(parents, parent) == (0, 0)
    assert deleted(parents, *ids) == (2, 2)
    assert deleted(parents, parent) == (1, 1)
    left = sql(dsn, "SELECT FROM cortex.job_child WHERE lineage_id = $1", parent)
    assert left == []


def test_calls_of_children_count_towards_the_budget_of_their_parent(parents: Parents) -> None:
    dsn = parents.stage.dsn
    claim = parents.running()
    parent = claim.lease.job_id
    sql(
        dsn,
        "INSERT INTO cortex.budget "
        "(scope, subject, unit, period, limit_amount, changed_by, reason) "
        "VALUES ('job', $1::text, 'usd', 'run', 7, 'me', 'x')",
        str(parent),
    )
    first, second = parents.spawn(claim, 2, let_go=2, kind="work")
    (aside,) = parents.spawn(claim, 1, step="aside", kind="work", is_detached=True)
    verdicts = []
    for child in (first, second, aside):
        parents.stage.claim(child)
        (row,) = sql(dsn, RESERVE, new_id(), child, parents.stage.pod_id)
        verdicts.append(row["verdict"])
    assert verdicts == ["granted", "busy", "granted"]
    (use,) = sql(dsn, "SELECT window_key, reserved FROM cortex.budget_use")
    assert (use["window_key"], use["reserved"]) == (str(parent), 5)


def test_job_that_continues_a_failed_child_takes_its_place(parents: Parents) -> None:
    dsn = parents.stage.dsn
    claim = parents.running()
    (child,) = parents.spawn(claim, 1, kind="work")
    parents.stage.claim(child)
    fail = (
        "WITH gone AS (DELETE FROM cortex_worker.task WHERE job_id = $1) UPDATE cortex.job_record "
        "SET status = 'FAILED', attempt = 1, error_message = 'it broke', error_code = 'x', "
        "worker_job_id = NULL WHERE id = $1"
    )
    sql(dsn, fail, child)
    (outcome,) = parents.outcomes(claim)
    assert (outcome.status, outcome.error, outcome.error_code) == ("FAILED", "it broke", "x")
    new = new_id()
    sql(
        dsn,
        "INSERT INTO cortex.job_record (id, type, payload, origin_id, lineage_id, parent_id, "
        "max_retries) SELECT $1, type, payload, id, id, parent_id, 3 FROM cortex.job_record "
        "WHERE id = $2",
        new,
        child,
    )
    sql(dsn, "SELECT cortex.continue_child($1, $2)", new, child)
    assert parents.outcomes(claim) == []
    assert parents.ids(claim) == [new]
    parents.store(jobs.cancel, new, by="me", reason="x")
    assert [each.status for each in parents.outcomes(claim)] == ["CANCELLED"]
