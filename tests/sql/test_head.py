"""The head of every screen: all that waits for a person, and the pods that live."""

from collections.abc import Callable

import asyncpg

from cortex.domain.confinement import Confinement
from cortex.domain.drain import Liveness
from cortex.postgres.database import Database, Profile, open_database
from cortex.postgres.session import Session
from cortex.store import job_refresh, pods, pulse, screen_head
from tests.sql.test_plans import explain
from tests.support.records.effects import Doers
from tests.support.records.nulls import fill
from tests.support.records.rows import ATTACH, new_id, seeded_random
from tests.support.servers.postgres import sql
from tests.support.terminal.tui import on_asyncio

WAITS = """
    SET session_replication_role = replica;
    INSERT INTO cortex.job_record (id, type, status, attempt, waiting_on, suspended_at, payload)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 'work', 'WAITING_FOR_APPROVAL', 1,
           CASE n % 4 WHEN 0 THEN 'person:llm:gpt' WHEN 1 THEN 'budget:agent:x:usd:run'
                      WHEN 2 THEN 'approval:' || gen_random_uuid() ELSE 'effect:' || gen_random_uuid() END,
           now(), '{}'
    FROM generate_series(1, 4000) n;
    INSERT INTO cortex.job_record (id, type, status, attempt, waiting_on, next_retry_at, suspended_at, payload)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 'work', 'RETRY', 1, 'quota:pay:calls:hour', now(), now(), '{}'
    FROM generate_series(100001, 101000) n;
    INSERT INTO cortex.job_record (id, type, status, attempt, started_at, finished_at, payload)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 'work', 'COMPLETED', 1, now(), now(), '{}'
    FROM generate_series(200001, 212000) n;
    INSERT INTO cortex.effect (id, job_id, lineage_id, attempt, key, tool, tenant, arguments, digest,
                               can_reconcile, status, created_at, finished_at)
    SELECT lpad(to_hex(n), 32, '0')::uuid, gen_random_uuid(), gen_random_uuid(), 1, 'pay', 'pay', 'default',
           '{}', sha256('{}'), true, CASE WHEN n % 2 = 0 THEN 'UNKNOWN' ELSE 'COMPLETED' END,
           now() - n * interval '1 second', CASE WHEN n % 2 <> 0 THEN now() END
    FROM generate_series(1, 4000) n;
"""  # noqa: E501 -- SQL
CAP = 50
SERVING_SINCE = """
    CREATE OR REPLACE FUNCTION cortex.serving_since() RETURNS timestamptz
        LANGUAGE sql STABLE AS $$ SELECT {} $$
"""
"""The tests' server may have begun a moment ago."""


def test_everything_that_waits_for_a_person_is_counted(store: Session, database: str) -> None:
    empty = store(screen_head.head)
    assert empty.waits == 0
    fill(store, database)
    waits = {
        "budget:agent:researcher:usd:run": None,
        "person:llm:gpt": None,
        "quota:pay:calls:hour": 9,
        "trust:clerk/notes.create": 300,
    }
    doers = Doers(store, database)
    for (waiting_on, delay_s), claim in zip(waits.items(), doers.claimed_many(4), strict=True):
        doers.suspend(claim, delay_s=delay_s, waiting_on=waiting_on)
    head = store(screen_head.head)
    assert (head.approvals, head.effects, head.budgets, head.persons) == (2, 1, 2, 2)
    assert head.waits == 7 + head.dead
    assert head.dead > 0


def test_counts_of_waiting_work_stop_at_the_cap(filled: Callable[..., str]) -> None:
    dsn = filled(WAITS)
    for statistics in ("none yet", "fresh"):
        looks = explain(dsn, "screen_head.head", (CAP,))
        for table in ("job_record", "effect"):
            found = [each for each in looks if each.table == table]
            assert not [each for each in found if each.node == "Seq Scan"], (statistics, table)
            assert 0 < sum(each.rows for each in found) <= 4 * CAP, (statistics, looks)
        sql(dsn, "ANALYZE")


@on_asyncio
async def test_live_unconfined_pod_is_shown_in_the_head(database: str) -> None:
    db = await open_database(Profile(dsn=database), rng=seeded_random())
    session = await asyncpg.connect(database)

    async def is_unsafe() -> bool:
        return (await screen_head.head(db)).is_unsafe

    try:
        assert await is_unsafe() is False, "no pod is there at all"
        await session.execute("SELECT pg_advisory_lock(21), pg_advisory_lock(22)")
        for key, confinement in ((21, Confinement.BUBBLEWRAP), (22, Confinement.UNSAFE)):
            entered = pods.Pod(
                id=new_id(),
                lock_key=key,
                name=f"eu-{key}",
                version="0",
                job_types=(),
                slots=1,
                liveness=Liveness.LOCK,
                confinement=confinement,
            )
            assert await is_unsafe() is False
            await pods.register(db, entered)
        assert await is_unsafe() is True
        assert (await job_refresh.refresh(db, [])).head.is_unsafe is True
        await session.execute("UPDATE cortex.pod SET state = 'DRAINING', draining_at = now()")
        assert await is_unsafe() is True, "what it began goes on"
        await session.execute("UPDATE cortex.pod SET confinement = NULL WHERE lock_key = 21")
        await session.execute("UPDATE cortex.pod SET state = 'STOPPED', ended_at = now()")
        assert await is_unsafe() is False
    finally:
        session.terminate()
        await db.close()  # noqa: ASYNC102 -- as the test ends


@on_asyncio
async def test_pod_whose_session_ended_is_shown_dead_at_once(database: str) -> None:
    db = await open_database(Profile(dsn=database), rng=seeded_random())
    session = await asyncpg.connect(database)
    try:
        for name, key in (("eu-1", 11), ("eu-2", -12), ("pooled", 13)):
            liveness = Liveness.HEARTBEAT if name == "pooled" else Liveness.LOCK
            entered = pods.Pod(
                id=new_id(),
                lock_key=key,
                name=name,
                version="0",
                job_types=(),
                slots=1,
                liveness=liveness,
            )
            await pods.register(db, entered)
        await session.execute(SERVING_SINCE.format("cortex.now() - interval '1 hour'"))
        head = await screen_head.head(db)
        assert (head.pods_ready, head.pods_lost) == (3, 0), "their locks come next"
        await session.execute("UPDATE cortex.pod SET started_at = started_at - interval '1 minute'")
        await session.execute("SELECT pg_advisory_lock(11), pg_advisory_lock(-12)")
        await session.execute(ATTACH, [11, -12])
        assert await states(db) == {"eu-1": "READY", "eu-2": "READY", "pooled": "READY"}
        await session.execute("SELECT pg_advisory_unlock_all()")  # as the server does at its end
        assert await states(db) == {"eu-1": "DEAD", "eu-2": "DEAD", "pooled": "READY"}
        head = await screen_head.head(db)
        assert (head.pods_ready, head.pods_living, head.pods_lost) == (1, 3, 2)
        found = [(each.name, each.word) for each in (await pulse.attention(db)).troubles]
        assert sorted(found) == [("eu-1", "DEAD"), ("eu-2", "DEAD")]
        await session.execute(SERVING_SINCE.format("clock_timestamp()"))
        assert set((await states(db)).values()) == {"READY"}, "all locks are new then"
    finally:
        session.terminate()
        await db.close()  # noqa: ASYNC102 -- as the test ends


async def states(db: Database) -> dict[str, str]:
    return {row.name: row.state for row in await pods.page(db)}
