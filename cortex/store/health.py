"""The health of the whole system: its queue, what failed lately, and its background work.

Each statement is bounded, however much has ended: see `pulse`.
"""

from datetime import datetime
from typing import Final

import attrs

from cortex.domain import health as rules
from cortex.domain.health import Measure, Rates, Word
from cortex.domain.messages.message import MessageStatus
from cortex.postgres.database import Database
from cortex.store import pulse
from cortex.store.background import runners, subscriptions
from cortex.store.background.runners import LATE_INTERVALS, RunnerRow
from cortex.store.background.subscriptions import FailingSubscription
from cortex.store.pulse import Recent

ERRORS_MAX: Final = 10_000
FAILING_MAX: Final = 100


@attrs.frozen(kw_only=True)
class RunnerHealth:
    """Background work of one kind, and its last run in any process."""

    name: str
    word: Word
    items: int | None
    """None: it was only skipped so far."""
    duration_s: float | None
    error: str | None
    item_count: int
    """Of all runs."""
    succeeded_ago_s: float | None
    bad_over_s: float
    """It is bad when its last success is longer ago."""


@attrs.frozen(kw_only=True)
class Health:
    """All measures with their thresholds, and all runners by name."""

    word: Word
    """The worst of them."""
    now: datetime
    span_s: float
    """The rates are of this many seconds, up to now."""
    measures: tuple[Measure, ...]
    runners: tuple[RunnerHealth, ...]
    failing: tuple[FailingSubscription, ...]
    """Subscriptions whose receivers take no message, the longest first, up to `FAILING_MAX`."""
    stranded_types: tuple[str, ...]
    """The types of jobs that wait for code, those of most jobs first."""

    @property
    def stranded_count(self) -> int:
        """How many jobs wait for code."""
        return int(next(each.value or 0 for each in self.measures if each.name == rules.STRANDED))


async def health(db: Database) -> Health:
    """Read and judge: takes tens of milliseconds, so not for each of thousands of requests."""
    figures = await pulse.figures(db)
    recent = await pulse.recent(db)
    failing = await subscriptions.failing(db, limit=FAILING_MAX)
    span_s = sum(each.span_s for each in recent.buckets if each.is_known)
    measures = (
        rules.measure(rules.DUE, figures.due_count),
        rules.measure(rules.OLDEST_DUE, figures.oldest_due_s),
        rules.measure(rules.STRANDED, figures.stranded_count),
        *(await _rates(db, recent, span_s)).measures(),
        rules.measure(rules.OUTBOX, figures.messages[MessageStatus.PENDING]),
        rules.measure(rules.OLDEST_MESSAGE, figures.oldest_message_s),
        rules.measure(rules.FAILING, len(failing)),
        rules.measure(rules.MISSED, figures.missed_schedules),
    )
    rows = [_runner(row) for row in await runners.page(db)]
    return Health(
        word=Word.worst([each.word for each in measures] + [each.word for each in rows]),
        now=recent.now,
        span_s=span_s,
        measures=measures,
        runners=tuple(rows),
        stranded_types=figures.stranded_types,
        failing=tuple(failing),
    )


async def _rates(db: Database, recent: Recent, span_s: float) -> Rates:
    known = [each for each in recent.buckets if each.is_known]
    (row,) = await db.fetch("pulse.errors", span_s, ERRORS_MAX)
    scale = span_s / row["span_s"] if row["span_s"] else 1.0
    return Rates(
        completed=sum(each.done for each in known),
        failed=sum(each.failed for each in known),
        attempt_errors=scale * row["attempt_count"],
        call_retries=scale * row["call_count"],
        letters=row["letter_count"],
    )


def _runner(row: RunnerRow) -> RunnerHealth:
    word = Word.BAD if row.is_late else Word.OK if row.error is None else Word.WARN
    succeeded = row.succeeded_at
    return RunnerHealth(
        name=row.name,
        word=word,
        items=row.items,
        duration_s=row.duration_s,
        error=row.error,
        item_count=row.item_count,
        succeeded_ago_s=None if succeeded is None else (row.now - succeeded).total_seconds(),
        bad_over_s=LATE_INTERVALS * row.interval_s,
    )
