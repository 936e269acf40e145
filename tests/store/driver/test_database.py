"""The port to Postgres: every call ends within its bound, reports the truth, and leaks nothing."""

import asyncio
import select
import signal
from collections.abc import Awaitable, Callable, Iterator
from time import monotonic
from typing import Any

import asyncpg
import attrs
import pytest

from cortex.domain.errors import (
    CortexError,
    ForbiddenError,
    InvalidValueError,
    NotFoundError,
    OutcomeUnknownError,
    RejectedError,
    SchemaError,
    Trouble,
    UnavailableError,
)
from cortex.postgres.database import RETRIES_AT_ONCE, Database, Profile, open_database
from cortex.postgres.errors import of_statement
from cortex.store import jobs
from tests.support.eventually import WITHIN_S, eventually
from tests.support.records.factories import a_submission
from tests.support.records.rows import new_id, seeded_random
from tests.support.servers.postgres import backends, run_asyncio, sql
from tests.support.servers.private_postgres import PrivatePostgres

Work = Callable[["asyncpg.Connection[asyncpg.Record]"], Awaitable[Any]]
BOUND_S = 0.5
SLACK_S = 15.0  # a loaded machine; far below how long the statements would take
KEY = 7


def on_database(profile: Profile, work: Callable[[Database], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        db = await open_database(profile, rng=seeded_random())
        try:
            return await work(db)
        finally:
            await db.close()

    return run_asyncio(main)


def execute(text: str, *args: object) -> Work:
    """Work that runs one statement."""
    return lambda connection: connection.fetch(text, *args)


async def next_turn() -> None:
    """Let the event loop go round once."""
    loop = asyncio.get_running_loop()
    turned = loop.create_future()
    loop.call_soon(turned.set_result, None)
    await turned


async def raised_by(call: Awaitable[object]) -> CortexError:
    with pytest.raises(CortexError) as caught:
        await call
    return caught.value


# --- the bound


@pytest.mark.parametrize("how", ["sleeps", "waits for a lock"])
def test_a_call_that_does_not_end_is_cut_at_its_bound(database: str, how: str) -> None:
    async def work(db: Database) -> None:
        holder = await asyncpg.connect(database)
        await holder.fetch("SELECT pg_advisory_lock($1)", KEY)
        query = "SELECT pg_sleep(30)" if how == "sleeps" else f"SELECT pg_advisory_lock({KEY})"
        began_at = monotonic()
        error = await raised_by(db.transact(execute(query)))
        assert monotonic() - began_at < BOUND_S + SLACK_S
        assert isinstance(error, OutcomeUnknownError)
        assert await db.transact(execute("SELECT 1 AS one"))  # the slot is free again
        await holder.close()

    on_database(Profile(dsn=database, bound_s=BOUND_S, connections_max=1), work)
    eventually(lambda: backends(database) == 0, what="the server noticed that its client is gone")


def test_a_call_that_stood_still_beyond_its_bound_has_lost_its_connection(database: str) -> None:
    """The watchdog comes between a reply that is there and the call that waits for it."""

    async def main() -> None:
        connection, loop = await Profile(dsn=database).connect(), asyncio.get_running_loop()
        call = loop.create_task(connection.fetch("SELECT 'not prepared yet'"))
        await next_turn()
        peer = connection._transport.get_extra_info("socket")  # type: ignore[attr-defined]
        select.select([peer], [], [], BOUND_S + SLACK_S)  # the reply is there
        loop.call_later(0, connection.terminate)
        with pytest.raises((asyncpg.InterfaceError, asyncpg.PostgresConnectionError)) as caught:
            await call
        assert type(of_statement(caught.value)) is OutcomeUnknownError

    run_asyncio(main)


def test_a_server_that_stopped_answering_costs_each_call_its_bound(
    private_postgres: PrivatePostgres,
) -> None:
    """All sessions are paused by a signal: to the client that is a black hole."""

    async def work(db: Database) -> None:
        warm = [db.transact(execute("SELECT pg_sleep(0.05)")) for _ in range(4)]
        await asyncio.gather(*warm)
        assert private_postgres.kill_backends(signal.SIGSTOP) == 4
        began_at = monotonic()
        calls = [raised_by(db.transact(execute("SELECT 1"))) for _ in range(4)]
        errors = await asyncio.gather(*calls)
        assert monotonic() - began_at < BOUND_S + SLACK_S
        assert {type(error) for error in errors} == {OutcomeUnknownError}
        assert await db.transact(execute("SELECT 1"))  # on a new session

    profile = Profile(dsn=private_postgres.dsn, role=None, bound_s=BOUND_S)
    try:
        on_database(profile, work)
    finally:
        private_postgres.kill_backends(signal.SIGCONT)


def test_closing_does_not_wait_for_a_server_that_does_not_answer(
    private_postgres: PrivatePostgres,
) -> None:
    async def work() -> float:
        profile = Profile(dsn=private_postgres.dsn, role=None)
        db = await open_database(profile, rng=seeded_random())
        await asyncio.gather(*(db.transact(execute("SELECT pg_sleep(0.05)")) for _ in range(4)))
        assert private_postgres.kill_backends(signal.SIGSTOP) == 4
        began_at = monotonic()
        await db.close()
        return monotonic() - began_at

    try:
        assert run_asyncio(work) < SLACK_S
    finally:
        private_postgres.kill_backends(signal.SIGCONT)


def test_call_without_a_free_connection_fails_within_its_bound(database: str) -> None:
    async def work(db: Database) -> None:
        release = asyncio.Event()
        taken = asyncio.Event()

        async def hold(_: object) -> None:
            taken.set()
            await release.wait()

        holding = asyncio.create_task(db.transact(hold))
        await taken.wait()
        # The one that waits gives up at about the time when the holder would be cut.
        error = await raised_by(attempt_with(db, bound_s=0.2))
        assert isinstance(error, UnavailableError)
        assert not isinstance(error, OutcomeUnknownError)
        assert "no database connection was free for 0.2 s" in error.message
        release.set()
        await holding

    on_database(Profile(dsn=database, connections_max=1), work)


@pytest.fixture
def few(database: str) -> Iterator[str]:
    """The address of a user limited to one connection."""
    name = f"few_{new_id().hex[:12]}"
    sql(database, f"CREATE ROLE {name} LOGIN CONNECTION LIMIT 1")
    yield database.replace("//postgres@", f"//{name}@")
    sql(database, f"DROP ROLE {name}")


def test_pool_works_with_fewer_connections_than_configured(few: str) -> None:
    """Four connections are too many for this server: the calls take turns on the first one."""

    async def work(db: Database) -> None:
        calls = (
            db.transact(execute("SELECT pg_sleep(0.02), pg_backend_pid() AS pid"))
            for _ in range(20)
        )
        pids = {row["pid"] for (row,) in await asyncio.gather(*calls)}
        assert len(pids) == 1
        db._cut_idle()

    on_database(Profile(dsn=few, role=None, connections_max=4), work)


def test_refused_connection_reports_missing_connections(few: str) -> None:
    async def work(db: Database) -> None:
        holder = await asyncpg.connect(few)
        error = await raised_by(db.transact(execute("SELECT 1")))
        assert isinstance(error, UnavailableError)
        assert error.trouble is Trouble.NO_CONNECTIONS
        await holder.close()

    async def main() -> None:
        await work(Database(Profile(dsn=few, role=None, is_pooled=False), rng=seeded_random()))

    run_asyncio(main)


async def attempt_with(db: Database, *, bound_s: float) -> None:
    profile, db.profile = db.profile, attrs.evolve(db.profile, bound_s=bound_s)
    try:
        await db.transact(execute("SELECT 1"))
    finally:
        db.profile = profile


# --- what was certainly rolled back is tried again


def test_a_deadlock_is_resolved_by_running_its_victim_again(database: str) -> None:
    async def work(db: Database) -> None:
        both_hold = asyncio.Barrier(2)
        runs = 0

        async def lock_both(connection: Any, first: int, second: int) -> str:
            nonlocal runs
            runs += 1
            await connection.execute("SET LOCAL lock_timeout = 0")
            await connection.execute(f"SELECT pg_advisory_xact_lock({first}::bigint)")
            if runs <= 2:
                await both_hold.wait()
            await connection.execute(f"SELECT pg_advisory_xact_lock({second}::bigint)")
            return "done"

        one = db.transact(lambda c: lock_both(c, 1, 2))
        other = db.transact(lambda c: lock_both(c, 2, 1))
        assert set(await asyncio.gather(one, other)) == {"done"}
        assert runs == 3

    on_database(Profile(dsn=database), work)


def test_a_lock_that_is_let_go_is_got_at_a_repeat(database: str) -> None:
    async def work(db: Database) -> None:
        holder = await asyncpg.connect(database)
        await holder.fetch("SELECT pg_advisory_lock($1)", KEY)
        runs = 0

        async def wait_briefly(connection: Any) -> int:
            nonlocal runs
            runs += 1
            if runs == 3:
                await holder.close()
            await connection.execute("SET LOCAL lock_timeout = '30ms'")
            await connection.execute(f"SELECT pg_advisory_xact_lock({KEY})")
            return runs

        assert await db.transact(wait_briefly) == 3

    on_database(Profile(dsn=database), work)


@pytest.mark.parametrize("state", ["40001", "40P01", "55P03"])
def test_repeats_are_limited_and_end_in_an_outage(database: str, state: str) -> None:
    async def work(db: Database) -> None:
        runs = 0

        async def busy(connection: Any) -> None:
            nonlocal runs
            runs += 1
            await connection.execute(raising(state))

        error = await raised_by(db.transact(busy))
        assert type(error) is UnavailableError
        assert isinstance(error.__cause__, asyncpg.PostgresError)
        assert runs == RETRIES_AT_ONCE + 1

    on_database(Profile(dsn=database), work)


# --- what errors mean


def raising(state: str) -> str:
    return f"DO $$ BEGIN RAISE EXCEPTION 'made up' USING ERRCODE = '{state}'; END $$"


@pytest.mark.parametrize(
    "statement, family",
    [
        (raising("58030"), UnavailableError),
        (raising("57P05"), OutcomeUnknownError),
        ("SELECT 1 / 0", InvalidValueError),
        ("SELECT 'x'::int", InvalidValueError),
        ("SELECT '\"\\u0000\"'::jsonb", InvalidValueError),
        ("SELECT '\"\\ud800\"'::jsonb", InvalidValueError),
        ("SELECT '1e400000'::jsonb", InvalidValueError),
        ("SELECT 2147483648::int", InvalidValueError),
        ("SELECT repeat('a', 2000000000)", InvalidValueError),
        (
            "INSERT INTO cortex.job_record (id, payload, type) VALUES (cortex.uuid7(), '{}', '')",
            RejectedError,
        ),
        ("INSERT INTO cortex.job_record (id, type) VALUES (gen_random_uuid(), 'a')", RejectedError),
        (raising("P0001"), RejectedError),
        (raising("P0002"), NotFoundError),
        ("SELECT * FROM nowhere", SchemaError),
        ("SELECT nothing()", SchemaError),
        ("SELECT nothing FROM cortex.job", SchemaError),
        ("DELETE FROM cortex.job_record", ForbiddenError),
        ("SET TRANSACTION READ ONLY; DELETE FROM cortex_worker.task", UnavailableError),
        (raising("53100"), UnavailableError),
        (raising("53200"), UnavailableError),
        (raising("57P01"), OutcomeUnknownError),
        (raising("08006"), OutcomeUnknownError),
    ],
)
def test_each_error_of_the_server_has_its_family(
    database: str, statement: str, family: type[CortexError]
) -> None:
    async def work(db: Database) -> None:
        error = await raised_by(db.transact(lambda connection: connection.execute(statement)))
        assert type(error) is family
        assert error.__cause__ is not None
        assert "\n" not in error.message
        assert await db.transact(execute("SELECT 1"))

    on_database(Profile(dsn=database), work)


@pytest.mark.parametrize(
    "state, trouble",
    [
        ("53100", Trouble.DISK_FULL),
        ("53200", Trouble.OUT_OF_MEMORY),
        ("53300", Trouble.NO_CONNECTIONS),
        ("53000", Trouble.OUT_OF_MEMORY),
        ("25006", Trouble.READ_ONLY),
        ("58030", Trouble.UNREACHABLE),
        ("57P01", Trouble.UNREACHABLE),
        ("40001", None),
    ],
)
def test_server_errors_name_their_trouble(
    database: str, state: str, trouble: Trouble | None
) -> None:
    async def work(db: Database) -> None:
        error = await raised_by(db.transact(execute(raising(state))))
        assert isinstance(error, UnavailableError)
        assert error.trouble is trouble

    on_database(Profile(dsn=database, connections_max=1), work)


@pytest.mark.parametrize(
    "given",
    [
        {"id": "not an id"},
        {"type": "a\0b"},
        {"type": "a\ud800"},
        {"priority": 2**40},
        {"payload": "{"},
    ],
    ids=["id", "NUL", "half a pair", "too large", "no JSON"],
)
def test_a_value_that_cannot_be_sent_or_stored_is_the_callers_fault(
    database: str, given: dict[str, Any]
) -> None:
    async def work(db: Database) -> None:
        error = await raised_by(jobs.submit(db, [a_submission(**given)]))
        assert type(error) is InvalidValueError

    on_database(Profile(dsn=database), work)


def test_a_bug_in_the_work_is_raised_as_it_is_and_rolls_back(database: str) -> None:
    async def work(db: Database) -> None:
        async def buggy(connection: Any) -> None:
            await connection.execute("SELECT set_config('cortex.x', '1', false)")
            raise KeyError("bug")

        with pytest.raises(KeyError, match="bug"):
            await db.transact(buggy)
        assert await db.transact(execute("SELECT 1"))

    on_database(Profile(dsn=database, connections_max=1), work)


def test_an_answered_error_keeps_its_session_and_a_broken_session_is_replaced(
    database: str,
) -> None:
    async def work(db: Database) -> None:
        async def pid() -> int:
            return int((await db.transact(execute("SELECT pg_backend_pid() AS pid")))[0]["pid"])

        first = await pid()
        await raised_by(db.transact(execute("SELECT 1 / 0")))
        assert await pid() == first
        error = await raised_by(db.transact(execute("SELECT pg_terminate_backend($1)", first)))
        assert type(error) is OutcomeUnknownError
        assert await pid() != first

    on_database(Profile(dsn=database, role=None, connections_max=1), work)


@pytest.mark.parametrize("state", ["57P01", "08006"])
def test_session_that_announces_shutdown_is_not_reused(database: str, state: str) -> None:
    """The server closes it a moment later: another call must not find it in the pool."""

    async def work(db: Database) -> None:
        (first,) = await db.transact(execute("SELECT pg_backend_pid() AS pid"))
        await raised_by(db.transact(lambda connection: connection.execute(raising(state))))
        (second,) = await db.transact(execute("SELECT pg_backend_pid() AS pid"))
        assert first != second

    on_database(Profile(dsn=database, connections_max=1), work)


def test_an_open_transaction_is_never_handed_on(database: str) -> None:
    async def work(db: Database) -> None:
        (first,) = await db.transact(execute("SELECT pg_backend_pid() AS pid"))
        await db._retrying(lambda connection: connection.execute("BEGIN"))
        (second,) = await db.transact(execute("SELECT pg_backend_pid() AS pid"))
        assert first != second

    on_database(Profile(dsn=database, connections_max=1), work)


def test_failed_connect_names_the_target_and_the_problem(
    private_postgres: PrivatePostgres,
) -> None:
    dsn = private_postgres.dsn
    cases: list[tuple[Profile, type[CortexError], str]] = [
        (Profile(dsn=dsn), SchemaError, "has no cortex schema yet"),
        (Profile(dsn=dsn.replace("/cortex?", "/nowhere?"), role=None), NotFoundError, "nowhere"),
        (
            Profile(dsn=dsn.replace("postgres@", "nobody:hunter2@"), role=None),
            ForbiddenError,
            "nobody",
        ),
    ]
    for profile, family, output in cases:
        with pytest.raises(CortexError) as caught:
            on_database(profile, lambda _: next_turn())
        assert type(caught.value) is family, caught.value
        assert output in caught.value.message
        assert "hunter2" not in f"{caught.value!r}{caught.value.hint}"


# --- leaks


async def chaos(db: Database, count: int, trouble: Callable[[], Awaitable[None]]) -> None:
    """Many calls at once, some cancelled at a random moment, while trouble is made."""
    rng = seeded_random()

    async def call() -> None:
        task = asyncio.create_task(db.fetch("pods.live_types"))
        if rng.random() < 0.6:
            for _ in range(rng.randint(0, 12)):
                await next_turn()
            task.cancel()
        if rng.random() < 0.1:
            await trouble()
        outcome = (await asyncio.gather(task, return_exceptions=True))[0]
        assert isinstance(outcome, list | asyncio.CancelledError | UnavailableError), outcome

    for _ in range(0, count, 20):
        await asyncio.gather(*(call() for _ in range(20)))


def test_no_connection_leaks_over_cancellations_and_terminations(database: str) -> None:
    async def work(db: Database) -> None:
        killer = await asyncpg.connect(database)
        one_at_a_time = asyncio.Lock()

        async def terminate_one() -> None:
            async with one_at_a_time:
                await killer.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid() "
                    "ORDER BY random() LIMIT 1"
                )

        await chaos(db, 240, terminate_one)
        # All four slots are there again: four transactions can be open at the same time.
        together = asyncio.Barrier(4)

        async def meet(_: object) -> None:
            await asyncio.wait_for(together.wait(), WITHIN_S)

        await killer.close()
        await eventually_works(db)
        await asyncio.gather(*(db.transact(meet) for _ in range(4)))
        assert backends(database) == 4

    on_database(Profile(dsn=database, connections_max=4), work)
    eventually(lambda: backends(database) == 0, what="all sessions are closed")


async def eventually_works(db: Database) -> None:
    """Sessions that were cut a moment ago may still be in the pool, one error each."""
    for _ in range(20):
        try:
            await asyncio.gather(*(db.fetch("pods.live_types") for _ in range(4)))
        except UnavailableError:
            continue
        return
    pytest.fail("the database does not work again")


def test_cancelled_work_is_rolled_back_by_the_server(database: str) -> None:
    async def work(db: Database) -> None:
        wrote = asyncio.Event()

        async def write_and_wait(connection: Any) -> None:
            await connection.execute("SELECT pg_advisory_xact_lock(7)")
            wrote.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(db.transact(write_and_wait))
        await wrote.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # The lock is free as soon as the server has noticed.
        await db.transact(execute("SELECT pg_advisory_xact_lock(7)"))

    on_database(Profile(dsn=database), work)


# --- restarts


@pytest.mark.parametrize("how", ["stop", "stop_immediate", "kill"])
def test_server_restart_between_calls_is_an_outage(
    private_postgres: PrivatePostgres, how: str
) -> None:
    async def work(db: Database) -> None:
        await asyncio.gather(*(db.transact(execute("SELECT 1")) for _ in range(4)))
        await asyncio.to_thread(getattr(private_postgres, how))
        for _ in range(5):
            error = await raised_by(db.transact(execute("SELECT 1")))
            assert isinstance(error, UnavailableError), error
        await asyncio.to_thread(private_postgres.start)
        assert await db.transact(execute("SELECT 1"))

    on_database(Profile(dsn=private_postgres.dsn, role=None), work)


def test_a_session_has_the_settings_that_free_its_locks(database: str) -> None:
    async def work(db: Database) -> None:
        async def shown(connection: Any) -> dict[str, str]:
            rows = await connection.fetch(
                "SELECT name, current_setting(name) AS now FROM pg_settings"
            )
            role = await connection.fetchval("SELECT current_user")
            return {"role": role} | {row["name"]: row["now"] for row in rows}

        settings: dict[str, str] = await db.transact(shown)
        expected = {
            "statement_timeout": "5s",
            "lock_timeout": "2s",
            "idle_in_transaction_session_timeout": "10s",
            "transaction_timeout": "15s",
            "client_connection_check_interval": "1s",
            "TimeZone": "UTC",
            "role": "cortex_runtime",
            "plan_cache_mode": "force_generic_plan",
        }
        assert {name: settings[name] for name in expected} == expected

    on_database(Profile(dsn=database, hot_path=True), work)


def test_half_prepared_transaction_times_out_and_frees_its_locks(
    database: str,
) -> None:
    """Postgres does not call it idle once a statement is prepared, nor lets that one time out."""
    held = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 42"

    async def work() -> None:
        stopped = await Profile(dsn=database).connect()
        await stopped.execute("SET transaction_timeout = '500ms'")
        await stopped.execute("SET idle_in_transaction_session_timeout = '50ms'")
        await stopped.execute("SET statement_timeout = '50ms'")
        began = monotonic()
        await stopped.execute("BEGIN; SELECT pg_advisory_xact_lock(42)")
        await stopped.prepare("SELECT 1")
        assert sql(database, held)
        eventually(lambda: not sql(database, held), what="the transaction is ended")
        assert monotonic() - began > 0.4, "no other bound ends it"
        stopped.terminate()

    run_asyncio(work)
