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

EVERY_MIN: Final = 2
OVERLAPS: Final = ("queue", "skip")
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
    UPDATE cortex.schedule SET paused_at = cortex.now(), paused_by = 'chaos', pause_reason = ''
    WHERE changed_by = 'chaos' AND paused_at IS NULL
"""


@frozen(kw_only=True)
class Standing:
    """One schedule."""

    overlap: str
    past_count: int
    """Its instants before the run."""
    every_min: int = EVERY_MIN

    @property
    def name(self) -> str:
        return f"chaos-{self.overlap}"

    def first(self, now: datetime) -> datetime:
        """Return its first instant, so many before now."""
        begun = now.minute // self.every_min * self.every_min
        last = now.replace(minute=begun, second=0, microsecond=0)
        return last + timedelta(minutes=self._offset - self.every_min * self.past_count)

    def row(self, first: datetime) -> tuple[object, ...]:
        """Return the arguments of `APPLY`."""
        cron = f"{self._offset}-59/{self.every_min} * * * *"
        arguments = {"operations": [asdict(each) for each in OPERATIONS]}
        text = orjson.dumps(arguments).decode()
        return self.name, cron, text, self.overlap, BACKFILL_S, first

    def event(self, first: datetime) -> dict[str, object]:
        """Return what the history says of it."""
        return {"name": self.name, "first": first.isoformat(), "every_min": self.every_min}

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
