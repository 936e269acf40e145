"""Messages announced by the runtime and published by applications, and their transactions."""

import asyncio
import random
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from cortex.domain.messages.message import SENT, Message
from cortex.domain.messages.payload_keys import PAYLOAD_KEYS
from cortex.domain.messages.subscription import Subscription
from cortex.domain.messages.topic import RUNTIME_TOPICS, RUNTIME_WORDS
from cortex.postgres.database import Profile, open_database
from cortex.postgres.session import Session
from cortex.store import breakers, jobs
from cortex.store.background import outbox, subscriptions
from tests.support.life import Life
from tests.support.records.messages import announced
from tests.support.records.rows import as_runtime, new_id, seeded_random
from tests.support.servers.postgres import run_asyncio, sql

PUBLISH = "SELECT cortex.publish('order.paid', '{\"n\": 1}')"


def subscribe(store: Session, topic: str, name: str = "a", **filters: Any) -> None:
    subscription = Subscription(name=name, topic=topic, channel="log", filter=filters)
    store(subscriptions.put, subscription, by="test", reason="")


def topics(dsn: str) -> list[str]:
    return [topic for topic, _, _ in announced(dsn)]


def end(life: Life, error: str | None = None, **job: Any) -> UUID:
    """Let a pod run a job to its end; return the job."""
    job_id, pod = life.job(**job), life.pod()
    life.finish(pod, life.claim(pod), error=error)
    return job_id


def test_the_words_of_the_runtime_are_the_same_in_sql(database: str) -> None:
    for word in RUNTIME_WORDS | {"order"}:
        (row,) = sql(database, "SELECT cortex.is_runtime_topic($1) AS yes", f"{word}.x")
        assert row["yes"] is (word in RUNTIME_WORDS)


@pytest.mark.parametrize("commits", [True, False])
def test_a_message_lives_and_dies_with_the_publishers_transaction(
    database: str, store: Session, commits: bool
) -> None:
    subscribe(store, "order.*")

    async def publish_among_own_work() -> None:
        connection = await asyncpg.connect(as_runtime(database))
        transaction = connection.transaction()
        await transaction.start()
        await connection.fetch(PUBLISH)
        await (transaction.commit() if commits else transaction.rollback())
        await connection.close()

    run_asyncio(publish_among_own_work)
    assert topics(database) == (["order.paid"] if commits else [])


def test_topics_without_a_subscriber_write_no_messages(
    database: str, store: Session, life: Life
) -> None:
    subscribe(store, "job.failed")
    end(life)
    assert topics(database) == []


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("'order.paid', '[1]'", "payload is of type array, not a JSON object"),
        ("'order.paid', NULL", "payload is of type null, not a JSON object"),
        ("'order.paid', '{}', ''", "key of 0 characters is not within 1 to 300"),
        ("'order.paid', '{}', repeat('k', 301)", "key of 301 characters is not within 1 to 300"),
    ],
)
def test_a_message_that_cannot_be_kept_is_refused_in_words(
    database: str, arguments: str, message: str
) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError, match=f"^{message}\n") as caught:
        sql(database, f"SELECT cortex.publish({arguments})")
    assert "DETAIL" not in str(caught.value), "not the row with its payload"


def test_the_end_of_a_job_is_announced(database: str, store: Session, life: Life) -> None:
    subscribe(store, "job.*")
    done, failed = end(life, tenant="acme"), end(life, error="x" * 900)
    gone = life.job()
    store(jobs.cancel, gone, by="ana", reason="wrong")
    found = announced(database)
    assert [(topic, key) for topic, key, _ in found] == [
        ("job.completed", str(done)),
        ("job.failed", str(failed)),
        ("job.cancelled", str(gone)),
    ]
    assert found[0][2]["job"] == str(done)
    assert (found[0][2]["tenant"], found[0][2]["type"]) == ("acme", "digest")
    assert "text" not in found[0][2], "not the result"
    error = found[1][2]["error"]
    assert (error["code"], len(error["message"])) == ("job_failed", 500)
    assert (found[2][2]["by"], found[2][2]["reason"]) == ("ana", "wrong")


def test_a_filter_selects_by_the_payload(database: str, store: Session, life: Life) -> None:
    subscribe(store, "job.*", tenant="acme")
    end(life, tenant="other")
    end(life, tenant="acme")
    assert [payload["tenant"] for _, _, payload in announced(database)] == ["acme"]


def test_a_failure_makes_a_dead_letter_that_is_announced(
    database: str, store: Session, life: Life
) -> None:
    subscribe(store, "dead_letter.*")
    job_id = end(life, error="no such page")
    ((topic, key, payload),) = announced(database)
    assert (topic, key) == ("dead_letter.created", str(job_id))
    assert payload["error"] == {"code": "job_failed", "message": "no such page"}


def test_breakers_announce_opening_and_closing(database: str, store: Session) -> None:
    subscribe(store, "breaker.*")
    for _ in range(2):
        store(breakers.force_open, "tool:mail", by="ana", reason="maintenance")
    store(breakers.close, "tool:mail", by="ana", reason="done")
    assert topics(database) == ["breaker.opened", "breaker.closed"]
    (_, key, payload), _ = announced(database)
    assert (key, payload["by"], payload["reason"]) == ("tool:mail", "ana", "maintenance")


def test_a_dead_pod_is_announced_once(database: str, store: Session, life: Life) -> None:
    subscribe(store, "pod.died")
    pod = life.pod()
    for _ in range(2):
        sql(database, "UPDATE cortex.pod SET state = 'DEAD' WHERE id = $1", pod)
    ((topic, key, payload),) = announced(database)
    assert (topic, key, payload["name"]) == ("pod.died", str(pod), "pod-1")


def test_the_runtimes_role_announces_but_others_do_not(database: str) -> None:
    call = "SELECT cortex.announce('job.failed', 'k', '{}')"
    assert sql(as_runtime(database), call)[0]["announce"] == 0
    with pytest.raises(Exception, match="permission denied"):
        sql(f"{database}&role=cortex_reader", call)
    with pytest.raises(Exception, match="permission denied"):
        sql(f"{database}&role=cortex_reader", PUBLISH)


def test_messages_of_one_key_stay_in_order_under_concurrency(database: str, store: Session) -> None:
    """Four pods claim and record at random: each key's messages end in order, none is stuck."""
    subscribe(store, "order.*")
    for number in range(120):
        store(outbox.publish, "order.paid", {"n": number}, key=f"k{number % 5}")
    seen: dict[str, list[int]] = {}

    async def pod(rng: random.Random) -> None:
        db = await open_database(Profile(dsn=database), rng=rng)
        try:
            me, idle = new_id(), 0
            while idle < 25:
                claimed = await outbox.claim(db, pod_id=me, most={"a": rng.randint(1, 20)})
                idle = 0 if claimed.messages else idle + 1
                for message in claimed.messages:
                    seen.setdefault(str(message.key), []).append(message.payload["n"])
                batch: list[Message] = list(claimed.messages)
                rng.shuffle(batch)
                while batch:
                    part = [batch.pop() for _ in range(min(len(batch), rng.randint(1, 3)))]
                    await outbox.record(db, pod_id=me, outcomes=[(each, SENT) for each in part])
        finally:
            await db.close()

    async def all_pods() -> None:
        rng = seeded_random()
        await asyncio.gather(*(pod(random.Random(rng.random())) for _ in range(4)))

    run_asyncio(all_pods)
    assert {key: sorted(numbers) for key, numbers in seen.items()} == seen
    assert sum(map(len, seen.values())) == 120
    (row,) = sql(database, "SELECT count(*) AS n FROM cortex.outbox WHERE status <> 'SENT'")
    assert row["n"] == 0


def test_every_topic_of_the_runtime_can_be_announced(database: str, store: Session) -> None:
    subscribe(store, "*")
    # A request publishes messages about itself.
    announced = [each for each in RUNTIME_TOPICS if not each.startswith("approval.")]
    for topic in announced:
        sql(database, "SELECT cortex.announce($1, 'k', '{}')", topic)
    assert topics(database) == announced
    assert list(RUNTIME_TOPICS) == list(PAYLOAD_KEYS)
