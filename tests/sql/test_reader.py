"""The reader role can fill every screen, and can neither read secrets nor change anything."""

import re
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from cortex.domain.drain import Moved
from cortex.domain.errors import CortexError
from cortex.domain.job_filter import JobFilter
from cortex.domain.queueing.pauses import Pausable, PauseKind
from cortex.postgres.database import READER_ROLE, Profile
from cortex.postgres.migrate import migrations
from cortex.postgres.session import Session, open_session
from cortex.store import breakers, dead_letters, drains, jobs, pauses, pods, queues, why
from cortex.store.breakers import past
from cortex.store.job_choice import choose_to_cancel, choose_to_retry
from cortex.store.job_pages import page
from cortex.view.why import Cause
from cortex.view.why import why as told_by
from tests.support.servers.postgres import run_asyncio, sql

TABLES = """
    SELECT oid::regclass::text AS name FROM pg_class
    WHERE relkind IN ('r', 'p')
      AND relnamespace IN ('cortex'::regnamespace, 'cortex_worker'::regnamespace)
"""
HIDDEN = {
    "cortex.api_token",
    "cortex.api_session",
    "cortex.idempotency_key",
    "cortex.waiting_client",
    "cortex.watch",
}
NO_ROLES = """
    DO $$
    BEGIN
        CREATE ROLE reader_test_plain NOLOGIN;
    EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
    END $$;
"""

AS_JOB = "CREATE TEMP TABLE forged (LIKE cortex.job)"
OF_INSERT = """
    CREATE TRIGGER forge AFTER INSERT ON forged REFERENCING NEW TABLE AS inserted
    FOR EACH STATEMENT EXECUTE FUNCTION cortex.job_history_of_insert();
"""
OF_UPDATE = """
    CREATE TRIGGER forge AFTER UPDATE ON forged
    REFERENCING OLD TABLE AS before NEW TABLE AS after
    FOR EACH STATEMENT EXECUTE FUNCTION cortex.job_history_of_update();
"""
OF_ROW = """
    CREATE TRIGGER forge AFTER INSERT ON forged
    FOR EACH ROW EXECUTE FUNCTION cortex.%s();
"""
FORGE = """
    INSERT INTO forged SELECT * FROM cortex.job;
    UPDATE forged SET status = 'FAILED';
"""
RECORD = """
    SELECT (SELECT count(*) FROM cortex.job_history) AS history,
           (SELECT count(*) FROM cortex.dead_letter) AS letters
"""


@pytest.fixture
def reader(database: str) -> Iterator[Session]:
    """Calls store methods in the reader role."""
    with open_session(Profile(dsn=database, role=READER_ROLE)) as session:
        yield session


def test_reader_can_fill_every_screen(
    reader: Session, submit: Callable[..., UUID], enter_pod: Callable[[int], UUID]
) -> None:
    job_id, pod_id = submit(queue_name="mail"), enter_pod(7)
    assert reader(jobs.show, job_id).id == job_id
    assert [row.id for row in reader(page, JobFilter()).jobs] == [job_id]
    assert reader(jobs.follow, job_id).id == job_id
    assert [row.id for row in reader(pods.page)] == [pod_id]
    assert [row.queue for row in reader(queues.page)] == [None, "mail"]
    assert told_by(reader(why.facts_of, job_id)).cause is Cause.NO_PODS
    assert reader(drains.moved, pod_id) == Moved(groups=(), is_whole=True)
    assert reader(breakers.page) == []
    assert reader(past, ["llm:x"])["llm:x"].turns == ()
    assert reader(dead_letters.groups, limit=10) == []
    assert reader(choose_to_cancel, JobFilter(), limit=10).job_ids == [job_id]
    assert reader(choose_to_retry, JobFilter(), limit=10).job_ids == []
    assert not reader(drains.is_requested, pod_id)


def test_each_act_is_refused_by_the_database(
    reader: Session, submit: Callable[..., UUID], enter_pod: Callable[[int], UUID]
) -> None:
    job_id, pod_id = submit(), enter_pod(7)
    who: dict[str, Any] = {"by": "ana", "reason": "x"}
    for act in (
        lambda: reader(jobs.cancel, job_id, **who),
        lambda: reader(pauses.pause, Pausable(PauseKind.QUEUE), **who),
        lambda: reader(drains.request, pod_id, **who),
        lambda: reader(breakers.force_open, "llm:x", **who),
        lambda: reader(breakers.freeze, **who),
    ):
        with pytest.raises(CortexError, match="permission denied"):
            act()
    assert reader(jobs.show, job_id).cancel_requested_at is None


def test_reader_can_neither_write_nor_read_secrets(database: str) -> None:
    dsn = f"{database}&role={READER_ROLE}"
    names = {row["name"] for row in sql(database, TABLES)}
    assert names > HIDDEN
    for name in names:
        for right in ("INSERT", "UPDATE", "DELETE", "TRUNCATE"):
            query = "SELECT has_table_privilege($1, $2, $3) OR has_any_column_privilege($1, $2, $4)"
            of_columns = right if right in ("INSERT", "UPDATE") else "REFERENCES"
            (row,) = sql(database, query, READER_ROLE, name, right, of_columns)
            assert not row[0], (name, right)
    for name in HIDDEN:
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match=name.partition(".")[2]):
            sql(dsn, f"SELECT FROM {name}")
    for column in ("token_digest", "spent_digest"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="approval"):
            sql(dsn, f"SELECT {column} FROM cortex.approval")  # noqa: S608 -- from here
    assert sql(dsn, "SELECT id, arguments FROM cortex.approval") == []


@pytest.mark.parametrize(
    "trigger",
    [OF_INSERT, OF_UPDATE, OF_ROW % "dead_letter_of_failure", OF_ROW % "job_closes"],
    ids=["insert", "update", "dead letter", "closes"],
)
def test_reader_cannot_forge_the_record_with_triggers(
    database: str, submit: Callable[..., UUID], trigger: str
) -> None:
    submit()
    (before,) = sql(database, RECORD)

    async def forge() -> None:
        connection = await asyncpg.connect(f"{database}&role={READER_ROLE}")
        try:
            await connection.execute(AS_JOB)
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match="permission denied"):
                await connection.execute(trigger + FORGE)
        finally:
            await connection.close(timeout=5)  # noqa: ASYNC102 -- bounded

    run_asyncio(forge)
    assert sql(database, RECORD) == [before]


def test_a_migration_that_may_make_no_roles_passes_all_the_same(database: str) -> None:
    """Its role statements are run again by one who has no right to them, without the role."""
    (migration,) = (each for each in migrations() if each.name == "readonly")
    blocks = re.findall(r"^DO \$\$.*?^END \$\$;", migration.text, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 1

    async def run() -> None:
        connection = await asyncpg.connect(database)
        try:
            await connection.execute(NO_ROLES)
            await connection.execute("SET ROLE reader_test_plain")
            for block in blocks:
                await connection.execute(block.replace("cortex_reader", "cortex_reader_of_nobody"))
            assert not await connection.fetchval(
                "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = 'cortex_reader_of_nobody')"
            )
        finally:
            await connection.close(timeout=5)  # noqa: ASYNC102 -- bounded

    run_asyncio(run)
