"""A tenant with a cap does not fill the queue beyond it, whoever asks and however."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

import asyncpg
import pytest

from cortex.domain.errors import CapReachedError
from cortex.postgres.session import Session
from cortex.store import jobs
from tests.support.records.dead_letters import fail
from tests.support.records.factories import a_submission
from tests.support.records.rows import new_id
from tests.support.servers.http_server import Answered, HttpServer
from tests.support.servers.postgres import run_asyncio, sql


@pytest.fixture
def capped(shared_database: str) -> Iterator[str]:
    """A tenant that may have three unfinished jobs and 1,000 bytes of payloads."""
    name = f"capped-{new_id()}"
    cap = "INSERT INTO cortex.tenant_cap VALUES ($1, 3, 1000, 'ana', now(), 'test')"
    sql(shared_database, cap, name)
    yield name
    sql(shared_database, "DELETE FROM cortex.tenant_cap WHERE tenant = $1", name)


SUBMIT: Final = "SELECT cortex.submit_job('work', $2, tenant => $1, id => $3) AS id"


def test_a_cap_refuses_jobs_until_some_have_ended(shared_database: str, capped: str) -> None:
    ids = [new_id() for _ in range(3)]
    for each in ids:
        sql(shared_database, SUBMIT, capped, "{}", each)
    with pytest.raises(asyncpg.CheckViolationError, match="has 3 of at most 3 jobs"):
        sql(shared_database, SUBMIT, capped, "{}", new_id())
    sql(shared_database, SUBMIT, capped, "{}", ids[0])  # again, as after a lost reply
    sql(shared_database, SUBMIT, "bolt", "{}", new_id())
    sql(shared_database, "UPDATE cortex.job_record SET status = 'CANCELLED', cancelled_by = 'ana', "
        "worker_job_id = NULL WHERE id = $1", ids[0])  # fmt: skip
    sql(shared_database, SUBMIT, capped, "{}", new_id())


def test_a_cap_of_bytes_refuses_large_payloads(shared_database: str, capped: str) -> None:
    large = json.dumps({"text": "".join(chr(32 + n % 90) for n in range(600))})
    sql(shared_database, SUBMIT, capped, large, new_id())
    with pytest.raises(asyncpg.CheckViolationError, match="of at most 1000 bytes"):
        sql(shared_database, SUBMIT, capped, large, new_id())


def test_a_batch_beyond_the_cap_is_refused_whole(store: Session, capped: str) -> None:
    batch = [a_submission(tenant=capped) for _ in range(4)]
    with pytest.raises(CapReachedError) as caught:
        store(jobs.submit, batch)
    assert caught.value.code == "cap_reached"
    assert store(jobs.submit, batch[:3]).new == {each.id for each in batch[:3]}


def test_submits_at_once_do_not_exceed_the_cap(shared_database: str, capped: str) -> None:
    async def one() -> bool:
        connection = await asyncpg.connect(shared_database)
        try:
            await connection.execute(SUBMIT, capped, "{}", new_id())
        except asyncpg.CheckViolationError:
            return False
        finally:
            await connection.close()
        return True

    async def eight() -> list[bool]:
        return await asyncio.gather(*(one() for _ in range(8)))

    assert sum(run_asyncio(eight)) == 3


def test_the_api_answers_beyond_the_cap_with_429(server: HttpServer, capped: str) -> None:
    token = server.token("operator", tenant=capped)
    answers = [server.post("/v1/jobs", token=token, json_body={"type": "work"}) for _ in range(4)]
    assert [each.status for each in answers] == [201, 201, 201, 429]
    assert answers[3].json["code"] == "cap_reached"
    assert int(answers[3].headers["retry-after"]) >= 1


def test_no_caller_evades_the_cap_by_the_type_of_the_runtimes_messages(
    server: HttpServer, capped: str
) -> None:
    token = server.token("submitter", name="sub", tenant=capped)
    body = {"type": "send_notification", "payload": {"text": "hello"}}
    answers = [server.post("/v1/jobs", token=token, json_body=body) for _ in range(4)]
    assert [each.status for each in answers] == [201, 201, 201, 429]
    note = "SELECT cortex.submit_job('send_notification', tenant => $1)"  # as by a pod, unasked
    assert sql(server.dsn, note, capped)


@pytest.mark.parametrize("way", ["jobs/JOB/retry", "dead-letters/JOB/retry", "dead-letters/retry"])
def test_retries_do_not_exceed_the_cap(server: HttpServer, capped: str, way: str) -> None:
    of_it = {"tenant": capped}
    failed = [
        *fail(server.dsn, 2, submitted=of_it),
        *fail(server.dsn, 2, submitted=of_it),
    ]
    token = server.token("operator", tenant=capped)

    def retry(job_id: UUID) -> Answered:
        body: dict[str, Any] = {"reason": "because"}
        if "JOB" not in way:
            body["job_ids"] = [str(job_id)]
        return server.post(f"/v1/{way.replace('JOB', str(job_id))}", token=token, json_body=body)

    answers = [retry(each) for each in failed]
    assert [each.status for each in answers] == [200, 200, 200, 429]
    assert answers[3].json["code"] == "cap_reached"
    assert "retry-after" in answers[3].headers
    query = "SELECT state FROM cortex.dead_letter WHERE job_id = $1"
    assert sql(server.dsn, query, failed[3])[0]["state"] == "OPEN"
