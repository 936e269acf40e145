"""Lasting troubles and requests for people are announced once, with their details."""

import asyncio
import json
import random
from typing import Any

import asyncpg
import pytest

from cortex.domain.failure import CREDENTIALS_REFUSED
from cortex.domain.messages.message import failed
from cortex.domain.policy import CODE_WAIT_S
from cortex.postgres.session import Session
from cortex.store import approvals
from cortex.store.background import alarms, outbox
from tests.support.eventually import eventually_asyncio
from tests.support.life import Life
from tests.support.records.approvals import Askers
from tests.support.records.dead_letters import fail
from tests.support.records.messages import announced, subscribe
from tests.support.records.rows import move_clock, new_id
from tests.support.servers.postgres import run_asyncio, sql

GIVE_UP = """
    UPDATE cortex.outbox SET status = 'FAILED', finished_at = cortex.now() WHERE subscription = $1
"""
WAITS = """
    SELECT FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%cortex.outbox%'
"""
ERROR = """
    INSERT INTO cortex.fact (type, subtype, source, data)
    VALUES ('error', $1, $2, '{"class": "PERMANENT", "message": "no valid key"}')
"""


def test_approval_requests_and_their_ends_are_announced_once(database: str, store: Session) -> None:
    subscribe(database, "approval.*")
    askers = Askers(store, database)
    decided, forgotten = askers.asked(), askers.asked()
    askers.decide(decided)
    move_clock(database, 4000)
    for _ in range(2):
        store(approvals.expire, limit=10)
    rows = announced(database)
    assert [(topic, key) for topic, key, _ in rows] == [
        ("approval.requested", str(decided.id)),
        ("approval.requested", str(forgotten.id)),
        ("approval.decided", str(decided.id)),
        ("approval.expired", str(forgotten.id)),
    ]
    asked, answered = rows[0][2], rows[2][2]
    assert (asked["tool"], asked["people"], asked["effect"]) == ("refund", 1, "money out")
    assert (answered["status"], answered["decided_by"]) == ("APPROVED", "ana")


# --- credentials


@pytest.mark.parametrize("code", sorted(CREDENTIALS_REFUSED))
def test_a_model_that_refuses_its_key_is_announced_until_it_takes_one(
    database: str, store: Session, code: str
) -> None:
    subscribe(database, "auth.failed")
    for source in ("llm:claude", "llm:claude", "llm:other", "http:example.org"):
        sql(database, ERROR, code, source)
    sql(database, ERROR, "invalid_request", "llm:third")
    found = announced(database)
    assert [key for _, key, _ in found] == ["llm:claude", "llm:other"]
    payload = {"source": "llm:claude", "code": code, "tenant": "default", "error": "no valid key"}
    assert found[0][2] == payload
    move_clock(database, 3000)
    sql(database, ERROR, code, "llm:claude")
    move_clock(database, 3700)
    store(alarms.check, code_wait_s=CODE_WAIT_S)
    for source in ("llm:claude", "llm:other"):
        sql(database, ERROR, code, source)
    again = [key for _, key, _ in announced(database)[2:]]
    assert again == ["llm:other"], "the other one was refused within the hour"


def test_the_message_of_refused_credentials_joins_the_trace_of_its_job(
    database: str, store: Session, life: Life
) -> None:
    subscribe(database, "auth.failed")
    life.type()
    job_id = life.job(traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00")
    sql(
        database,
        "INSERT INTO cortex.fact (type, subtype, source, job_id) "
        "VALUES ('error', 'permission', 'llm:claude', $1)",
        job_id,
    )
    (message,) = store(outbox.page)
    assert message.trace == f"00-4bf92f3577b34da6a3ce929d0e0e4736-{job_id.hex[16:]}-00"


def test_a_channel_that_refuses_its_secret_is_announced_with_its_failure(
    database: str, store: Session
) -> None:
    subscribe(database)
    store(outbox.publish, "order.paid", {})
    pod = new_id()
    for _ in range(2):  # a channel that gets to know of its own refusal refuses that, too
        messages = store(outbox.claim, pod_id=pod, most={"a": 9}).messages
        assert len(messages) == 1
        refused = failed(
            1, "401 Unauthorized", code="authentication", is_final=True, rng=random.Random(1)
        )
        store(outbox.record, pod_id=pod, outcomes=[(each, refused) for each in messages])
    (_, (topic, key, payload)) = announced(database)
    assert (topic, key, payload["error"]) == ("auth.failed", "notify:a", "401 Unauthorized")


def test_two_channels_that_fail_at_once_give_their_common_fallback_one_message(
    database: str, store: Session
) -> None:
    subscribe(database, "nothing.else")
    sql(
        database,
        "INSERT INTO cortex.subscription (name, topic, channel, fallback, changed_by) "
        "VALUES ('b', 'order.*', 'log', 'a', 'test'), ('c', 'order.*', 'log', 'a', 'test')",
    )
    store(outbox.publish, "order.paid", {})

    async def at_once() -> None:
        first, second = [await asyncpg.connect(database) for _ in range(2)]
        transaction = first.transaction()
        await transaction.start()
        await first.execute(GIVE_UP, "b")
        other = asyncio.ensure_future(second.execute(GIVE_UP, "c"))
        await eventually_asyncio(lambda: other.done() or sql(database, WAITS), what="both give up")
        await transaction.commit()
        await other
        for each in (first, second):
            await each.close()

    run_asyncio(at_once)
    names = [row.subscription for row in store(outbox.page)]
    assert sorted(str(each) for each in names) == ["a", "b", "c"]


# --- work that no pod serves


def check(store: Session) -> list[str]:
    found = store(alarms.check, code_wait_s=CODE_WAIT_S)
    assert found is not None
    return list(found.announced)


def test_work_that_no_pod_serves_for_a_while_is_announced_once(
    database: str, store: Session, life: Life
) -> None:
    subscribe(database, "work.*")
    life.type("report")
    life.agent()  # its tool is read_file
    life.job("report")
    life.job("run_agent", agent="researcher", payload='{"prompt": "x"}')

    def passing(seconds: float) -> list[str]:
        move_clock(database, seconds)
        sql(database, "UPDATE cortex.pod SET heartbeat_at = cortex.now()")
        return check(store)

    assert passing(0) == [], "no pod lives at all"
    life.pod("a", "digest", "run_agent")
    assert passing(100) == [], "perhaps it is handed from one pod to another"
    assert len(passing(104)) == 2
    assert passing(1000) == []
    payloads: dict[str, Any] = {payload["type"]: payload for _, _, payload in announced(database)}
    assert {name: each["jobs"] for name, each in payloads.items()} == {"report": 1, "run_agent": 1}
    assert payloads["run_agent"]["tools"] == ["read_file"]
    other = life.pod("b", "report")
    assert passing(1100) == []
    sql(database, "UPDATE cortex.pod SET state = 'STOPPED' WHERE id = $1", other)
    assert passing(1200) == []
    assert passing(1204) == ["no living pod takes report"], "anew"
    (row,) = sql(database, "SELECT count(*) AS n FROM cortex.fact WHERE subtype = 'work_stranded'")
    assert row["n"] == len(announced(database)) == 3


# --- dead letters


def test_dead_letters_are_announced_each_time_their_number_has_doubled(
    database: str, store: Session
) -> None:
    subscribe(database, "dead_letter.growing")

    def resolve(count: int) -> None:
        sql(
            database,
            "UPDATE cortex.dead_letter SET state = 'DISCARDED', resolved_at = cortex.now(), "
            "resolved_by = 'ana' WHERE job_id IN (SELECT job_id FROM cortex.dead_letter "
            "WHERE state = 'OPEN' LIMIT $1)",
            count,
        )

    fail(database, 99)
    assert check(store) == []
    fail(database, 21)
    assert check(store) == ["120 dead letters are unresolved"]
    fail(database, 100)
    assert check(store) == []
    fail(database, 20)
    assert check(store) == ["240 dead letters are unresolved"]
    resolve(170)
    assert check(store) == []
    fail(database, 70)
    assert check(store) == ["140 dead letters are unresolved"], "twice as many as there were left"
    resolve(140)
    assert check(store) == []
    assert sql(database, "SELECT FROM cortex.alarm") == []
    assert [payload["unresolved"] for _, _, payload in announced(database)] == [120, 240, 140]
    facts = sql(database, "SELECT data FROM cortex.fact WHERE subtype = 'dead_letters_growing'")
    assert [json.loads(row["data"])["unresolved"] for row in facts] == [120, 240, 140]
