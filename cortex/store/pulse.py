"""How the cluster does: what happened lately by buckets of time, and what somebody should know of.

Both statements are bounded, however long the history and however many the facts: what they did not
reach is said.
"""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

import attrs

from cortex.domain.dead_letter import DeadLetterState
from cortex.domain.job import JobStatus
from cortex.postgres.database import Database

BUCKET_S: Final = 30.0
BUCKETS: Final = 30
"""A quarter of an hour."""
HISTORY_BLOCKS_MAX: Final = 1_024
"""8 MiB, about 80,000 transitions, read in some 30 ms."""
WAITS_MAX: Final = 40
"""Of a bucket: their quantiles stand for those of all."""
COST_S: Final = 3_600.0
CALLS_MAX: Final = 10_000
TROUBLES_MAX: Final = 20
EXPIRES_SOON_S: Final = 300.0


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
    """What a call of a model took whose answer was kept; None: there was none."""
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
    """The oldest first; the last one is not over."""
    spent_usd: Decimal
    """In the last `spent_s` seconds."""
    spent_s: float
    calls: int


@attrs.frozen(kw_only=True)
class Trouble:
    """One thing that somebody should know of."""

    kind: str
    """breaker, pod or approval."""
    name: str
    """Of the breaker, the pod, the tool that asks."""
    word: str
    """State of the breaker or the pod, risk of the request."""
    at: datetime | None
    """Opened, last heard of, expires."""
    forced_by: str | None = None
    """Who holds the breaker open; None: nobody."""
    forced_reason: str | None = None
    """Why."""
    open_until: datetime | None = None
    """When the breaker may be tried; None: once somebody closes it."""


async def recent(db: Database) -> Recent:
    """Look at the last quarter of an hour: some tens of milliseconds, so not at each look."""
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


async def troubles(db: Database) -> list[Trouble]:
    """Return what somebody should know of, `TROUBLES_MAX` of each kind at most."""
    rows = await db.fetch("pulse.troubles", TROUBLES_MAX, EXPIRES_SOON_S)
    return [Trouble(**dict(row)) for row in rows]


# --- What the database tells of the whole system, for a scrape: counts of what is unfinished.


COUNTED_MAX = 100_000
"""Of each: more is too much, too."""


@attrs.frozen(kw_only=True)
class Figures:
    """Counts stop at a limit, which was given; ages are in seconds."""

    jobs: dict[JobStatus, int]
    """Of every state that is not terminal."""
    due_count: int
    """Tasks that any pod could claim: none of paused queues."""
    oldest_due_s: float
    """For how long the oldest has been due, since its attempt ended if it had one; 0: none."""
    letters: dict[DeadLetterState, int]
    """Of the states that wait for somebody."""


async def figures(db: Database, *, limit: int = COUNTED_MAX) -> Figures:
    """Count in one statement, without a look at a finished job."""
    row = await db.fetch_one("metrics.figures", limit)
    if row is None:
        raise AssertionError("metrics.figures always returns one row")
    return Figures(
        jobs={state: row[state.lower()] for state in JobStatus if not state.is_terminal},
        due_count=row["due"],
        oldest_due_s=row["oldest_due_s"],
        letters={
            state: row[state.lower()] for state in (DeadLetterState.OPEN, DeadLetterState.ESCALATED)
        },
    )
