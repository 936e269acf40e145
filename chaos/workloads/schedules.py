"""The schedules of a run, with instants in the past that are to be made up for.

Their first instants lie before the run, so that pods have many of them to deal with while they are
killed. The jobs of one schedule run one after another, and its instants are their keys: no two
schedules have one in common.
"""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import orjson
from attrs import asdict, frozen

from chaos.workloads.program import Op, Operation

if TYPE_CHECKING:
    from chaos.cluster.stage import Stage

EVERY_MIN: Final = 3
OVERLAPS: Final = ("queue", "skip", "cancel_previous")
"""What becomes of an instant that comes while an earlier job runs; a schedule for each."""
OPERATIONS: Final = (
    Operation(op=Op.SLEEP, takes_ms=200),
    Operation(op=Op.PUBLISH),
    Operation(op=Op.SLEEP, takes_ms=100),
)
BACKFILL_S: Final = 86_400
S_PER_INSTANT: Final = 4.0
"""Of the run's load, for each instant in the past."""

NOW: Final = "SELECT cortex.now() AS now"
APPLY: Final = """
    INSERT INTO cortex.schedule
        (name, cron, zone, type, arguments, overlap, backfill_s, instant_as, origin, next_at,
         due_at, changed_by)
    VALUES ($1, $2, 'UTC', 'chaos_program', $3::jsonb, $4, $5, 'key', 'file', $6, $6, 'chaos')
"""
_HINT: Final = "SELECT pg_notify('cortex_breaker', 'schedule')"
PAUSE: Final = """
    UPDATE cortex.schedule SET due_at = cortex.now() + interval '10 years'
    WHERE changed_by = 'chaos'
"""
"""Not a pause, which would hold queued instants up: those are to run."""


@frozen(kw_only=True)
class Standing:
    """One schedule."""

    overlap: str
    past_count: int
    """Its instants before the run."""
    is_burst: bool = False
    """Its instants are successive minutes up to now, and the same ones of each later hour, so that
    the last one is always less than a minute late when the others are made up for."""

    @property
    def name(self) -> str:
        return f"chaos-{self.overlap}"

    def first(self, now: datetime) -> datetime:
        """Return its first instant, so many before now."""
        if self.is_burst:
            last = now.replace(second=0, microsecond=0)
            return last - timedelta(minutes=self.past_count - 1)
        begun = now.minute // EVERY_MIN * EVERY_MIN
        last = now.replace(minute=begun, second=0, microsecond=0)
        return last + timedelta(minutes=self._offset - EVERY_MIN * self.past_count)

    def row(self, first: datetime) -> tuple[object, ...]:
        """Return the arguments of `APPLY`."""
        cron = f"{','.join(map(str, self._minutes(first)))} * * * *"
        arguments = {"operations": [asdict(each) for each in OPERATIONS]}
        text = orjson.dumps(arguments).decode()
        return self.name, cron, text, self.overlap, BACKFILL_S, first

    def event(self, first: datetime) -> dict[str, object]:
        """Return what the history says of it."""
        return {
            "name": self.name,
            "first": first.isoformat(),
            "minutes": self._minutes(first),
        }

    def _minutes(self, first: datetime) -> list[int]:
        """Return the minutes of each hour at which it fires."""
        if self.is_burst:
            return sorted((first.minute + n) % 60 for n in range(self.past_count))
        return list(range(self._offset, 60, EVERY_MIN))

    @property
    def _offset(self) -> int:
        return OVERLAPS.index(self.overlap)


def draw_schedules(*, duration_s: float) -> tuple[Standing, ...]:
    """Return the schedules of a run."""
    count = max(1, round(duration_s / S_PER_INSTANT))
    return tuple(Standing(overlap=overlap, past_count=count) for overlap in OVERLAPS)


async def apply(stage: "Stage", schedules: tuple[Standing, ...]) -> None:
    """Apply the schedules; from now on they are due."""
    for each in schedules:
        (row,) = await stage.postgres.sql(NOW)
        first = each.first(row["now"])
        stage.history.add("run", "schedule", **each.event(first))
        await stage.postgres.sql(APPLY, *each.row(first))
    if schedules:
        await stage.postgres.sql(_HINT)


async def pause(stage: "Stage") -> None:
    """Let no further instant become due: the run is to come to rest."""
    await stage.postgres.sql(PAUSE)
