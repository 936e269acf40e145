"""The cluster's activity: recent events by buckets of time, what needs a person, what fails.

Each statement is bounded, however long the history and however many the facts; its result says what
it did not reach.
"""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final
from uuid import UUID

import attrs

from cortex.domain.dead_letter import UNRESOLVED, DeadLetterState
from cortex.domain.job import JobStatus
from cortex.domain.messages.message import MessageStatus
from cortex.postgres.database import Database, Record

BUCKET_S: Final = 30.0
BUCKETS: Final = 30
"""A quarter of an hour."""
HISTORY_BLOCKS_MAX: Final = 1_024
"""8 MiB, about 80,000 transitions, read in some 30 ms."""
WAITS_MAX: Final = 40
"""Of a bucket: their quantiles stand for those of all."""
COST_S: Final = 3_600.0
CALLS_MAX: Final = 10_000
ATTENTION_MAX: Final = 20
"""Of each kind."""


@attrs.frozen(kw_only=True)
class Bucket:
    """What happened in `BUCKET_S` seconds, or up to now."""

    span_s: float
    started: int
    done: int
    failed: int
    wait_p50_s: float | None
    """From due to its first start, the median of a sample; None: nothing started."""
    wait_p95_s: float | None
    model_p50_s: float | None
    """The duration of model calls whose answer was kept; None: there were none."""
    usd: Decimal
    is_known: bool
    """All of its transitions were read."""
    is_priced: bool
    """All of its costs were read."""


@attrs.frozen(kw_only=True)
class Recent:
    """The last quarter of an hour."""

    now: datetime
    buckets: tuple[Bucket, ...]
    """Oldest first; the last one is not over."""
    spent_usd: Decimal
    """In the last `spent_s` seconds."""
    spent_s: float
    calls: int


@attrs.frozen(kw_only=True)
class Trouble:
    """A breaker that admits no call, a pod that is dead or silent, or a runner that is late."""

    kind: str
    """breaker, pod or runner."""
    name: str
    word: str
    """Its state."""
    at: datetime | None
    """When the breaker opened, the pod's last heartbeat, or the runner's last success."""
    forced_by: str | None = None
    """Who holds the breaker open; None if not held."""
    forced_reason: str | None = None
    error: str | None = None
    """Why the runner fails; None: it does not run."""
    open_until: datetime | None = None
    """When the breaker may be probed; None: once a person closes it."""


@attrs.frozen(kw_only=True)
class Need:
    """A request, an effect of unknown outcome or a job that waits for a person."""

    kind: str
    """approval, effect or job."""
    id: UUID
    """Of the request, the effect or the job."""
    job_id: UUID
    name: str
    """The tool, or the type of the job."""
    word: str
    """Risk of a request, state of an effect, `waiting_on` of a job."""
    agent: str | None
    since: datetime | None
    until: datetime | None
    """When the request expires, or the job is retried; None: nothing happens by itself."""
    why: str | None = None
    """Why the outcome of an effect is unknown."""


@attrs.frozen(kw_only=True)
class Failure:
    """A failed job that waits for a person's decision."""

    job_id: UUID
    type: str
    agent: str | None
    error: str | None
    """Code of the error, or its class."""
    message: str | None
    at: datetime


@attrs.frozen(kw_only=True)
class Attention:
    """What needs a person and what fails, at most `ATTENTION_MAX` of each kind."""

    troubles: tuple[Trouble, ...] = ()
    needs: tuple[Need, ...] = ()
    """Requests, the first to expire first, then effects, then jobs, oldest first."""
    failures: tuple[Failure, ...] = ()
    """Newest first."""


async def recent(db: Database) -> Recent:
    """Read the last quarter of an hour: takes tens of milliseconds, so not at each poll."""
    rows = await db.fetch(
        "pulse.recent", BUCKET_S, BUCKETS, HISTORY_BLOCKS_MAX, WAITS_MAX, COST_S, CALLS_MAX
    )
    first = rows[0]
    now, history_since, calls_since = first["now"], first["history_since"], first["calls_since"]

    passed_s = now.timestamp() % BUCKET_S

    def bucket(ago: int, row: dict[str, object]) -> Bucket:
        since = now - timedelta(seconds=BUCKET_S * ago + passed_s)
        return Bucket(
            **row,  # type: ignore[arg-type]
            span_s=BUCKET_S if ago else passed_s,
            is_known=history_since is None or history_since <= since,
            is_priced=calls_since is None or calls_since <= since,
        )

    names = ("started", "done", "failed", "wait_p50_s", "wait_p95_s", "model_p50_s", "usd")
    return Recent(
        now=now,
        buckets=tuple(bucket(row["ago"], {name: row[name] for name in names}) for row in rows),
        spent_usd=first["spent_usd"],
        spent_s=COST_S if calls_since is None else max(1.0, (now - calls_since).total_seconds()),
        calls=first["calls"],
    )


async def attention(db: Database) -> Attention:
    """Return what needs a person now, and what fails."""
    troubles: list[Trouble] = []
    needs: list[Need] = []
    failures: list[Failure] = []
    for row in await db.fetch("pulse.attention", ATTENTION_MAX):
        match row["kind"]:
            case "breaker" | "pod" | "runner":
                troubles.append(_trouble(row))
            case "failure":
                failures.append(_failure(row))
            case _:
                needs.append(_need(row))
    return Attention(troubles=tuple(troubles), needs=tuple(needs), failures=tuple(failures))


def _trouble(row: Record) -> Trouble:
    return Trouble(
        kind=row["kind"],
        name=row["name"],
        word=row["word"],
        at=row["at"],
        forced_by=row["by"],
        forced_reason=row["text"] if row["kind"] == "breaker" else None,
        error=row["text"] if row["kind"] == "runner" else None,
        open_until=row["until"],
    )


def _need(row: Record) -> Need:
    return Need(
        kind=row["kind"],
        id=row["id"],
        job_id=row["job_id"],
        name=row["name"],
        word=row["word"],
        agent=row["agent"],
        since=row["at"],
        until=row["until"],
        why=row["text"],
    )


def _failure(row: Record) -> Failure:
    return Failure(
        job_id=row["job_id"],
        type=row["name"],
        agent=row["agent"],
        error=row["word"],
        message=row["text"],
        at=row["at"],
    )


# --- Figures of the whole system, for a scrape: counts of unfinished work.


COUNTED_MAX = 100_000
"""Of each kind: anything above is equally too much."""


WAITS: Final = ("signal", "child", "limit", "sleep")
"""What jobs wait for that no person and no failure holds."""


@attrs.frozen(kw_only=True)
class Figures:
    """Counts stop at a given limit; ages are in seconds."""

    jobs: dict[JobStatus, int]
    """Of every state that is not terminal."""
    due_count: int
    """Tasks that any pod could claim: none of paused queues."""
    oldest_due_s: float
    """How long the oldest has been due, since its attempt ended if it had one; 0: none."""
    stranded_count: int
    """Ready tasks whose type or tools no living pod has; 0 if no pod lives at all."""
    stranded_types: tuple[str, ...] = ()
    """Job types of the jobs that wait for code, those of the most jobs first."""
    waiting: dict[str, int]
    """Jobs that wait for signals, children, limits or time, by `WAITS`."""
    old_pauses: int
    """Pauses that are older than a day."""
    letters: dict[DeadLetterState, int]
    """Of the states that wait for a person."""
    messages: dict[MessageStatus, int]
    """Of every state but SENT."""
    oldest_message_s: float
    """Age of the oldest message that waits; 0: none."""
    missed_schedules: int
    """Schedules that missed an instant, as was noticed within the last hour."""
    ticked_s: float | None
    """Seconds since a `cortex tick` ran jobs, after any pod; None: ticks do not, or are late."""
    is_late: dict[str, bool]
    """By runner: whether it has not succeeded for five of its intervals."""


async def figures(db: Database, *, limit: int = COUNTED_MAX) -> Figures:
    """Count in one statement, without reading finished jobs."""
    row = await db.fetch_one("metrics.figures", limit)
    if row is None:
        raise AssertionError("metrics.figures always returns one row")
    return Figures(
        jobs={state: row[state.lower()] for state in JobStatus if not state.is_terminal},
        due_count=row["due"],
        oldest_due_s=row["oldest_due_s"],
        stranded_count=row["stranded"],
        stranded_types=tuple(row["stranded_types"]),
        waiting={word: row[f"waiting_{word}"] for word in WAITS},
        old_pauses=row["old_pauses"],
        letters={state: row[state.lower()] for state in UNRESOLVED},
        messages={
            state: row[f"messages_{state.lower()}"]
            for state in MessageStatus
            if state is not MessageStatus.SENT
        },
        oldest_message_s=row["oldest_message_s"],
        missed_schedules=row["missed_schedules"],
        ticked_s=row["ticked_s"],
        is_late={name: name in row["late_runners"] for name in row["runners"]},
    )
