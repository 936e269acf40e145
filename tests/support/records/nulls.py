"""Nullable columns of the schema, each set to null in turn, as the screens' statements read them.

A column that becomes nullable is in the catalog, and so in the tests that use this.
"""

import asyncio
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from functools import cache
from typing import Any, Final, TypeVar
from uuid import UUID

import asyncpg
import attrs

from cortex.domain.budget import Budget, Period, Scope, Unit
from cortex.domain.clock import system_chance
from cortex.domain.job import Claim, Suspend
from cortex.domain.messages.message import failed
from cortex.domain.messages.subscription import Subscription
from cortex.domain.queueing.pauses import Pausable, PauseKind
from cortex.domain.quota import Period as QuotaPeriod
from cortex.domain.quota import Quota
from cortex.domain.schedules.schedule import Schedule
from cortex.domain.waits import SignalWait
from cortex.postgres.database import Database, Profile
from cortex.postgres.queries import sql as query_text
from cortex.postgres.session import Session
from cortex.store import (
    approvals,
    breakers,
    budgets,
    codes,
    drains,
    pauses,
    pods,
    queues,
    quotas,
    specs,
    tasks,
)
from cortex.store.background import outbox, retention, runners, schedules, subscriptions
from cortex.store.background.retention import RetentionPeriods
from cortex.store.background.runners import LastRun, RunnerRuns
from cortex.store.codes import Code
from cortex.store.specs import SpecKind
from tests.support.life import Life
from tests.support.people import user
from tests.support.records import dead_letters as failed_jobs
from tests.support.records.approvals import Askers, a_verdict
from tests.support.records.effects import Doers
from tests.support.records.factories import JOB_TYPE
from tests.support.servers.postgres import sql

T = TypeVar("T")

CHANCE: Final = system_chance()
_NULLABLE: Final = """
    SELECT c.oid::regclass::text AS of, a.attname AS name
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname IN ('cortex', 'cortex_worker') AND c.relkind = 'r'
      AND a.attnum > 0 AND NOT a.attisdropped AND NOT a.attnotnull AND a.attgenerated = ''
    ORDER BY 1, a.attnum
"""
_TABLES: Final = """
    SELECT n.nspname || '.' || c.relname AS name
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname IN ('cortex', 'cortex_worker') AND c.relkind = 'r'
"""
_SET_NULL: Final = """
    CREATE FUNCTION pg_temp.set_null(regclass, name) RETURNS int LANGUAGE plpgsql AS $$
    DECLARE found tid; done int := 0; BEGIN
        FOR found IN EXECUTE format('SELECT ctid FROM %s WHERE %I IS NOT NULL', $1, $2) LOOP
            BEGIN
                EXECUTE format('UPDATE %s SET %I = NULL WHERE ctid = $1', $1, $2) USING found;
                done := done + 1;
            EXCEPTION WHEN check_violation OR not_null_violation THEN NULL;
            END;
        END LOOP;
        RETURN done;
    END $$
"""
"""A row that a constraint keeps from being so stays as it is; returns how many are other now."""
_DEFINED: Final = """
    SELECT format('%s.%s', n.nspname, p.proname) AS name, p.prosrc AS text FROM pg_proc p
    JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname IN ('cortex', 'cortex_worker')
    UNION ALL
    SELECT format('%s.%s', schemaname, viewname), definition FROM pg_views
    WHERE schemaname IN ('cortex', 'cortex_worker')
"""
_NAME: Final = re.compile(r"\bcortex(?:_worker)?\.\w+")


@attrs.frozen
class Column:
    """One that may be null."""

    of: str
    """Its table."""
    name: str

    def __str__(self) -> str:
        return f"{self.of}.{self.name}"


Asked = tuple[str, tuple[object, ...]]
"""A named statement and its arguments."""


class Reading:
    """A database as one transaction sees it: one statement at a time, each one noted."""

    tenant: str | None = None

    def __init__(self, dsn: str, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self.profile = Profile(dsn=dsn)
        self._bound = Database(self.profile, rng=random.Random(1)).bound(connection)
        self._connection = connection
        self._one = asyncio.Lock()
        self._nowhere: set[Column] = set()
        """Columns that are null in every row where they may be."""
        self.asked: dict[str, Asked] = {}
        """By what was asked, as text."""

    async def fetch(self, query: str, *args: object) -> Sequence[Any]:
        self.asked[f"{query} {args}"] = (query, args)
        async with self._one:
            return await self._bound.fetch(query, *args)

    async def fetch_one(self, query: str, *args: object) -> Any:
        rows = await self.fetch(query, *args)
        return rows[0] if rows else None

    async def transact(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        async with self._one, self._connection.transaction():
            return await work(self._connection)

    @property
    def is_busy(self) -> bool:
        return self._one.locked()

    @asynccontextmanager
    async def null(self, column: Column) -> AsyncIterator[bool]:
        """Set a column to null where that is allowed, then back; return whether it was anywhere."""
        if column in self._nowhere:
            yield False
            return
        change = self._connection.transaction()
        async with self._one:
            await change.start()
            set_null = "SELECT pg_temp.set_null($1::text::regclass, $2::text)"
            count = await self._connection.fetchval(set_null, column.of, column.name)
        self._nowhere |= set() if count else {column}
        try:
            yield count > 0
        finally:
            async with self._one:
                await change.rollback()

    @asynccontextmanager
    async def undone(self) -> AsyncIterator[None]:
        """Undo behind it what is done in it."""
        change = self._connection.transaction()
        async with self._one:
            await change.start()
        try:
            yield
        finally:
            async with self._one:
                await change.rollback()

    async def nulls(self, asked: Asked) -> object:
        """Return where nulls are in the answer to a statement: equal ones look the same."""
        query, args = asked
        async with self._one:
            rows = await self._bound.fetch(query, *args)
        return [[_null_in(value) for value in row.values()] for row in rows]


@attrs.define
class Answers:
    """The answers to what was asked, and which of them a null makes look different."""

    rows: Reading
    dsn: str
    seen: set[str]
    """What was looked at before, here or for another thing: it need not be again."""
    _whole: list[tuple[Asked, set[str], object]] = attrs.field(factory=list, init=False)

    @classmethod
    async def to(cls, rows: Reading, dsn: str, asked: Iterable[Asked], seen: set[str]) -> "Answers":
        """Ask the statements again, while no column is null that was not."""
        answers = cls(rows, dsn, seen)
        for each in asked:
            answers._whole.append((each, read_by(dsn, {each[0]}), await rows.nulls(each)))
        return answers

    @property
    def tables(self) -> set[str]:
        """The names of what the statements read."""
        return set().union(*(tables for _, tables, _ in self._whole))

    @property
    def columns(self) -> list[Column]:
        """All that may be null and that a statement may read."""
        tables = self.tables
        return [each for each in nullable(self.dsn) if each.of in tables]

    async def changed_by(self, column: Column) -> list[Asked]:
        """Return the statements that answer otherwise while a column is null.

        None if all of them together answered the same before.
        """
        changed: list[Asked] = []
        now: list[tuple[str, object]] = []
        for each, tables, whole in self._whole:
            found = await self.rows.nulls(each) if column.of in tables else whole
            now.append((each[0], found))
            changed += [each] if found != whole else []
        if not changed or (look := repr(now)) in self.seen:
            return []
        self.seen.add(look)
        return changed


async def at_each_null(
    rows: Reading,
    parts: Sequence[tuple[T, Answers]],
    look: Callable[[T, Column, list[Asked]], Awaitable[None]],
) -> None:
    """Set each column that the answers read to null in turn; look at all parts that it changes.

    A column is set once for all parts: that costs as much as what is asked then.
    """
    for column in dict.fromkeys(each for _, answers in parts for each in answers.columns):
        async with rows.null(column) as is_somewhere:
            for part, answers in parts if is_somewhere else ():
                if column.of in answers.tables and (changed := await answers.changed_by(column)):
                    await look(part, column, changed)


def _null_in(value: object) -> object:
    """Whether a value is null, or how often it is in a document."""
    return str(value).count("null") if isinstance(value, str | list) else value is None


@asynccontextmanager
async def reading(dsn: str) -> AsyncIterator[Reading]:
    """Open a transaction in which rows may be as the constraints of their tables let them."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.transaction().start()
        await connection.execute("SET LOCAL session_replication_role = replica")  # no triggers
        await connection.execute(_SET_NULL)
        # Statements are asked again and again: planning them costs more than running them.
        await connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        yield Reading(dsn, connection)
    finally:
        connection.terminate()


@cache
def nullable(dsn: str) -> Sequence[Column]:
    """All columns that may be null."""
    return [Column(row["of"], row["name"]) for row in sql(dsn, _NULLABLE)]


def empty_tables(dsn: str) -> set[str]:
    """Tables without a row."""
    names = [row["name"] for row in sql(dsn, _TABLES)]
    counts = ", ".join(f'EXISTS (SELECT FROM {name}) AS "{name}"' for name in names)
    (row,) = sql(dsn, f"SELECT {counts}")
    return {name for name, has_rows in row.items() if not has_rows}


def read_by(dsn: str, queries: Iterable[str]) -> set[str]:
    """Names of the tables, views and functions that named statements read, at whatever depth."""
    defined = _defined(dsn)
    found: set[str] = set()
    texts = [query_text(query) for query in queries]
    while texts:
        new = set(_NAME.findall(texts.pop())) - found
        found |= new
        texts += [defined[name] for name in new if name in defined]
    return found


@cache
def _defined(dsn: str) -> dict[str, str]:
    """Return the texts of functions and views."""
    return {row["name"]: row["text"] for row in sql(dsn, _DEFINED)}


# --- a cluster in which every table that a screen reads has rows


_USE: Final = """
    INSERT INTO cortex.budget_use (budget_id, window_key, spent)
    SELECT id, $1, 0.5 FROM cortex.budget
"""


_UNFIT: Final = """
    INSERT INTO cortex_worker.unfit (task, base, codes) VALUES ('digest !0', 'digest', '{0}')
"""
_STRANDED: Final = """
    INSERT INTO cortex_worker.stranded (task, announced_at, jobs)
    VALUES ('digest !0', cortex.now(), 2)
"""


_INSTANTS: Final = """
    INSERT INTO cortex.schedule_instant (schedule, instant, outcome, error, reason)
    SELECT 'nightly', cortex.now() - n.ago * interval '1 hour', n.outcome, n.error, n.reason
    FROM (VALUES (1, 'FAILED', 'no such agent', NULL), (2, 'SKIPPED', NULL, 'not ended'),
                 (3, 'QUEUED', NULL, NULL)) AS n(ago, outcome, error, reason)
"""


_LINES: Final = """
    INSERT INTO cortex.log_line (job_id, attempt, number, at, level, step, source, message, fields,
                                 dropped)
    VALUES ($1, 1, 1, cortex.now(), 20, 'plan', 'shop', 'begun', '{"n": 1}', 2)
"""

_PARTS: Final = """
    WITH parent AS (
        UPDATE cortex.job_record SET has_children = true WHERE id = $1
    ), child AS (
        UPDATE cortex.job_record SET parent_id = $1 WHERE id = $2
    ), link AS (
        INSERT INTO cortex.job_child (lineage_id, step, ordinal, job_id, parent_id, is_detached,
                                      is_held)
        VALUES ($1, 'resize', 0, $2, $1, false, false)
    )
    INSERT INTO cortex.job_published (job_id, attempt, number, state, done, total, unit)
    VALUES ($1, 1, 1, '{"page": 3}', 3, 10, 'pages')
"""
_LIMITED: Final = """
    WITH of_type AS (
        INSERT INTO cortex.limited_type (type, spec, holds) VALUES ('resize', '[]', true)
    ), of_key AS (
        INSERT INTO cortex.job_limit (type, place, unit, key, amount)
        VALUES ('resize', 1, 'running', 'tenant', 5) RETURNING id
    )
    INSERT INTO cortex_worker.limit_hold (job_id, limit_id, key) SELECT $1, id, 'acme' FROM of_key
"""


def fill(call: Session, dsn: str) -> None:
    """Bring about one of each thing that a person can look at."""
    life = Life(call, dsn)
    life.type(JOB_TYPE)
    life.agent()
    life.sql("INSERT INTO cortex.runner (name, interval_s) VALUES ('housekeeping', 30)")
    life.sql(_UNFIT)
    life.sql(_STRANDED)
    life.sql("SELECT cortex.set_retention(2592000, NULL, NULL, NULL, '{}', 'our policy')")
    askers, doers = Askers(call, dsn), Doers(call, dsn)
    pod = askers.pod_id
    code = Code(version="3f9a1c0b2d4e")
    call(codes.ensure, code)
    for each, name in ((pod, "eu-1"), (doers.pod_id, "eu-2")):
        entered = pods.Pod(
            id=each,
            lock_key=CHANCE.rng.getrandbits(62),
            name=name,
            version="1.0",
            job_types=(JOB_TYPE,),
            slots=10,
            code=code,
        )
        call(pods.register, entered)
    _people(askers)
    _outside(doers)
    running = askers.claimed(agent="researcher")
    life.step(pod, running, 1, "plan", is_paid=True)
    life.sql(_LINES, running.lease.job_id)
    later = askers.claimed()
    assert call(
        tasks.suspend,
        pod_id=pod,
        operations=[
            Suspend(
                lease=later.lease,
                delay_s=60.0,
                is_counted=True,
                waiting_on="llm:gpt",
                error="429 Too Many Requests",
                error_class="TRANSIENT_429",
                code="429",
            )
        ],
    )
    _parts(askers, running, later)
    failed_jobs.fail(dsn, 3, steps=1, submitted={"type": JOB_TYPE, "payload": "{}"})
    call(breakers.force_open, "llm:gpt", by="li", reason="deploy", for_s=600.0)
    call(pauses.pause, Pausable(PauseKind.QUEUE, "mail"), by="ana", reason="deploy")
    call(queues.make_strict, "letters", by="ana", reason="in order")
    budget = Budget(scope=Scope.AGENT, subject="researcher", unit=Unit.USD, period=Period.RUN)
    call(budgets.put, budget, limit=Decimal(1), by=user("ana"), reason="")
    sql(dsn, _USE, str(running.lease.job_id))
    call(drains.request, doers.pod_id, by="ana", reason="new kernel")
    life.job(JOB_TYPE, queue_name="mail")
    _messages(call)
    _by_the_clock(call, dsn, pod)
    _by_runners(call)
    step = {"name": "a", "uses": "approve"}
    call(specs.apply, SpecKind.FLOW, name="f", spec={"name": "f", "steps": [step]}, by="ana")


def _parts(askers: Askers, parent: Claim, child: Claim) -> None:
    """A job with a child and a place in a limit; one that waits for a signal."""
    parent_id = parent.lease.job_id
    sql(askers.dsn, _PARTS, parent_id, child.lease.job_id)
    sql(askers.dsn, _LIMITED, parent_id)
    signal = Suspend(
        lease=askers.claimed().lease,
        delay_s=60.0,
        is_counted=False,
        waiting_on="signal:payment",
        error="payment",
        waits=(SignalWait(name="payment", key="order-1"),),
    )
    assert askers.call(tasks.suspend, pod_id=askers.pod_id, operations=[signal])


def _messages(call: Session) -> None:
    """A message that failed, one that is being sent, one that waits."""
    billing = Subscription(name="billing", topic="order.*", channel="log")
    call(subscriptions.put, billing, by="ana", reason="")
    pod_id = CHANCE.new_id()
    for number in range(3):
        call(outbox.publish, "order.paid", {"number": number}, key=str(number))
    gone = failed(1, "status 410", is_final=True, rng=CHANCE.rng)
    for outcome in (gone, None):
        claimed = call(outbox.claim, pod_id=pod_id, most={"billing": 1}).messages
        if outcome is not None:
            call(outbox.record, pod_id=pod_id, outcomes=[(claimed[0], outcome)])


def _by_the_clock(call: Session, dsn: str, pod: UUID) -> None:
    """A schedule with each outcome of an instant, and one that is paused."""
    made = [
        Schedule.make(name=name, cron="0 3 * * *", type=JOB_TYPE, instant_as="at", jitter=60)
        for name in ("nightly", "stopped")
    ]
    call(schedules.apply, made, by="ana", reason="fewer calls")
    coded = Schedule.make(name="weekly", cron="0 3 * * MON", type=JOB_TYPE)
    call(schedules.declare, [coded], pod_id=pod, pod="eu-1")
    call(schedules.trigger, "nightly", by="ana", reason="now")
    call(schedules.pause, "stopped", by="ana", reason="deploy")
    sql(dsn, _INSTANTS)


def _by_runners(call: Session) -> None:
    """A runner that failed and is late, and a period after which finished jobs are deleted."""
    last = LastRun(ago_s=60.0, duration_s=0.1, items=0, error="the disk is full")
    runs = RunnerRuns(
        name="housekeeping",
        interval_s=1.0,
        last=last,
        succeeded_ago_s=600.0,
        run_count=2,
        item_count=0,
        error_count=1,
        skip_count=0,
        busy_s=0.2,
    )
    call(runners.record, [runs], holder="eu-1")
    call(retention.put, RetentionPeriods(completed_s=86_400.0), by=user("ana"), reason="")


def _people(askers: Askers) -> None:
    """Requests that wait, two of them near their end; one that was decided."""
    askers.asked(expires_s=200.0)
    askers.asked(tool=None, key="1 publish", schema=None, expires_s=100.0)
    decided = askers.asked(risk="LOW")
    askers.call(approvals.decide, [a_verdict(decided, reason="fine")])


def _outside(doers: Doers) -> None:
    """An effect with an unknown outcome that counts against a quota."""
    quota = Quota(tool="pay", period=QuotaPeriod.HOUR, limit=Decimal(5))
    doers.call(quotas.put, quota, by="ana", reason="not more")
    claim = doers.claimed()
    leave = doers.begin(claim)
    doers.doubt(claim, leave.id)
    said = """
        INSERT INTO cortex.effect_vote (effect_id, call, person_id, person, credential, reason)
        VALUES ($1, 1, $1, 'ana', 'os:0', 'not in the ledger')
    """
    sql(doers.dsn, said, leave.id)
