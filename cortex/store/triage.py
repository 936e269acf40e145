"""The triage of dead letters: one transaction that looks at a bounded batch, and acts."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

import attrs

from cortex.domain.dead_letter import Cause, LetterState, judge
from cortex.store.database import Connection, Database, Record
from cortex.store.queries import sql

ACTOR: Final = "triage"
"""Who acts when nobody does."""


@attrs.frozen(kw_only=True)
class Triaged:
    """What one pass did."""

    retried: tuple[UUID, ...] = ()
    """Jobs that others go on from now."""
    escalated: Counter[str] = attrs.field(factory=Counter)
    """Letters of each fingerprint that an operator has to do something for."""
    archived_count: int = 0
    left_count: int = 0
    """Letters that a person has to decide."""


async def triage(
    db: Database, *, new_id: Callable[[], UUID], calm_s: float, judged_max: int, retried_max: int
) -> Triaged | None:
    """Look at letters once; None: another pod is at it.

    Letters whose breaker lets calls through again, and that are `calm_s` seconds old, are retried
    once in a line of jobs, unless a time-out left something half done: then a person decides, as
    of the second time. The others are judged by their cause. A pass whose reply was lost needs
    no repeat: the next one sees what is left.
    """

    async def look_and_act(connection: Connection) -> Triaged | None:
        if not await connection.fetchval(sql("dead_letters.lock_triage")):
            return None
        unjudged = await connection.fetch(sql("dead_letters.unjudged"), judged_max)
        recovered = await connection.fetch(sql("dead_letters.recovered"), calm_s, judged_max)
        left = {row["job_id"] for row in recovered if row["is_for_a_person"]}
        settled = await _settle(connection, unjudged, left)
        clear = [row for row in recovered if row["job_id"] not in left]
        retried = await _retry(connection, clear[:retried_max], new_id)
        states = Counter(row["state"] for row in settled)
        return Triaged(
            retried=tuple(row["job_id"] for row in retried),
            escalated=Counter(
                row["fingerprint"] for row in settled if row["state"] == LetterState.ESCALATED
            ),
            archived_count=states[LetterState.ARCHIVED],
            left_count=states[LetterState.OPEN],
        )

    return await db.transact(look_and_act)


async def _settle(
    connection: Connection, unjudged: Sequence[Record], left: set[UUID]
) -> list[Record]:
    """Write the verdicts; what is left to a person is not looked at again."""
    verdicts = {row["job_id"]: judge(_cause(row)) for row in unjudged}
    ids = [*verdicts, *left]
    states = [verdict.state.value for verdict in verdicts.values()]
    reasons = [verdict.reason for verdict in verdicts.values()]
    states += [LetterState.OPEN.value] * len(left)
    reasons += [None] * len(left)
    return await connection.fetch(sql("dead_letters.settle"), ids, states, reasons, ACTOR)


async def _retry(
    connection: Connection, recovered: Sequence[Record], new_id: Callable[[], UUID]
) -> list[Record]:
    """Retry letters, one of each line of jobs, each by the reason of its source."""
    by_line = {row["lineage_id"]: row for row in recovered}
    done: list[Record] = []
    for source in sorted({row["source"] for row in by_line.values()}):
        ids = [row["job_id"] for row in by_line.values() if row["source"] == source]
        done += await connection.fetch(
            sql("dead_letters.retry"),
            ids,
            [new_id() for _ in ids],
            [0.0] * len(ids),
            None,
            False,  # noqa: FBT003 -- parameters of the query: with steps, by itself
            ACTOR,
            f"{source} answers again",
            True,  # noqa: FBT003
        )
    return done


def _cause(row: Record) -> Cause:
    return Cause(
        code=row["error_code"],
        message=row["error_message"],
        error_class=row["error_class"],
        source=row["error_source"],
        is_escalated=row["is_escalated"],
    )
