"""Files in the database: once for each lineage and content, within a bound, copied with it."""

import asyncio
from collections.abc import Iterator
from hashlib import sha256
from uuid import UUID

import asyncpg
import orjson
import pytest

from cortex.domain.errors import RejectedError
from cortex.domain.file import JOB_BYTES_MAX
from cortex.postgres.database import Profile
from cortex.postgres.session import Session
from cortex.store import files
from tests.options.files import png
from tests.support.eventually import eventually
from tests.support.records.ended import an_ended_job
from tests.support.records.rows import new_id
from tests.support.servers.kept_sessions import kept_session
from tests.support.servers.postgres import database_of, run_asyncio, sql

PHOTO = png(2, 2)
DIGEST = sha256(PHOTO).hexdigest()
COUNT = "SELECT count(*) AS n FROM cortex.job_file"


@pytest.fixture
def store(database: str) -> Iterator[Session]:
    """Calls store methods with the role and the settings of a pod's sessions."""
    with kept_session(Profile(dsn=database, hot_path=True)) as session:
        yield session


def keep(store: Session, lineage_id: UUID, content: bytes = PHOTO) -> None:
    store(
        files.keep,
        lineage_id=lineage_id,
        sha256=sha256(content).hexdigest(),
        media_type="image/png",
        content=content,
    )


def test_file_is_kept_once_for_each_lineage(store: Session, database: str) -> None:
    one, other = new_id(), new_id()
    for lineage_id in (one, one, other):
        keep(store, lineage_id)
    assert sql(database, COUNT)[0]["n"] == 2
    assert store(files.content, lineage_id=one, sha256=DIGEST) == PHOTO
    assert store(files.content, lineage_id=new_id(), sha256=DIGEST) is None


def test_file_that_two_calls_keep_at_once_is_kept(store: Session, database: str) -> None:
    """Calls of one turn run at once, and may return the same picture."""
    job_id = new_id()
    waiting = "SELECT FROM pg_stat_activity WHERE datname = $1 AND wait_event_type = 'Lock'"

    async def run() -> None:
        other = await asyncpg.connect(database)
        transaction = other.transaction()
        await transaction.start()
        await other.execute(
            "INSERT INTO cortex.job_file (job_id, sha256, media_type, size, content) "
            "VALUES ($1, $2, 'image/png', $3, $4)",
            job_id,
            bytes.fromhex(DIGEST),
            len(PHOTO),
            PHOTO,
        )
        second = asyncio.create_task(asyncio.to_thread(keep, store, job_id))
        here = database_of(database)
        await asyncio.to_thread(
            eventually, lambda: bool(sql(database, waiting, here)), what="the second waits"
        )
        await transaction.commit()
        await second
        await other.close()

    run_asyncio(run)
    assert sql(database, COUNT)[0]["n"] == 1


def test_files_of_a_job_are_bounded(store: Session, database: str) -> None:
    job_id = new_id()
    keep(store, job_id)
    sql(database, "ALTER TABLE cortex.job_file DROP CONSTRAINT size_is_that_of_the_content")
    sql(database, "ALTER TABLE cortex.job_file DROP CONSTRAINT job_file_size_check")
    sql(
        database,
        "INSERT INTO cortex.job_file (job_id, sha256, media_type, size, content) "
        "VALUES ($1, sha256('a'), 'image/png', $2, 'a')",
        job_id,
        JOB_BYTES_MAX - len(PHOTO),
    )
    keep(store, job_id)  # it is there already
    with pytest.raises(RejectedError, match="have more than 134,217,728 bytes in all"):
        keep(store, job_id, png(3, 3))
    keep(store, new_id(), png(3, 3))


def test_copy_of_a_lineage_has_its_files(store: Session, database: str) -> None:
    job_id = an_ended_job(database)
    keep(store, job_id)

    async def copied(db: object) -> list[str]:
        rows = await db.fetch("retention.copy_of_lineage", job_id)  # type: ignore[attr-defined]
        return [row["line"] for row in rows]

    lines = [orjson.loads(line) for line in store(copied)]
    (row,) = [each["row"] for each in lines if each["table"] == "job_file"]
    assert (row["sha256"], row["size"]) == (DIGEST, len(PHOTO))
    assert row["base64"].startswith("iVBOR")
    assert "\n" not in row["base64"]
