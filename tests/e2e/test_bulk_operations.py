"""Acts on many dead letters, and pods that are killed in the middle of one."""

import pytest

from cortex.domain.bulk_operation import BulkVerb
from cortex.postgres.database import Profile
from cortex.postgres.session import open_session
from cortex.store import bulk_operations
from cortex.store.bulk_operations import BulkOperation
from tests.support.eventually import eventually
from tests.support.pods import Pods
from tests.support.records.dead_letters import fail, lifecycle
from tests.support.records.rows import assert_one_truth, job_count, new_id
from tests.support.servers.postgres import sql

LETTERS = 100


def begin(dsn: str, verb: BulkVerb) -> int:
    """Start an operation on new letters; its caller leaves."""
    act = BulkOperation(
        token=new_id(),
        verb=verb,
        job_ids=fail(dsn, LETTERS, steps=1),
        which="",
        rate_per_s=40.0,
        by="ana",
        reason="mended",
    )
    with open_session(Profile(dsn=dsn)) as call:
        return call(bulk_operations.begin, act)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("verb", BulkVerb)
@pytest.mark.parametrize("point", ["before_dead_act", "after_dead_act"])
def test_a_kill_in_the_middle_repeats_nothing_and_loses_nothing(
    pods: Pods, point: str, verb: BulkVerb
) -> None:
    pods.environment["CORTEX_CRASH_AT"] = f"{point}:4"
    killed = pods.start()
    act_id = begin(pods.dsn, verb)
    assert killed.exit_code() == -9
    settled = "SELECT count(*) AS n FROM cortex.dead_letter WHERE resolved_by = 'ana'"
    (row,) = sql(pods.dsn, "SELECT * FROM cortex.dead_act")
    assert sql(pods.dsn, settled)[0]["n"] == row["done_count"]
    assert 0 < row["done_count"] < LETTERS
    assert row["state"] == "RUNNING"
    del pods.environment["CORTEX_CRASH_AT"]
    pods.start()

    def is_done() -> bool:
        (row,) = sql(pods.dsn, "SELECT * FROM cortex.dead_act WHERE id = $1", act_id)
        return (row["state"], row["done_count"]) == ("DONE", LETTERS)

    eventually(is_done, what="all have had their turn")
    ids = [row["job_id"] for row in sql(pods.dsn, "SELECT job_id FROM cortex.dead_letter")]
    assert {len(lifecycle(pods.dsn, each)) for each in ids} == {1}
    heirs = job_count(pods.dsn, "origin_id IS NOT NULL")
    assert heirs == (LETTERS if verb is BulkVerb.RETRY else 0)
    assert_one_truth(pods.dsn)
