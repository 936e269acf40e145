"""Evidence read from a real database after real pods, as the checkers need it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from chaos import observer
from chaos.checkers import (
    i02_one_end,
    i04_one_owner,
    i05_checkpoints,
    i06_retries,
    i10_whole_commits,
    i20_legal_transitions,
)
from chaos.checkers.verdict import Result
from chaos.collect import OBSERVED, RECORD, read_record
from chaos.evidence import Evidence
from tests.support.evidence import SETTINGS
from tests.support.pods import Pods
from tests.support.records.rows import new_id, submit, until_job, until_status
from tests.support.servers.postgres import run_asyncio, sql

OF_THE_RECORD = (
    i02_one_end.check,
    i04_one_owner.check,
    i05_checkpoints.check,
    i06_retries.check,
    i10_whole_commits.check,
    i20_legal_transitions.check,
)


@pytest.fixture
def pods(database: str, tmp_path: Path) -> Iterator[Pods]:
    run_asyncio(lambda: observer.install(database))
    running = Pods(database, tmp_path)
    yield running
    running.close()


def evidence_of(dsn: str) -> Evidence:
    rows: dict[str, Any] = {**run_asyncio(lambda: read_record(dsn))}
    return Evidence(settings=SETTINGS, events=(), applications=(), model_calls=(), **rows)


def test_evidence_of_two_pods_contains_a_takeover(pods: Pods, tmp_path: Path) -> None:
    dsn, gate = pods.dsn, tmp_path / "gate"
    doomed = pods.start()
    ids = [submit(dsn, "gated", {"gate": str(gate)}), submit(dsn, "steps", {"count": 3})]
    until_job(dsn, ids[0], lambda row: row["checkpoint"].get("seq") == 1, "begun")
    until_status(dsn, ids[1], "COMPLETED")
    doomed.kill()
    gate.touch()
    pods.start()
    until_status(dsn, ids[0], "COMPLETED")

    evidence = evidence_of(dsn)
    first, second = (pod["id"] for pod in evidence.pods)
    begun = [
        (c["previous"], c["attempt"], c["pod_id"]) for c in evidence.claims if c["job_id"] == ids[0]
    ]
    assert begun == [(0, 1, first), (1, 2, second)]
    assert [row["outcome"] for row in evidence.attempts] == ["pod_died"]
    output, seen = (
        [(row["previous"], row["new"]) for row in rows if row["job_id"] == ids[0]]
        for rows in (evidence.transitions, evidence.moves)
    )
    assert output == seen == [(None, "PENDING"), ("PENDING", "RUNNING"), ("RUNNING", "COMPLETED")]
    assert {beat["pod_id"] for beat in evidence.beats} == {first, second}
    assert evidence.strangers == ()
    assert evidence.wrong_deaths == ()
    for check in OF_THE_RECORD:
        verdict = check(evidence)
        assert (verdict.result, verdict.why) == (Result.VALID, ())


def test_heartbeat_for_a_lost_job_is_found(pods: Pods) -> None:
    """Such a pod renews by the job's id alone, and has lost that job."""
    begin = """
        WITH pod AS (
            INSERT INTO cortex.pod (id, lock_key, name, version, job_types, slots)
            SELECT id, row_number() OVER (), id::text, '1', '{noop}', 1
            FROM unnest($1::uuid[]) AS id
        )
        SELECT cortex.submit_job('noop') AS id
    """
    ids = [new_id(), new_id()]
    job_id = sql(pods.dsn, begin, ids)[0]["id"]
    claim = """
        UPDATE cortex_worker.task SET state = 'LOCKED', attempt = 1, locked_by = $2,
            locked_at = now(), heartbeat_at = now()
        WHERE job_id = $1
    """
    sql(pods.dsn, claim, job_id, ids[0])
    beat = """
        WITH pod AS (UPDATE cortex.pod SET heartbeat_at = clock_timestamp() WHERE id = $2)
        UPDATE cortex_worker.task SET heartbeat_at = clock_timestamp() WHERE job_id = $1
    """
    sql(pods.dsn, beat, job_id, ids[0])
    assert evidence_of(pods.dsn).strangers == ()
    sql(pods.dsn, beat, job_id, ids[1])
    (stranger,) = evidence_of(pods.dsn).strangers
    assert (stranger["job_id"], stranger["pod_id"], stranger["beaten_by"]) == (job_id, *ids)
    assert i04_one_owner.check(evidence_of(pods.dsn)).jobs == (job_id,)


def test_a_job_that_is_taken_from_a_pod_with_its_lock_is_seen(database: str) -> None:
    """Such a pod does not check the lock. A pod that holds the lock may take its own job."""
    ids = [new_id(), new_id()]
    enter = """
        INSERT INTO cortex.pod (id, lock_key, name, version, job_types, slots)
        SELECT id, -n, id::text, '1', '{noop}', 1
        FROM unnest($1::uuid[]) WITH ORDINALITY AS pod(id, n)
    """
    take = """
        INSERT INTO cortex.job_attempt (job_id, attempt, pod_id, outcome)
        SELECT id, 1, id, 'pod_died' FROM unnest($1::uuid[]) AS id
    """

    async def while_locked() -> None:
        await observer.install(database)
        async with contextlib.AsyncExitStack() as keep:
            taker, other = [await asyncpg.connect(database) for _ in ids]
            for each in (taker, other):
                keep.push_async_callback(each.close)
            await taker.execute(enter, ids)
            await taker.execute("SELECT pg_advisory_lock(-1)")
            await taker.execute(take, [ids[0]])
            await other.execute("SELECT pg_advisory_lock(-2)")
            await taker.execute(take, [ids[1]])

    run_asyncio(while_locked)
    (wrong,) = evidence_of(database).wrong_deaths
    assert (wrong["job_id"], wrong["attempt"], wrong["pod_id"]) == (ids[1], 1, ids[1])


def test_checkpoint_that_goes_back_is_found(pods: Pods) -> None:
    job_id = submit(pods.dsn, "noop")
    for seq in (1, 2, 2, 1):
        head = f'{{"seq": {seq}}}'
        sql(
            pods.dsn,
            "UPDATE cortex.job_record SET checkpoint = $2::jsonb WHERE id = $1",
            job_id,
            head,
        )
    (back,) = evidence_of(pods.dsn).setbacks
    assert (back["job_id"], back["previous"], back["seq"]) == (job_id, 2, 1)


def test_unobserved_database_gives_empty_evidence(database: str) -> None:
    evidence = evidence_of(database)
    assert not any(getattr(evidence, name) for name in (*RECORD, *OBSERVED))
    assert i04_one_owner.check(evidence).result is Result.UNKNOWN
