"""Logins of the database without the rights of pods: who gets in, and what their locks can do.

Postgres lets every login that gets in take every advisory lock and keep it. Nothing of the runtime
may wait for such a lock for ever, and nobody can pass for a pod that died.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from uuid import UUID

import asyncpg
import attrs
import pytest
import trio

from cortex.actors.runner import TickBudget
from cortex.config import Settings
from cortex.domain.clock import Chance
from cortex.postgres.bridge import open_port
from cortex.postgres.database import READER_ROLE, RUNTIME_ROLE, SUBMITTER_ROLE, Profile
from cortex.postgres.migrate import migrations
from cortex.postgres.session import Session
from cortex.runtime.calls.pending_settlements import PendingSettlements
from cortex.runtime.liveness.heartbeat import Heartbeat
from cortex.runtime.maintenance.runners import Means, runners
from cortex.runtime.self_fence import SelfFence
from cortex.store import doctor, pods, tasks
from cortex.store.background import runners as record
from cortex.store.background.runners import LastRun, RunnerRuns
from cortex.view.doctor import of_access, of_runners
from tests.support.eventually import eventually_async
from tests.support.holder import holding
from tests.support.logins import login_with
from tests.support.records.factories import VITALS, Bench, a_pod
from tests.support.records.faulty_port import FaultyPort
from tests.support.records.rows import ATTACH, hold_turns, new_id, seeded_random
from tests.support.servers.kept_sessions import kept_session
from tests.support.servers.postgres import SharedPostgres, migrate, run_asyncio, sql

CLOSED = "permission denied for database"
REFUSED = asyncpg.InsufficientPrivilegeError


@pytest.fixture(scope="module")
def fresh(shared_postgres: SharedPostgres) -> Iterator[str]:
    """A database as `cortex migrate` leaves it; a copy of one would be open again."""
    dsn = shared_postgres.create_empty()
    sql(dsn, "GRANT CREATE ON SCHEMA public TO PUBLIC")  # as before Postgres 15
    migrate(dsn)
    yield dsn
    shared_postgres.drop(dsn)


@pytest.mark.parametrize(
    "roles, attempt, refusal",
    [
        pytest.param((), "SELECT 1", CLOSED, id="a login without a role connects"),
        pytest.param((), "SELECT pg_advisory_lock(1)", CLOSED, id="it takes a lock"),
        pytest.param((), "NOTIFY cortex_task", CLOSED, id="it notifies"),
        pytest.param((SUBMITTER_ROLE,), "SELECT 1", None, id="a submitter connects"),
        pytest.param((RUNTIME_ROLE,), "SELECT 1", None, id="a pod connects"),
        pytest.param((READER_ROLE,), "SELECT 1", None, id="a reader connects"),
        pytest.param(
            (SUBMITTER_ROLE,), "CREATE TEMP TABLE t ()", "create temporary tables", id="temporary"
        ),
        pytest.param(
            (SUBMITTER_ROLE,), "CREATE TABLE public.t ()", "denied for schema public", id="a table"
        ),
        pytest.param((RUNTIME_ROLE,), "CREATE TABLE public.t ()", "schema public", id="a pod's"),
    ],
)
def test_only_roles_of_cortex_get_in(
    fresh: str, roles: tuple[str, ...], attempt: str, refusal: str | None
) -> None:
    with login_with(fresh, *roles) as dsn:
        if refusal is None:
            sql(dsn, attempt)
        else:
            with pytest.raises(REFUSED, match=refusal):
                sql(dsn, attempt)


def test_a_login_that_does_not_own_the_database_migrates_with_a_notice(
    shared_database: str, store: Session
) -> None:
    (migration,) = (each for each in migrations() if each.name == "connect")
    notices: list[str] = []

    async def run(dsn: str) -> None:
        connection = await asyncpg.connect(dsn)
        connection.add_log_listener(lambda _, message: notices.append(str(message)))
        try:
            await connection.execute(migration.text)
        finally:
            await connection.close(timeout=5)  # noqa: ASYNC102 -- bounded

    with login_with(shared_database) as dsn:
        run_asyncio(lambda: run(dsn))
    assert "does not own it" in notices[0]
    assert store(doctor.open_to_all) is not None, "the doctor reports it"


def test_the_advice_of_the_doctor_locks_out_no_role_of_cortex(fresh: str) -> None:
    name = "current_database()"
    opened = "GRANT CONNECT, TEMPORARY ON DATABASE %I TO PUBLIC"
    shut = "REVOKE CONNECT ON DATABASE %I FROM cortex_runtime, cortex_submitter, cortex_reader"
    for statement in (opened, shut):
        sql(fresh, sql(fresh, f"SELECT format('{statement}', {name}) AS text")[0]["text"])
    with kept_session(Profile(dsn=fresh)) as call:
        fix = of_access(call(doctor.open_to_all)).fix
    assert fix is not None
    for statement in fix.removeprefix("its owner runs: ").split("; "):
        sql(fresh, statement)
    for role in (RUNTIME_ROLE, SUBMITTER_ROLE, READER_ROLE):
        with login_with(fresh, role) as dsn:
            sql(dsn, "SELECT 1")
    with login_with(fresh) as dsn, pytest.raises(REFUSED, match=CLOSED):
        sql(dsn, "SELECT 1")


# ------------------------------------------------------------------ a pod's session


@pytest.fixture
def foreign(shared_database: str) -> Iterator[str]:
    """A login that may submit jobs."""
    with login_with(shared_database, SUBMITTER_ROLE) as dsn:
        yield dsn


@pytest.fixture
async def port(shared_database: str) -> AsyncIterator[FaultyPort]:
    """A pod's way to the database."""
    profile = Profile(dsn=shared_database, hot_path=True)
    async with open_port(profile, rng=seeded_random()) as opened:
        yield FaultyPort(opened)


@pytest.fixture
async def bench(port: FaultyPort, nursery: trio.Nursery, shared_database: str) -> Bench:
    """The parts of a pod; whatever runs ends with the test."""
    sql(shared_database, "DELETE FROM cortex.pod")
    return Bench(port, nursery)


@pytest.mark.parametrize("mode", ["pg_advisory_lock", "pg_advisory_lock_shared"])
def test_a_foreign_lock_does_not_keep_a_dead_pod_alive(
    shared_database: str, foreign: str, store: Session, mode: str
) -> None:
    dead = a_pod()

    async def attempt() -> tuple[list[UUID], bool]:
        session = await asyncpg.connect(shared_database)
        await session.execute("SELECT pg_advisory_lock($1)", dead.lock_key)
        await asyncio.to_thread(store, pods.register, dead)
        await session.execute(ATTACH, [dead.lock_key])
        assert await suspects() == []
        intruder = await asyncpg.connect(foreign)
        try:
            # It waits in the queue of the lock, and so holds it the moment the pod dies.
            waiting = asyncio.ensure_future(intruder.execute(f"SELECT {mode}({dead.lock_key})"))
            await session.close()
            await waiting
            found = await suspects()
            taken = await asyncio.to_thread(
                store, tasks.take_over, pod_id=dead.id, deaths_max=3, limit=9
            )
            return found, taken.is_done
        finally:
            intruder.terminate()

    async def suspects() -> list[UUID]:
        rows = await asyncio.to_thread(store, pods.without_lock, caller=new_id(), settle_s=0.0)
        return [each.id for each in rows]

    assert run_asyncio(attempt) == ([dead.id], True)


@pytest.mark.parametrize(
    "column, value",
    [
        ("backend_pid", "a.pid + 1"),
        ("backend_start", "a.backend_start - interval '1 second'"),
        ("backend_user", "a.usesysid::bigint::int + 1"),
    ],
)
def test_a_pod_lives_by_process_start_and_login_together(
    shared_database: str, store: Session, column: str, value: str
) -> None:
    """A number that is used again, or a login that takes its place, is another session."""
    pod = a_pod()
    store(pods.register, pod)

    async def attempt() -> list[list[asyncpg.Record]]:
        session = await asyncpg.connect(shared_database)
        try:
            await session.execute("SELECT pg_advisory_lock($1)", pod.lock_key)
            await session.execute(ATTACH, [pod.lock_key])
            own = await session.fetch("SELECT cortex.connected_pods()")
            await session.execute(
                f"UPDATE cortex.pod SET {column} = {value} FROM pg_stat_activity a "  # noqa: S608
                "WHERE a.pid = pg_backend_pid()"
            )
            return [own, await session.fetch("SELECT cortex.connected_pods()")]
        finally:
            session.terminate()

    own, other = run_asyncio(attempt)
    assert (len(own), len(other)) == (1, 0)


async def test_a_pod_starts_although_a_foreign_login_holds_its_lock(
    foreign: str, shared_database: str, bench: Bench
) -> None:
    bench.self_fence = SelfFence(fence_s=60.0, settle_s=5.0)
    heartbeat = Heartbeat(
        bench.port,
        pod=bench.pod,
        running=bench.running,
        self_fence=bench.self_fence,
        vitals=lambda: VITALS,
        interval_s=60.0,
        rng=bench.rng,
    )
    with holding(foreign, f"SELECT pg_advisory_lock({bench.pod.lock_key})", role="none"):
        bench.jobs.start_soon(heartbeat.run)
        await eventually_async(lambda: bench.self_fence.is_sure, what="it has another lock")
    (row,) = sql(shared_database, "SELECT id, lock_key FROM cortex.pod")
    assert row["id"] == bench.pod.id
    assert row["lock_key"] != bench.pod.lock_key
    assert sql(shared_database, "SELECT cortex.connected_pods()")


# ------------------------------------------------------------------ the turns of runners


TURNS = "SELECT name FROM cortex.runner_turn"


async def test_locks_of_a_foreign_login_stop_no_runner(
    foreign: str, shared_database: str, bench: Bench
) -> None:
    """It holds an advisory lock of each name, in every form that a lock of theirs ever had."""
    keys = [
        f"hashtextextended('{prefix}{row['name']}', 0)"
        for row in sql(shared_database, TURNS)
        for prefix in ("", "cortex.")
    ]
    locks = ", ".join(f"pg_advisory_lock({key})" for key in keys)
    chance = Chance(bench.rng, lambda: 1_700_000_000_000)
    unsettled = PendingSettlements(bench.port)
    means = Means(
        port=bench.port, chance=chance, unsettled=unsettled, settings=Settings(sweep_s=10.0)
    )
    with holding(foreign, f"SELECT {locks}", role="none"):
        for each in runners(means):
            assert not (await each.tick(TickBudget())).is_skipped, each.name


@pytest.mark.parametrize("role", [SUBMITTER_ROLE, READER_ROLE])
@pytest.mark.parametrize(
    "attempt",
    [
        "SELECT FROM cortex.runner_turn FOR KEY SHARE",
        "LOCK TABLE cortex.runner_turn IN ROW EXCLUSIVE MODE",
        "LOCK TABLE cortex.migration IN SHARE MODE",
        "SELECT FROM cortex.pod FOR KEY SHARE",
        "SELECT cortex.take_turn('retries')",
    ],
)
def test_a_foreign_login_cannot_lock_a_turn(shared_database: str, role: str, attempt: str) -> None:
    async def in_transaction(dsn: str) -> None:
        connection = await asyncpg.connect(dsn)
        try:
            async with connection.transaction():
                await connection.execute(attempt)
        finally:
            connection.terminate()

    with login_with(shared_database, role) as dsn, pytest.raises(REFUSED):
        run_asyncio(lambda: in_transaction(dsn))


def test_a_runner_that_is_only_skipped_turns_bad_and_recovers(
    shared_database: str, store: Session
) -> None:
    """Also when a session that may lock turns keeps one: a pod that hangs, a forgotten console."""
    skipped = attrs.evolve(RUN, last=None, succeeded_ago_s=None, run_count=0, skip_count=7)
    sql(shared_database, "DELETE FROM cortex.runner")
    with holding(shared_database, hold_turns("triage"), idle_in_transaction_session_timeout="0"):
        assert not sql(shared_database, "SELECT WHERE cortex.take_turn('triage')")
        store(record.record, [RUN], holder="pod")
        sql(shared_database, "UPDATE cortex.runner SET succeeded_at = now() - interval '1 hour'")
        assert store(record.record, [skipped], holder="pod") == ["dead_letters"], "it is an alarm"
        assert store(record.record, [skipped], holder="pod") == []
        (row,) = store(record.page)
        assert (row.is_late, row.skipped_in_a_row) == (True, 14)
        finding = of_runners([row])
        assert (finding.grade.value, "keeps their turn" in finding.found) == ("FAIL", True)
        assert str(finding.fix).startswith("find it: SELECT cortex.holder_of(xmax)")
        query = "SELECT cortex.holder_of(xmax) AS who FROM cortex.runner_turn WHERE xmax <> 0"
        assert any(row["who"] for row in sql(shared_database, query)), "as the finding says"
    query = "SELECT data FROM cortex.fact WHERE source = 'runner:dead_letters' ORDER BY id DESC"
    fact = sql(shared_database, query)[0]
    assert json.loads(fact["data"])["skipped"] == 7
    store(record.record, [RUN], holder="pod")
    (row,) = store(record.page)
    assert (row.is_late, row.skipped_in_a_row) == (False, 0)
    assert of_runners([row]).grade.value == "ok"


RUN = RunnerRuns(
    name="dead_letters",
    interval_s=30.0,
    last=LastRun(ago_s=0.0, duration_s=0.1, items=0, error=None),
    succeeded_ago_s=0.0,
    run_count=1,
    item_count=0,
    error_count=0,
    skip_count=0,
    busy_s=0.1,
)
