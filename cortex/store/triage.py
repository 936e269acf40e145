"""The triage of dead letters: one transaction that reads a bounded batch, and acts on it."""

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
"""The actor in records of automatic decisions."""


@attrs.frozen(kw_only=True)
class Triaged:
    """The result of one pass."""

    retried: tuple[UUID, ...] = ()
    """Jobs that new jobs now continue."""
    escalated: Counter[str] = attrs.field(factory=Counter)
    """Dead letters of each fingerprint that need an operator."""
    archived_count: int = 0
    left_count: int = 0
    """Dead letters that a person has to decide on."""
    refused_count: int = 0
    """Dead letters whose common retry was refused by the database or cancelled there: fewer at a
    time may succeed."""
    called_off: UUID | None = None
    """The dead letter whose single retry was cancelled there."""
    next_s: float | None = None
    """Seconds until time alone makes more due; None: it does not."""

    @property
    def handled_count(self) -> int:
        return len(self.retried) + self.escalated.total() + self.archived_count + self.left_count


async def triage(
    db: Database,
    *,
    new_id: Callable[[], UUID],
    calm_s: float,
    judged_max: int,
    retried_max: int,
    put_off: Sequence[UUID] = (),
) -> Triaged | None:
    """Do one pass over dead letters; None: another process is doing it.

    Dead letters whose breaker admits calls again, and that are `calm_s` seconds old, are retried
    once per lineage. While the breaker is half-open and no job waits for it, one of them is retried
    as the probe. If a timeout left something half done, or on the second time, a person decides.
    The others are judged by their cause. A locked dead letter is left to the next pass. When the
    database refuses to retry them, the caller should try fewer; one whose retry is refused alone
    needs an operator. Of those that are `put_off`, the first is retried, alone, when there are no
    others. During the retry nothing else is held. A pass whose reply was lost need not be repeated:
    the next one sees what is left.
    """

    async def run_pass(connection: Connection) -> Triaged | None:
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
                reason = dead_letters.too_large(job_id) if is_overdue(error) else refusal
                verdicts[job_id] = TriageVerdict(DeadLetterState.ESCALATED, reason.message)
        # After the retry, which may take as long as a statement may: these are held only briefly.
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
            next_s=await connection.fetchval(sql("dead_letters.next_recovery"), calm_s),
        )

    return await db.transact(run_pass)


def _chosen(rows: Sequence[Record], count: int, put_off: Sequence[UUID]) -> dict[UUID, Record]:
    """Return those to retry now: one that was put off only if there are no others."""
    by_job = {row["job_id"]: row for row in rows}
    others = [job_id for job_id in by_job if job_id not in put_off][:count]
    last = [job_id for job_id in put_off if job_id in by_job][:1]
    return {job_id: by_job[job_id] for job_id in others or last}


async def _settle(connection: Connection, verdicts: Mapping[UUID, TriageVerdict]) -> list[Record]:
    """Write the verdicts; what is left to a person is not read again."""
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
    """Hold dead letters that were read without locks; return those that are still unhandled."""
    if not job_ids:
        return []
    rows = await connection.fetch(sql("dead_letters.hold_unseen"), list(job_ids))
    return [row["job_id"] for row in rows]


async def _retry(
    inside: Database, rows: Sequence[Record], new_id: Callable[[], UUID]
) -> list[Record]:
    """Retry dead letters, each with the reason of its source."""
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
        [None] * len(rows),
        [None] * len(rows),
        None,
    )


def _cause(row: Record) -> FailureCause:
    return FailureCause(
        code=row["error_code"],
        message=row["error_message"],
        error_class=row["error_class"],
        source=row["error_source"],
        is_escalated=row["is_escalated"],
    )
