"""`--idempotency-key`: a command that is run again under its key reports its first outcome."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import asyncpg
import pytest

from cortex.cli import idempotent
from cortex.cli.idempotent import mutate
from cortex.cli.options import Format, Options
from cortex.cli.screen.output import Output
from cortex.domain.drain import Liveness
from cortex.domain.errors import ConflictError, OutcomeUnknownError
from cortex.domain.idempotency import KEY_TTL_S
from cortex.postgres.database import Database, Profile
from cortex.postgres.session import Session, open_session
from cortex.store import jobs
from tests.support.command_line import Cortex
from tests.support.eventually import WITHIN_S, eventually
from tests.support.in_process import Ended
from tests.support.life import Life
from tests.support.records.factories import a_submission
from tests.support.records.rows import job_count, move_clock
from tests.support.servers.postgres import sql

KEY = ("--idempotency-key", "order-7")
REPLAYED = "nothing was done: this is the first result of key order-7\n"
HOLD = """
    SELECT pg_advisory_lock(
        hashtextextended('cortex.idempotency ', 0) # hashtextextended('order-7', 0))
"""
ASKED = """
    SELECT FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'cortex' AND query LIKE 'COMMIT%'
"""
"""Who has just ended a transaction: the one that holds the key, and those who asked in vain."""
AGENT = "name: researcher\nmodel: claude-sonnet-4-5\nsystem: Find out.\ntools: [read_file]\n"


@pytest.fixture
def call(database: str) -> Iterator[Session]:
    """A session with the right to end itself."""
    with open_session(Profile(dsn=database, role=None)) as opened:
        yield opened


@pytest.fixture
def other(database: str) -> Iterator[Session]:
    """Somebody else's session."""
    with open_session(Profile(dsn=database, connections_max=1)) as opened:
        yield opened


async def hold_key(db: Database) -> None:
    """Keep the key in use until the session's only connection goes."""
    await db.transact(lambda connection: connection.fetch(HOLD))


def submit(cortex: Cortex, *more: str) -> Ended:
    return cortex("jobs", "submit", "digest", *more, *KEY)


# --- the commands


def test_a_job_is_submitted_once(cortex: Cortex, life: Life, database: str) -> None:
    life.type()
    life.pod(liveness=Liveness.HEARTBEAT)
    first = submit(cortex, "--arg", "a=1", "--payload", '{"b": 2}')
    again = submit(cortex, "--payload", '{"b": 2,  "a": 1}')
    assert (first.code, first.err) == (0, "")
    assert (again.code, again.out, again.err) == (0, first.out, REPLAYED)
    document = submit(cortex, "--payload", '{"a": 1, "b": 2}', "--json").document
    assert document["replayed"] is True
    assert document["job"]["id"] == first.out.strip()
    assert job_count(database, "true") == 1


def test_the_first_answer_is_not_marked(cortex: Cortex, life: Life) -> None:
    life.type()
    assert "replayed" not in submit(cortex, "--json").document
    assert "replayed" not in cortex("jobs", "submit", "digest", "--json").document


def test_eight_processes_at_once_submit_one_job(cortex: Cortex, life: Life, database: str) -> None:
    life.type()
    life.pod(liveness=Liveness.HEARTBEAT)
    with ThreadPoolExecutor(8) as threads:
        ended = list(
            threads.map(lambda _: cortex.process("jobs", "submit", "digest", *KEY), range(8))
        )
    assert {each.code for each in ended} == {0}
    assert len({UUID(each.out.strip()) for each in ended}) == 1
    assert sorted(each.err for each in ended) == ["", *[REPLAYED] * 7]
    assert job_count(database, "true") == 1


def test_another_request_needs_another_key(cortex: Cortex, life: Life, database: str) -> None:
    life.type()
    submit(cortex)
    for different in (["--priority", "1"], ["--arg", "a=1"], ["--key", "k"]):
        ended = submit(cortex, *different, "--json")
        assert (ended.code, ended.error["code"]) == (2, "key_reused")
        assert "'order-7' was used for another request: jobs.submit" in ended.error["message"]
    assert cortex("agents", "apply", "-", *KEY, stdin=AGENT).code == 2
    assert job_count(database, "true") == 1


def test_a_day_later_it_is_another_job(cortex: Cortex, life: Life, database: str) -> None:
    life.type()
    first = submit(cortex)
    move_clock(database, KEY_TTL_S + 60)
    assert submit(cortex).out != first.out
    assert job_count(database, "true") == 2


def test_error_is_replayed_although_its_cause_is_gone(cortex: Cortex, life: Life) -> None:
    life.type()
    first = submit(cortex, "--agent", "researcher")
    life.agent()
    again = submit(cortex, "--agent", "researcher")
    assert first.code == again.code == 3
    assert first.err.splitlines()[0] == again.err.splitlines()[0]
    assert "to try it anew, take another key" in again.err


def test_cancel_under_a_key_replays_successes_and_failures(cortex: Cortex, life: Life) -> None:
    failed, waiting = str(life.failed()), str(life.job())
    command = ("jobs", "cancel", failed, waiting, "--yes", "--as", "ana", *KEY)
    first, again = cortex(*command), cortex(*command)
    assert first.code == again.code == 5
    assert first.out == again.out
    assert again.err == REPLAYED + first.err
    rows = cortex(*command, "--json").document
    assert rows["replayed"] is True
    assert [(row["id"], row["status"], row["error"]) for row in rows["jobs"]] == [
        (failed, None, "conflict"),
        (waiting, "CANCELLED", None),
    ]
    without_key = cortex("jobs", "cancel", waiting, "--yes", "--json")
    assert without_key.document["jobs"][0]["error"] == "conflict"
    assert len(life.sql("SELECT FROM cortex.job_history WHERE new = 'CANCELLED'")) == 1


def test_order_of_jobs_does_not_change_a_request_but_its_person_does(
    cortex: Cortex, life: Life
) -> None:
    one, two = str(life.job()), str(life.job())
    cancel = ("jobs", "cancel", "--yes", *KEY)
    assert cortex(*cancel, one, two, "--as", "ana").code == 0
    assert cortex(*cancel, two, one, "--as", "ana").err == REPLAYED
    assert cortex(*cancel, one, two, "--as", "bob").code == 2
    assert cortex(*cancel, one, "--as", "ana").code == 2


def test_agents_are_applied_once(cortex: Cortex) -> None:
    (cortex.folder / "a.yaml").write_text(AGENT.replace("researcher", "writer"))
    command = ("agents", "apply", "a.yaml", "-", "--as", "ana")
    first = cortex(*command, *KEY, "-o", "jsonl", stdin=AGENT)
    again = cortex(*command, *KEY, "-o", "jsonl", stdin=AGENT)
    assert [row["change"] for row in first.documents] == ["created", "created"]
    assert again.documents == [row | {"replayed": True} for row in first.documents]
    assert again.err == REPLAYED
    without_key = cortex(*command, "-o", "jsonl", stdin=AGENT)
    assert [row["change"] for row in without_key.documents] == ["unchanged", "unchanged"]
    different = cortex(*command, *KEY, stdin=AGENT.replace("Find out.", "Sing."))
    assert different.code == 2


@pytest.mark.parametrize(
    "key, text",
    [
        ("", "must not be empty"),
        ("two words", "visible ASCII characters only"),
        ("\u202e", "visible ASCII characters only"),
        ("x" * 256, "of 256 characters is longer than 255"),
    ],
)
def test_odd_keys_are_wrong_usage(cortex: Cortex, life: Life, key: str, text: str) -> None:
    life.type()
    ended = cortex("jobs", "submit", "digest", "--idempotency-key", key)
    assert ended.code == 2
    assert "invalid value for '--idempotency-key'" in ended.err
    assert text in ended.err
    assert ended.err.isascii()
    assert life.sql("SELECT FROM cortex.job") == []


def test_a_command_waits_for_its_twin(cortex: Cortex, life: Life, database: str) -> None:
    life.type()
    life.pod(liveness=Liveness.HEARTBEAT)
    with open_session(Profile(dsn=database, connections_max=1)) as other:
        other(hold_key)
        started = cortex.start("jobs", "submit", "digest", *KEY)
        eventually(lambda: len(sql(database, ASKED)) == 2, what="the command asked for the key")
        assert started.poll() is None
        assert job_count(database, "true") == 0
    out, err = started.communicate(timeout=WITHIN_S)
    assert (started.returncode, err) == (0, "")
    assert job_count(database, f"id = '{out.strip()}'") == 1


# --- the loop below them


def a_write(call: Session, *, key: str | None = KEY[1], lost_count: int = 0) -> str:
    """Submit a job; the connection breaks the first few times."""
    output = Output(Options(output=Format.JSON))
    losses = iter(range(lost_count))

    async def work(db: Database) -> str:
        submission = a_submission()
        await jobs.submit(db, [submission])
        if next(losses, None) is not None:
            await db.transact(_break)
        return str(submission.id)

    answer = mutate(call, work, output=output, key=key, operation="test", request={})
    return str(answer)


async def _break(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    await connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")


def test_a_twin_that_does_not_end_is_a_conflict(
    call: Session, other: Session, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotent, "PENDING_MAX_S", 0.2)
    other(hold_key)
    with pytest.raises(
        ConflictError, match="a request with key 'order-7' is in progress"
    ) as caught:
        a_write(call)
    assert caught.value.exit_code == 5
    assert job_count(database, "true") == 0


def test_a_lost_connection_is_made_good_under_a_key(call: Session, database: str) -> None:
    job_id = a_write(call, lost_count=2)
    assert job_count(database, f"id = '{job_id}'") == job_count(database, "true") == 1


def test_lost_replies_are_retried_a_bounded_number_of_times(call: Session, database: str) -> None:
    with pytest.raises(OutcomeUnknownError, match="the outcome is unknown") as caught:
        a_write(call, lost_count=3)
    assert caught.value.hint is not None
    assert "the same --idempotency-key" in caught.value.hint
    assert job_count(database, "true") == 0


def test_command_without_a_key_is_never_repeated(call: Session, database: str) -> None:
    with pytest.raises(OutcomeUnknownError):
        a_write(call, key=None, lost_count=1)
    assert job_count(database, "true") == 1
