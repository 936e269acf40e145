"""Bulk operations on dead letters: a person starts one, and pods process it in batches.

The dead letters are fixed when the operation starts. Each batch is one transaction: it writes what
happened to its dead letters together with the operation's progress, so that a kill at any point
repeats nothing and loses nothing. A batch that takes too long, waits in vain for a lock, or is
refused by the database is made smaller. A dead letter that fails alone is recorded, and the
operation continues; for one that is locked alone, the operation waits while others proceed.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

import attrs

from cortex.domain.bulk_operation import LETTERS_MAX, BulkChange, BulkState, BulkVerb
from cortex.domain.errors import ConflictError, CortexError, NotFoundError, UsageError
from cortex.postgres.database import Connection, Database, Record
from cortex.postgres.errors import is_called_off, is_locked
from cortex.postgres.queries import sql
from cortex.store import dead_letters
from cortex.store.dead_letters import DISCARD_BATCH, RESUBMIT_BATCH, Resubmission, SettledDeadLetter
from cortex.store.lost_replies import repeat_if_lost

BATCH_S: Final = 0.5
"""A batch has as many dead letters as the rate admits in this time."""
UNDER_WAY_MAX: Final = 100
ERROR_MAX: Final = 1000
WHICH_MAX: Final = 2000
ELSEWHERE_S: Final = 1.0
"""Another pod is processing it: poll again after this long."""
HELD_S: Final = 5.0
"""The next dead letter is locked: its operation waits this long, and the others proceed."""


@attrs.frozen(kw_only=True)
class BulkOperation:
    """A request; two with the same token are one."""

    token: UUID
    verb: BulkVerb
    job_ids: Sequence[UUID]
    """The failed jobs in order, each once."""
    which: str
    """How they were selected, as typed; for people only, and kept up to `WHICH_MAX`."""
    rate_per_s: float
    by: str
    reason: str
    agent_version: int | None = None
    """Of a retry, as in `dead_letters.resubmit`."""
    from_start: bool = False


async def begin(db: Database, operation: BulkOperation) -> int:
    """Start a bulk operation; return its number. Repeating this starts no second one.

    Raises `UsageError` for no dead letters or more than `LETTERS_MAX`, `ConflictError` while
    `UNDER_WAY_MAX` operations are active.
    """
    if not 0 < len(operation.job_ids) <= LETTERS_MAX:
        message = f"an act takes from 1 to {LETTERS_MAX:,} letters, not {len(operation.job_ids):,}"
        raise UsageError(message)
    number, _ = await repeat_if_lost(partial(_begin, db, operation))
    return number


async def _begin(db: Database, operation: BulkOperation) -> int:
    row = await db.fetch_one(
        "dead_acts.begin",
        operation.token,
        operation.verb.value,
        operation.which
        if len(operation.which) <= WHICH_MAX
        else f"{operation.which[: WHICH_MAX - 1]}…",
        operation.agent_version,
        operation.from_start,
        operation.rate_per_s,
        operation.by,
        operation.reason,
        list(operation.job_ids),
        _batch_most(operation.verb),
        UNDER_WAY_MAX,
    ) or await db.fetch_one("dead_acts.of_token", operation.token)
    if row is None:
        raise ConflictError(
            f"{UNDER_WAY_MAX} acts on dead letters are under way: no more are begun",
            hint="see them: cortex dead acts ls",
        )
    number: int = row["id"]
    return number


async def change(db: Database, act_id: int, how: BulkChange, *, by: str, reason: str = "") -> None:
    """Pause, resume or end a bulk operation.

    Raises `NotFoundError`, and `ConflictError` that names its state.
    """
    states = [state.value for state in how.before]
    fact = f"dead_act_{how.name}"
    if await db.fetch("dead_acts.change", act_id, how.after.value, states, by, reason, fact):
        return
    row = await show(db, act_id)
    who = f" by {row['changed_by']}" if row["changed_by"] and row["state"] != BulkState.DONE else ""
    raise ConflictError(f"act {act_id} is {row['state'].lower()}{who}: it was not {how.name}")


async def page(db: Database, *, limit: int) -> list[dict[str, Any]]:
    """Return bulk operations, active ones first, then the newest."""
    return [dict(row) for row in await db.fetch("dead_acts.list", None, limit)]


async def show(db: Database, act_id: int) -> dict[str, Any]:
    """Return one bulk operation. Raises `NotFoundError`."""
    row = await db.fetch_one("dead_acts.list", act_id, 1)
    if row is None:
        message = f"there is no act {act_id} on dead letters"
        raise NotFoundError(message, hint="list them: cortex dead acts ls")
    return dict(row)


async def failures(db: Database, act_id: int, *, limit: int) -> list[dict[str, Any]]:
    """Return the dead letters that a bulk operation could not settle, in order."""
    return [dict(row) for row in await db.fetch("dead_acts.failures", act_id, limit)]


async def forget(db: Database, *, kept_s: float, limit: int) -> int:
    """Delete bulk operations that ended that long ago; return how many. The dead letters stay."""
    return len(await db.fetch("dead_acts.forget", kept_s, limit))


async def work_off(db: Database, *, new_id: Callable[[], UUID]) -> float | None:
    """Process a due batch; return the seconds until the next one, None if there is none.

    One pod at a time does so. After `OutcomeUnknownError` the next call goes on from what is true.
    """
    row = await db.fetch_one("dead_acts.due")
    if row is None or row["due_s"] is None:
        return None
    if row["due_s"] > 0:
        return float(row["due_s"])

    async def batch(connection: Connection) -> bool:
        if not await connection.fetchval(sql("dead_acts.lock")):
            return False
        operation = await connection.fetchrow(sql("dead_acts.take"))
        if operation is None:  # another session was quicker, or holds it
            return False
        await _batch(db.bound(connection), connection, operation, new_id)
        return True

    return 0.0 if await db.transact(batch) else ELSEWHERE_S


async def _batch(
    db: Database, connection: Connection, operation: Record, new_id: Callable[[], UUID]
) -> None:
    verb = BulkVerb(operation["verb"])
    in_time = max(1, int(operation["rate_per_s"] * BATCH_S))
    rows = await connection.fetch(
        sql("dead_acts.next"),
        operation["id"],
        operation["passed"],
        min(operation["batch_max"], in_time),
    )
    ids = [row["job_id"] for row in rows]
    grown = min(2 * operation["batch_max"], _batch_most(verb))
    try:
        async with connection.transaction():  # a savepoint: the operation outlives a failure
            settled = await _settle(db, verb, operation, ids, new_id)
    except Exception as error:
        refusal = dead_letters.refused(error)
        if refusal is None and not is_locked(error) and not is_called_off(error):
            raise
        if len(ids) > 1:
            await _note(connection, operation, {}, done=0, batch_max=len(ids) // 2, pause_s=0)
            return
        if refusal is None:
            await _note(connection, operation, {}, done=0, batch_max=1, pause_s=HELD_S)
            return
        settled = [SettledDeadLetter(job_id=ids[0], error=refusal)]
    errors = {
        row["nth"]: each.error
        for row, each in zip(rows, settled, strict=True)
        if each.error is not None
    }
    done = len(settled) - len(errors)
    pause_s = len(ids) / operation["rate_per_s"]
    await _note(connection, operation, errors, done=done, batch_max=grown, pause_s=pause_s)


async def _settle(
    db: Database, verb: BulkVerb, operation: Record, ids: Sequence[UUID], new_id: Callable[[], UUID]
) -> list[SettledDeadLetter]:
    by, reason = operation["asked_by"], operation["reason"]
    if verb is BulkVerb.DISCARD:
        return await dead_letters.discard(db, ids, by=by, reason=reason)
    wanted = [Resubmission(job_id=each, new_id=new_id()) for each in ids]
    return await dead_letters.resubmit(
        db,
        wanted,
        by=by,
        reason=reason,
        agent_version=operation["agent_version"],
        from_start=operation["from_start"],
    )


async def _note(
    connection: Connection,
    operation: Record,
    errors: dict[int, CortexError],
    *,
    done: int,
    batch_max: int,
    pause_s: float,
) -> None:
    await connection.fetch(
        sql("dead_acts.progress"),
        operation["id"],
        done,
        list(errors),
        [error.code for error in errors.values()],
        [_message(error)[:ERROR_MAX] for error in errors.values()],
        batch_max,
        pause_s,
    )


def _message(error: CortexError) -> str:
    return error.message if error.hint is None else f"{error.message}; {error.hint}"


def _batch_most(verb: BulkVerb) -> int:
    return RESUBMIT_BATCH if verb is BulkVerb.RETRY else DISCARD_BATCH
