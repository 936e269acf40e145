"""Idempotency keys: two requests with one key take effect once, whatever fails in between."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import asyncpg
import attrs
import pytest

from cortex.domain.errors import (
    ConflictError,
    CortexError,
    ForbiddenError,
    InvalidValueError,
    KeyReusedError,
    NotFoundError,
    OutcomeUnknownError,
    RejectedError,
    SchemaError,
    UnavailableError,
    UsageError,
)
from cortex.domain.idempotency import (
    KEY_LENGTH_MAX,
    KEY_TTL_S,
    RESPONSE_BYTES_MAX,
    KeyPendingError,
    checked_key,
    request_digest,
)
from cortex.domain.job import JobStatus
from cortex.postgres.database import Database, Profile, open_database
from cortex.postgres.queries import sql as query_text
from cortex.postgres.session import Session
from cortex.store import jobs, specs
from cortex.store.idempotency import GuardedResponse, Work, guarded, sweep
from cortex.store.specs import SpecKind
from tests.support.records.factories import a_submission
from tests.support.records.rows import job_count, move_clock, new_id, seeded_random
from tests.support.servers.postgres import run_asyncio, sql

SUBMIT = "jobs.submit"
ASKED = {"type": "work"}
DIGEST = request_digest(SUBMIT, ASKED)


def ask(
    store: Session, key: str, work: Work, request: dict[str, Any] | None = None
) -> GuardedResponse:
    return store(
        guarded, key, operation=SUBMIT, digest=request_digest(SUBMIT, request or ASKED), work=work
    )


async def submit_one(db: Database) -> dict[str, object]:
    submission = a_submission()
    await jobs.submit(db, [submission])
    return {"id": submission.id}


async def must_not_run(_: Database) -> object:
    raise AssertionError("it was done again")


def fails_with(error: Exception) -> Work:
    """Work that submits a job and then fails."""

    async def work(db: Database) -> object:
        await submit_one(db)
        raise error

    return work


def row_of(dsn: str, key: str) -> dict[str, Any] | None:
    rows = sql(dsn, "SELECT * FROM cortex.idempotency_key WHERE key = $1", key)
    return dict(rows[0]) if rows else None


def on_pool(dsn: str, work: Callable[[Database], Awaitable[Any]], *, connections: int = 4) -> Any:
    async def main() -> Any:
        profile = Profile(dsn=dsn, connections_max=connections)
        db = await open_database(profile, rng=seeded_random())
        try:
            return await work(db)
        finally:
            await db.close()

    return run_asyncio(main)


# --- once


def test_repeated_key_replays_the_first_response(store: Session, database: str) -> None:
    first = ask(store, "k", submit_one)
    assert not first.is_replayed
    again = ask(store, "k", must_not_run)
    assert (again.response, again.is_replayed) == (first.response, True)
    assert job_count(database, f"id = '{first.response['id']}'") == job_count(database, "true") == 1
    row = row_of(database, "k")
    assert row is not None
    assert (row["status"], row["operation"]) == ("completed", SUBMIT)
    assert (row["expires_at"] - row["created_at"]).total_seconds() == KEY_TTL_S


def test_hundred_concurrent_calls_under_a_key_make_one_job(database: str) -> None:
    async def until_told(db: Database) -> str:
        while True:
            try:
                answer = await guarded(db, "k", operation=SUBMIT, digest=DIGEST, work=submit_one)
                return str(answer.response["id"])
            except KeyPendingError:
                continue

    async def all_at_once(db: Database) -> list[str]:
        return await asyncio.gather(*(until_told(db) for _ in range(100)))

    output = on_pool(database, all_at_once, connections=12)
    assert len(output) == 100
    assert len(set(output)) == 1
    assert job_count(database, "true") == 1


def test_other_keys_and_no_keys_do_not_meet(store: Session, database: str) -> None:
    ids = {ask(store, key, submit_one).response["id"] for key in ("a", "b", "A", "a/1")}
    assert len(ids) == job_count(database, "true") == 4


def test_a_key_for_another_request_is_refused(store: Session, database: str) -> None:
    ask(store, "k", submit_one)
    for operation, request in (
        (SUBMIT, {"type": "other"}),
        (SUBMIT, {"type": "work", "agent": None}),
        ("jobs.cancel", ASKED),
    ):
        with pytest.raises(KeyReusedError, match="key 'k' was used for another request"):
            store(
                guarded,
                "k",
                operation=operation,
                digest=request_digest(operation, request),
                work=must_not_run,
            )
    assert job_count(database, "true") == 1


def test_key_in_progress_conflicts_at_once(database: str) -> None:
    async def work(db: Database) -> None:
        begun, finish = asyncio.Event(), asyncio.Event()

        async def slow(bound: Database) -> object:
            begun.set()
            await finish.wait()
            return await submit_one(bound)

        first = asyncio.create_task(guarded(db, "k", operation=SUBMIT, digest=DIGEST, work=slow))
        await begun.wait()
        for request in (ASKED, {"type": "other"}):  # there is nothing to compare with yet
            with pytest.raises(ConflictError, match="a request with key 'k' is in progress"):
                await guarded(
                    db,
                    "k",
                    operation=SUBMIT,
                    digest=request_digest(SUBMIT, request),
                    work=must_not_run,
                )
        await guarded(db, "other", operation=SUBMIT, digest=DIGEST, work=submit_one)
        finish.set()
        output = (await first).response
        again = await guarded(db, "k", operation=SUBMIT, digest=DIGEST, work=must_not_run)
        assert again.response == output

    on_pool(database, work)


# --- whatever comes between


def test_a_connection_that_dies_on_the_way_frees_the_key(store: Session, database: str) -> None:
    async def killed(db: Database) -> object:
        await submit_one(db)
        (row,) = await db.transact(lambda connection: connection.fetch("SELECT pg_backend_pid()"))
        other = await asyncpg.connect(database)
        await other.fetch("SELECT pg_terminate_backend($1)", row[0])
        await other.close()
        return await submit_one(db)

    with pytest.raises(OutcomeUnknownError):
        ask(store, "k", killed)
    assert row_of(database, "k") is None
    assert job_count(database, "true") == 0
    assert not ask(store, "k", submit_one).is_replayed
    assert job_count(database, "true") == 1


def test_a_lost_reply_is_asked_for_again(store: Session, database: str) -> None:
    """The commit happened, but its answer was lost: the key shows it."""
    committed: list[GuardedResponse] = []

    async def commits_and_loses(db: Database) -> GuardedResponse:
        committed.append(await guarded(db, "k", operation=SUBMIT, digest=DIGEST, work=submit_one))
        raise OutcomeUnknownError("the connection to the database broke")

    with pytest.raises(OutcomeUnknownError):
        store(commits_and_loses)
    assert ask(store, "k", must_not_run).response == committed[0].response
    assert job_count(database, "true") == 1


def test_a_deadlock_is_met_by_doing_all_of_it_again(store: Session, database: str) -> None:
    tries: list[int] = []

    async def deadlocks_once(db: Database) -> object:
        done = await submit_one(db)
        tries.append(1)
        if len(tries) == 1:
            await db.transact(
                lambda connection: connection.execute(
                    "DO $$ BEGIN RAISE EXCEPTION 'deadlock' USING ERRCODE = '40P01'; END $$"
                )
            )
        return done

    assert not ask(store, "k", deadlocks_once).is_replayed
    assert len(tries) == 2
    assert job_count(database, "true") == 1


@pytest.mark.parametrize(
    "error",
    [
        UsageError("wrong", hint="so it is right"),
        NotFoundError("nothing there"),
        ForbiddenError("not you"),
        ConflictError("ended already"),
        RejectedError("never \ud800 and \0"),
        InvalidValueError("NaN"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_permanent_error_undoes_the_work_and_is_replayed(
    store: Session, database: str, error: CortexError
) -> None:
    with pytest.raises(type(error)) as first:
        ask(store, "k", fails_with(error))
    assert first.value is error
    with pytest.raises(type(error)) as again:
        ask(store, "k", must_not_run)
    assert type(again.value) is type(error)
    assert again.value.message.isprintable()
    assert again.value.message[:5] == error.message[:5]
    assert again.value.hint is not None
    assert again.value.hint.startswith(error.hint or "that was its first answer")
    assert "take another key" in again.value.hint
    assert job_count(database, "true") == 0
    row = row_of(database, "k")
    assert row is not None
    assert (row["status"], json.loads(row["error"])["code"]) == ("failed", error.code)
    with pytest.raises(KeyReusedError):
        ask(store, "k", must_not_run, {"type": "other"})


@pytest.mark.parametrize(
    "error",
    [UnavailableError("busy"), OutcomeUnknownError("gone"), SchemaError("old"), KeyError("a bug")],
    ids=lambda error: type(error).__name__,
)
def test_any_other_error_frees_the_key(store: Session, database: str, error: Exception) -> None:
    with pytest.raises((CortexError, KeyError)):
        ask(store, "k", fails_with(error))
    assert row_of(database, "k") is None
    assert job_count(database, "true") == 0
    assert not ask(store, "k", submit_one).is_replayed


def test_refusal_by_the_schema_is_replayed_as_permanent(store: Session, database: str) -> None:
    async def of_nobody(db: Database) -> object:
        return await jobs.submit(db, [a_submission(agent="nobody")])

    for work in (of_nobody, must_not_run):
        with pytest.raises(NotFoundError, match='agent "nobody" does not exist'):
            ask(store, "k", work)
    row = row_of(database, "k")
    assert row is not None
    assert json.loads(row["error"])["hint"] == "apply it first: cortex agents apply FILE"


def test_an_error_of_another_version_is_still_a_rejection(store: Session, database: str) -> None:
    with pytest.raises(RejectedError):
        ask(store, "k", fails_with(RejectedError("no")))
    unknown = json.dumps({"code": "of_tomorrow", "message": "no", "hint": None})
    sql(database, "UPDATE cortex.idempotency_key SET error = $1", unknown)
    with pytest.raises(RejectedError, match="no"):
        ask(store, "k", must_not_run)


def test_a_failed_call_inside_leaves_the_others_standing(store: Session, database: str) -> None:
    """Store methods run as on the pool: one that is refused by the database takes nothing along."""

    async def one_of_three(db: Database) -> object:
        output: list[object] = []
        for agent in (None, "nobody", None):
            try:
                output.append(await jobs.submit(db, [a_submission(agent=agent)]))
            except NotFoundError as error:
                output.append(error.code)
        return output

    first = ask(store, "k", one_of_three)
    assert first.response[1] == "not_found"
    assert job_count(database, "true") == 2


def test_methods_with_transactions_of_their_own_run_inside(store: Session, database: str) -> None:
    async def apply_and_submit(db: Database) -> object:
        version = await specs.apply(
            db, SpecKind.AGENT, new_id=new_id(), name="a", spec={"name": "a"}, by="ana"
        )
        await jobs.submit(db, [a_submission(agent="a")])
        return version

    assert ask(store, "k", apply_and_submit).response == [1, True]
    with pytest.raises(RejectedError):
        ask(store, "other", _then_reject(apply_and_submit))
    assert job_count(database, "true") == 1


def _then_reject(work: Work) -> Work:
    async def rejects(db: Database) -> object:
        await work(db)
        raise RejectedError("no")

    return rejects


# --- responses


@attrs.frozen
class Told:
    id: UUID
    status: JobStatus
    at: datetime
    cost: Decimal
    names: frozenset[str]


def test_a_response_is_the_same_json_both_times(store: Session) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    output = Told(UUID(int=7), JobStatus.RUNNING, at, Decimal("0.10"), frozenset("cab"))

    async def tell(_: Database) -> object:
        return [output]

    first, again = ask(store, "k", tell), ask(store, "k", must_not_run)
    assert first.response == again.response
    assert json.dumps(first.response) == json.dumps(again.response)
    assert first.response == [
        {
            "id": str(UUID(int=7)),
            "status": "RUNNING",
            "at": "2026-01-02T03:04:05.678000+00:00",
            "cost": "0.10",
            "names": ["a", "b", "c"],
        }
    ]


@pytest.mark.parametrize("response", ["x" * RESPONSE_BYTES_MAX, float("nan"), object(), {1j: 2}])
def test_a_response_that_cannot_be_kept_undoes_the_work(
    store: Session, database: str, response: object
) -> None:
    async def work(db: Database) -> object:
        await submit_one(db)
        return response

    with pytest.raises(InvalidValueError, match="response"):
        ask(store, "k", work)
    assert job_count(database, "true") == 0


# --- keys and requests


@pytest.mark.parametrize(
    "key, output",
    [
        ("", "must not be empty"),
        ("x" * (KEY_LENGTH_MAX + 1), "of 256 characters is longer than 255"),
        ("a\0b", r"'a\\x00b' may hold visible ASCII"),
        ("two words", "visible ASCII"),
        ("line\n", "visible ASCII"),
        ("tab\t", "visible ASCII"),
        ("schl\u00fcssel", r"'schl\\xfcssel'"),
        ("a\u202eb", r"'a\\u202eb'"),
        ("\udcff", r"'\\udcff'"),
    ],
)
def test_odd_keys_are_refused_before_anything_happens(
    store: Session, database: str, key: str, output: str
) -> None:
    with pytest.raises(UsageError, match=output):
        ask(store, key, must_not_run)
    assert sql(database, "SELECT FROM cortex.idempotency_key") == []


@pytest.mark.parametrize("key", ["k", "x" * KEY_LENGTH_MAX, "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"])
def test_visible_ascii_is_a_key(store: Session, key: str) -> None:
    assert checked_key(key) == key
    ask(store, key, submit_one)
    assert ask(store, key, must_not_run).is_replayed


def test_request_digest_ignores_field_order() -> None:
    one = request_digest("a", {"x": 1, "y": {"p": None, "q": [UUID(int=1), Decimal(2)]}})
    two = request_digest("a", {"y": {"q": [str(UUID(int=1)), "2"], "p": None}, "x": 1})
    assert one == two
    for other in ({"x": "1"}, {"x": 1, "y": None}, {"x": 2**70}, {"x": 1.5}):
        assert request_digest("a", other) != request_digest("a", {"x": 1})
    with pytest.raises(InvalidValueError, match="the request is not JSON"):
        request_digest("a", {"x": float("nan")})


# --- expiry


def test_expired_key_is_free_before_it_is_swept(store: Session, database: str) -> None:
    ask(store, "k", submit_one)
    with pytest.raises(RejectedError):
        ask(store, "f", fails_with(RejectedError("no")))
    move_clock(database, KEY_TTL_S - 60)
    assert ask(store, "k", must_not_run).is_replayed
    move_clock(database, KEY_TTL_S + 60)
    for key in ("k", "f"):
        assert not ask(store, key, submit_one, {"type": "other"}).is_replayed
        assert ask(store, key, must_not_run, {"type": "other"}).is_replayed
    assert job_count(database, "true") == 3


def test_only_expired_keys_are_swept_the_oldest_first(store: Session, database: str) -> None:
    for key in ("a", "b", "c"):
        ask(store, key, submit_one)
    move_clock(database, KEY_TTL_S / 2)
    ask(store, "young", submit_one)
    assert store(sweep, limit=10) == 0
    move_clock(database, KEY_TTL_S + 60)
    assert store(sweep, limit=2) == 2
    assert [row_of(database, key) is None for key in ("a", "b", "c")] == [True, True, False]
    assert store(sweep, limit=2) == 1
    assert store(sweep, limit=2) == 0
    assert ask(store, "young", must_not_run).is_replayed


def test_concurrent_sweeps_skip_locked_keys(database: str) -> None:
    fill = """
        INSERT INTO cortex.idempotency_key (key, digest, operation, expires_at)
        SELECT n::text, sha256(''), 'test', cortex.now() - n * interval '1 s'
        FROM generate_series(1, $1) n
    """
    sql(database, fill, 30)

    async def two_at_once(db: Database) -> tuple[int, int]:
        first_swept, finish = asyncio.Event(), asyncio.Event()

        async def hold(connection: Any) -> int:
            count = await sweep(db.bound(connection), limit=10)
            first_swept.set()
            await finish.wait()
            return count

        first = asyncio.create_task(db.transact(hold))
        await first_swept.wait()
        second = await sweep(db, limit=30)
        finish.set()
        return await first, second

    assert on_pool(database, two_at_once) == (10, 20)


def test_keys_are_found_by_index(database: str) -> None:
    fill = """
        INSERT INTO cortex.idempotency_key (key, digest, operation, expires_at)
        SELECT n::text, sha256(''), 'test', cortex.now() + (n - 10) * interval '1 s'
        FROM generate_series(1, 20000) n
    """
    sql(database, fill)
    settings = Profile(dsn=database, hot_path=True).settings

    async def plans() -> str:
        connection = await asyncpg.connect(database, server_settings=settings)
        output = ""
        for name, given in (
            ("sweep", "100"),
            ("stored", "'7', ''"),
            ("complete", "'7', '1', ''"),
            ("fail", "'7', NULL, ''"),
        ):
            await connection.execute(f"PREPARE p_{name} AS {query_text(f'idempotency.{name}')}")
            lines = await connection.fetch(f"EXPLAIN EXECUTE p_{name}({given})")
            output += "\n".join(line[0] for line in lines)
        await connection.close()
        return output

    output = run_asyncio(plans)
    assert "Seq Scan" not in output
    assert "idempotency_key_expiry" in output
