"""The triage of dead letters: one transaction that looks at a bounded batch, and acts."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final
from uuid import UUID

import attrs

from cortex.domain.dead_letter import DeadLetterState, FailureCause, TriageVerdict, judge
from cortex.postgres.database import Connection, Database, Record
from cortex.postgres.errors import is_called_off, is_overdue
from cortex.postgres.queries import sql
from cortex.store import dead_letters

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
    refused_count: int = 0
    """Letters whose retry, all at once, the database refused or somebody cancelled there: fewer at
    a time may pass."""
    called_off: UUID | None = None
    """The letter whose retry, alone, somebody cancelled there."""


async def triage(
    db: Database,
    *,
    new_id: Callable[[], UUID],
    calm_s: float,
    judged_max: int,
    retried_max: int,
    put_off: Sequence[UUID] = (),
) -> Triaged | None:
    """Look at letters once; None: another pod is at it.

    Letters whose breaker lets calls through again (one letter, as the probe, while the breaker is
    half-open and no job waits for it), and that are `calm_s` seconds old, are retried
    once in a line of jobs, unless a time-out left something half done: then a person decides, as
    of the second time. The others are judged by their cause. A letter that somebody holds is left
    to the next pass. When the database refuses to retry them, the caller is to try fewer; a letter
    whose retry is refused alone needs an operator. Of letters that are `put_off` the first is
    retried, alone, when there are no others. While they are retried, nothing else is held. A pass
    whose reply was lost needs no repeat: the next one sees what is left.
    """

    async def look_and_act(connection: Connection) -> Triaged | None:
        if not await connection.fetchval(sql("dead_letters.lock_triage")):
            return None
        unjudged = await connection.fetch(sql("dead_letters.unjudged"), judged_max)
        recovered = await connection.fetch(sql("dead_letters.recovered"), calm_s, judged_max)
        verdicts = {row["job_id"]: judge(_cause(row)) for row in unjudged}
        left = TriageVerdict(DeadLetterState.OPEN)
        verdicts |= {row["job_id"]: left for row in recovered if row["is_for_a_person"]}
        clear = {row["lineage_id"]: row for row in recovered if not row["is_for_a_person"]}
        chosen = _chosen(list(clear.values()), retried_max, put_off)
        held = [chosen[job_id] for job_id in await _held(connection, chosen)]
        retried: list[Record] = []
        refused_count, called_off = 0, None
        try:
            retried = await _retry(db.bound(connection), held, new_id)
        except Exception as error:
            refusal = dead_letters.refused(error)
            if refusal is None and not is_called_off(error):
                raise
            refused_count = len(held)
            job_id = held[0]["job_id"]
            if refused_count == 1 and refusal is None:
                called_off = job_id
            elif refused_count == 1 and refusal is not None:
                told = dead_letters.too_large(job_id) if is_overdue(error) else refusal
                verdicts[job_id] = TriageVerdict(DeadLetterState.ESCALATED, told.message)
        # After the retry, which may take as long as a statement may: these are held for a moment.
        settled = await _settle(connection, verdicts)
        states = Counter(row["state"] for row in settled)
        return Triaged(
            retried=tuple(row["job_id"] for row in retried),
            escalated=Counter(
                row["fingerprint"] for row in settled if row["state"] == DeadLetterState.ESCALATED
            ),
            archived_count=states[DeadLetterState.ARCHIVED],
            left_count=states[DeadLetterState.OPEN],
            refused_count=refused_count,
            called_off=called_off,
        )

    return await db.transact(look_and_act)


def _chosen(rows: Sequence[Record], count: int, put_off: Sequence[UUID]) -> dict[UUID, Record]:
    """Return those that are retried now: one that was put off only if there are no others."""
    found = {row["job_id"]: row for row in rows}
    others = [job_id for job_id in found if job_id not in put_off][:count]
    last = [job_id for job_id in put_off if job_id in found][:1]
    return {job_id: found[job_id] for job_id in others or last}


async def _settle(connection: Connection, verdicts: Mapping[UUID, TriageVerdict]) -> list[Record]:
    """Write the verdicts; what is left to a person is not looked at again."""
    held = await _held(connection, verdicts)
    if not held:
        return []
    return await connection.fetch(
        sql("dead_letters.settle"),
        held,
        [verdicts[job_id].state.value for job_id in held],
        [verdicts[job_id].reason for job_id in held],
        ACTOR,
    )


async def _held(connection: Connection, job_ids: Collection[UUID]) -> list[UUID]:
    """Hold letters that were looked at without locks; return those that nobody else took since."""
    if not job_ids:
        return []
    rows = await connection.fetch(sql("dead_letters.hold_unseen"), list(job_ids))
    return [row["job_id"] for row in rows]


async def _retry(
    inside: Database, rows: Sequence[Record], new_id: Callable[[], UUID]
) -> list[Record]:
    """Retry letters, each by the reason of its source."""
    if not rows:
        return []
    return await inside.fetch(
        "dead_letters.retry",
        [row["job_id"] for row in rows],
        [new_id() for _ in rows],
        [0.0] * len(rows),
        None,
        False,  # noqa: FBT003 -- parameters of the query: with steps, by itself
        ACTOR,
        [
            f"probes {row['source']}" if row["is_probe"] else f"{row['source']} answers again"
            for row in rows
        ],
        True,  # noqa: FBT003
    )


def _cause(row: Record) -> FailureCause:
    return FailureCause(
        code=row["error_code"],
        message=row["error_message"],
        error_class=row["error_class"],
        source=row["error_source"],
        is_escalated=row["is_escalated"],
    )
