"""Queries of the job screens in Postgres: lists in each order, documents, acts on many."""

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from decimal import Decimal
from typing import Any, Protocol, TypeVar
from uuid import UUID

import pytest

from cortex.domain.budget import Budget, Period, Scope, Unit
from cortex.domain.bulk import BulkRequest, BulkVerb
from cortex.domain.drain import Liveness
from cortex.domain.errors import ConflictError, NotFoundError, UnavailableError
from cortex.domain.job import Suspend
from cortex.domain.job_filter import JobCursor, JobFilter, Refusal, parse_filter
from cortex.domain.messages.message import failed
from cortex.domain.messages.subscription import Subscription
from cortex.durable import registry
from cortex.postgres.database import Database, Profile, Record, open_database
from cortex.store import budgets, tasks
from cortex.store.background import outbox, subscriptions
from cortex_tui.backend import jobs as backend_jobs
from cortex_tui.backend.store import StoreBackend
from cortex_tui.model.job_order import Order
from cortex_tui.render.documents import document_text
from cortex_tui.screens import job_orders
from tests.support.life import Life
from tests.support.people import user
from tests.support.records.dead_letters import fail
from tests.support.records.rows import job_row, new_id, seeded_random, submit
from tests.support.servers.postgres import run_asyncio, sql

T = TypeVar("T")


class Ask(Protocol):
    """Runs something on a backend of its own."""

    def __call__(self, work: Callable[[StoreBackend], Awaitable[T]]) -> T: ...


@pytest.fixture
def life(life: Life) -> Life:
    life.type()
    return life


@pytest.fixture
def ask(database: str) -> Ask:
    async def on_store(work: Callable[[StoreBackend], Awaitable[T]]) -> T:
        db = await open_database(Profile(dsn=database), rng=seeded_random())
        async with AsyncExitStack() as stack:
            stack.push_async_callback(db.close)
            return await work(StoreBackend(db, credential="os:7@test"))

    def run(work: Callable[[StoreBackend], Awaitable[T]]) -> T:
        return run_asyncio(lambda: on_store(work))

    return run


def wait(life: Life, job: UUID, in_s: int) -> None:
    """Bring a job into RETRY; the later ones of the same second by their ids."""
    life.sql("UPDATE cortex.job_record SET status = 'RUNNING' WHERE id = $1", job)
    life.sql(
        "UPDATE cortex.job_record SET status = 'RETRY', "
        "next_retry_at = timestamptz '2100-01-01' + $2 * interval '1 second' WHERE id = $1",
        job,
        in_s,
    )


@pytest.mark.parametrize("order", Order)
def test_each_order_pages_both_ways(life: Life, ask: Ask, order: Order) -> None:
    jobs = [life.job() for _ in range(7)]
    due_s = [50, 10, 40, 10, 20, 60, 30]
    for job, in_s in zip(jobs, due_s, strict=True):
        wait(life, job, in_s)
    if order is Order.DUE:
        _ = life.job()  # it waits for nothing
    in_turn = [job for _, job in sorted(zip(due_s, jobs, strict=True))]
    wanted = {Order.NEWEST: jobs[::-1], Order.OLDEST: jobs, Order.DUE: in_turn}[order]

    async def walked(backend: StoreBackend) -> tuple[list[UUID], list[UUID]]:
        down: list[UUID] = []
        up: list[UUID] = []
        place: JobCursor | None = None
        for _ in range(4):
            page = await job_orders.below(backend.jobs, order, JobFilter(), place, limit=2)
            down += [row.id for row in page.jobs]
            place = page.next
        assert place is None
        for _ in range(4):
            page = await job_orders.above(backend.jobs, order, JobFilter(), place, limit=2)
            up[:0] = [row.id for row in page.jobs]
            place = page.next
        assert place is None
        return down, up

    assert ask(walked) == (wanted, wanted)


def test_a_job_and_its_step_are_documents(life: Life, ask: Ask) -> None:
    pod = life.pod()
    job = life.job()
    claim = life.claim(pod)
    life.step(pod, claim, 1, "plan", is_paid=True)

    async def read(backend: StoreBackend) -> object:
        step = await backend.job.step_document(job, "plan")
        return {"step": step} | dict(await backend.job.document(job))

    document = json.loads(document_text(ask(read)))
    assert document["job"]["id"] == str(job)
    assert [step["key"] for step in document["steps"]] == ["plan"]
    assert document["history"][-1]["new"] == "RUNNING"
    assert document["step"]["key"] == "plan"
    assert document["step"]["output_bytes"] > 0
    assert document["step"]["output"] == "out", "it is a value, not the text of one"


def test_document_of_an_unknown_job_is_not_found(life: Life, ask: Ask) -> None:
    life.job()
    with pytest.raises(NotFoundError):
        ask(lambda backend: backend.job.document(new_id()))


@pytest.mark.parametrize("verb", [BulkVerb.CANCEL, BulkVerb.RETRY])
def test_chosen_jobs_are_submitted_for_a_bulk_operation(
    life: Life, ask: Ask, verb: BulkVerb
) -> None:
    pod = life.pod()
    later = life.job()
    wait = Suspend(lease=life.claim(pod).lease, delay_s=3600.0, is_counted=True)
    assert life.call(tasks.suspend, pod_id=pod, operations=[wait]) == {later}
    fresh = life.job()

    async def acted(backend: StoreBackend) -> tuple[list[UUID], UUID]:
        choice = await backend.jobs.choose(verb, JobFilter(), limit=10)
        marked = await backend.jobs.choose_marked(verb, [fresh, later, new_id()])
        assert set(marked.job_ids) == set(choice.job_ids)
        assert marked.refused[Refusal.GONE] == 1
        request = BulkRequest(verb=verb, reason="a test", jobs="", counted_at=choice.at)
        return choice.job_ids, await backend.jobs.begin(request, by="ana")

    chosen, job_id = ask(acted)
    row = job_row(life.dsn, job_id)
    assert (row["type"], row["queue_name"], row["submitted_by"]) == ("bulk", "bulk", "ana")
    assert json.loads(row["payload"])["request"].keys() == {"verb", "reason", "jobs", "counted_at"}
    assert set(chosen) == ({fresh, later} if verb is BulkVerb.CANCEL else {later})


BEYOND = {
    "a number": '{"n": ' + "7" * 5_000 + "}",
    "a nesting that nobody reads": "[" * 4_000 + "]" * 4_000,
    "a nesting that nobody walks": '{"a": ' * 900 + '"]"' + "}" * 900,
}


@pytest.mark.parametrize("payload", BEYOND.values(), ids=BEYOND)
def test_a_payload_that_only_postgres_reads_stays_text(life: Life, ask: Ask, payload: str) -> None:
    job = submit(life.dsn, "digest", json_text=payload)

    async def read(backend: StoreBackend) -> Mapping[str, Any]:
        return await backend.job.document(job)

    document = json.loads(document_text(ask(read)))
    assert document["job"]["payload"] == payload


def test_budget_is_raised_even_if_waking_jobs_fails(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken = iter([4, 4])

    async def wake(*_: object) -> int:
        """Answer with a full batch, then with another one, then no more."""
        try:
            return next(woken)
        except StopIteration:
            raise UnavailableError("the database is gone") from None

    async def change(backend: StoreBackend) -> str:
        agent = Budget(scope=Scope.AGENT, subject="a", unit=Unit.USD, period=Period.DAY)
        await budgets.put(backend._db, agent, limit=Decimal(1), by=user("ana"), reason="")
        monkeypatch.setattr(budgets, "WAKE_BATCH", 4)
        monkeypatch.setattr(budgets, "wake", wake)
        message = await backend.job.raise_budget(agent.name, to=Decimal(5), by=user("ana"))
        assert (await budgets.show(backend._db, agent.name)).limit_amount == Decimal(5)
        return message

    assert ask(change) == "agent:a:usd:day is $5.00, 8 jobs go on, others soon"


def test_filter_lookups_are_cached_across_pages(
    life: Life, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = life.job()
    asked: list[str] = []
    fetch = Database.fetch

    async def noted(self: Database, query: str, *args: object) -> list[Record]:
        asked.append(query)
        return await fetch(self, query, *args)

    monkeypatch.setattr(Database, "fetch", noted)

    async def read(backend: StoreBackend) -> None:
        for words in (f"id:{job.hex[-6:]}", "agent:nobody"):
            for order in (Order.NEWEST, Order.OLDEST, Order.NEWEST):
                page = await job_orders.below(
                    backend.jobs, order, parse_filter(words), None, limit=2
                )
                assert [row.id for row in page.jobs] == [job] * words.startswith("id")

    ask(read)
    assert (asked.count("jobs.ids_by_suffix"), asked.count("specs.agent_ids_like")) == (1, 1)
    monkeypatch.setattr(backend_jobs, "WAY_KEPT_S", 0.0)
    asked.clear()
    ask(read)
    assert (asked.count("jobs.ids_by_suffix"), asked.count("specs.agent_ids_like")) == (3, 3)


def test_messages_that_failed_are_read_retried_and_discarded(life: Life, ask: Ask) -> None:
    pod = new_id()
    for name in ("a", "b"):
        subscription = Subscription(name=name, topic="order.*", channel="log")
        life.call(subscriptions.put, subscription, by="ana", reason="")
    for number in range(3):
        life.call(outbox.publish, "order.paid", {"number": number})
    claimed = life.call(outbox.claim, pod_id=pod, most={"a": 2}).messages
    gone = failed(1, "status 410", is_final=True, rng=seeded_random())
    life.call(outbox.record, pod_id=pod, outcomes=[(each, gone) for each in claimed])
    before = ask(lambda backend: backend.messages.page())
    assert [row.status for row in before] == ["FAILED"] * 2 + ["PENDING"] * 4
    newest, oldest = before[:2]
    assert newest.seq > oldest.seq
    assert [row.seq for row in before[2:]] == sorted(row.seq for row in before[2:])
    shown = ask(lambda backend: backend.messages.show(newest))
    assert [(row.subscription, row.payload) for row in shown] == [
        ("b", {"number": 1}), ("a", {"number": 1}),
    ]  # fmt: skip
    who = {"by": "ana", "reason": "fixed"}
    assert ask(lambda backend: backend.messages.retry(newest, **who)) == "is sent again"
    assert ask(lambda backend: backend.messages.discard(oldest, **who)) == "discarded"
    with pytest.raises(ConflictError):
        ask(lambda backend: backend.messages.retry(newest, **who))
    with pytest.raises(NotFoundError):
        ask(lambda backend: backend.messages.discard(oldest, **who))
    assert len(ask(lambda backend: backend.messages.page())) == 5


def test_a_dead_letter_is_retried_with_another_payload(ask: Ask, database: str) -> None:
    (job,) = fail(database)

    async def retry(backend: StoreBackend) -> str:
        (letter,) = await backend.dead.of_jobs([job])
        old = await backend.dead.payload(job)
        edit = await backend.dead.edited(letter, json.dumps(old | {"more": 1}))
        assert [(each.field, each.old, each.new) for each in edit.changes] == [("more", None, "1")]
        return await backend.dead.retry(job, by="ana", reason="mended", edit=edit)

    assert ask(retry).startswith("retried as ")
    (row,) = sql(database, "SELECT payload FROM cortex.job_record WHERE origin_id = $1", job)
    assert json.loads(row["payload"])["more"] == 1
    (letter,) = sql(database, "SELECT resolved_by FROM cortex.dead_letter")
    assert letter["resolved_by"] == "ana"
    query = (
        "SELECT data->'payload_changes' AS changes FROM cortex.fact WHERE data ? 'payload_changes'"
    )
    (fact,) = sql(database, query)
    assert json.loads(fact["changes"]) == [{"field": "more", "old": None, "new": "1"}]


def test_retry_shows_that_its_job_waits_for_code(ask: Ask, life: Life, database: str) -> None:
    @registry.job("work")
    async def work(ctx: object, site: str) -> None: ...

    life.pod("pod", "work", code="1", takes=work, liveness=Liveness.HEARTBEAT)
    (typo,) = fail(database, submitted={"type": "work", "payload": '{"sites": "a"}'})
    (fits,) = fail(database, submitted={"type": "work", "payload": '{"site": "a"}'})

    def retry(job_id: UUID) -> str:
        return ask(lambda backend: backend.dead.retry(job_id, by="ana", reason="mended"))

    assert retry(typo).endswith("'sites': the new job waits for code that takes it")
    assert "waits" not in retry(fits)
