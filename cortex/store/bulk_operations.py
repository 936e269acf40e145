"""Acts on many dead letters: begun by a person, worked off by pods in batches, whoever leaves.

The letters are fixed when an act begins. Each batch is one transaction: what becomes of its letters
and how far the act is are written together, so that a kill anywhere repeats nothing and loses
nothing. A batch that takes too long, that waits in vain for what somebody holds, or that the
database refuses, is made smaller; a letter that fails alone is told of, and the act goes on; for
one that is held alone the act waits while others have their turns.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

import attrs

from cortex.domain.bulk_operation import LETTERS_MAX, BulkChange, BulkState, BulkVerb
from cortex.domain.errors import ConflictError, CortexError, NotFoundError, UsageError
from cortex.postgres.database import Connection, Database, Record, repeat_if_lost
from cortex.postgres.errors import is_called_off, is_locked
from cortex.postgres.queries import sql
from cortex.store import dead_letters
from cortex.store.dead_letters import DISCARD_BATCH, RESUBMIT_BATCH, Resubmission, SettledDeadLetter

BATCH_S: Final = 0.5
"""A batch has as many letters as the rate lets through in this time."""
UNDER_WAY_MAX: Final = 100
ERROR_MAX: Final = 1000
WHICH_MAX: Final = 2000
ELSEWHERE_S: Final = 1.0
"""Another pod is at it: look again after so long."""
HELD_S: Final = 5.0
"""Somebody holds the letter whose turn it is: its act waits so long, and the others go on."""


@attrs.frozen(kw_only=True)
class BulkOperation:
    """What is asked for; two with the same token are one."""

    token: UUID
    verb: BulkVerb
    job_ids: Sequence[UUID]
    """The failed jobs, in the order of their turns; each once."""
    which: str
    """How they were chosen, as one types it; for people only, and kept up to `WHICH_MAX`."""
    rate_per_s: float
    by: str
    reason: str
    agent_version: int | None = None
    """Of a retry, as in `dead_letters.resubmit`."""
    from_start: bool = False


async def begin(db: Database, act: BulkOperation) -> int:
    """Begin an act; return its number. Repeating it begins no second one.

    Raises `UsageError` for no letters or more than `LETTERS_MAX`, `ConflictError` while
    `UNDER_WAY_MAX` acts are under way.
    """
    if not 0 < len(act.job_ids) <= LETTERS_MAX:
        told = f"an act takes from 1 to {LETTERS_MAX:,} letters, not {len(act.job_ids):,}"
        raise UsageError(told)
    number, _ = await repeat_if_lost(partial(_begin, db, act))
    return number


async def _begin(db: Database, act: BulkOperation) -> int:
    row = await db.fetch_one(
        "dead_acts.begin",
        act.token,
        act.verb.value,
        act.which if len(act.which) <= WHICH_MAX else f"{act.which[: WHICH_MAX - 1]}…",
        act.agent_version,
        act.from_start,
        act.rate_per_s,
        act.by,
        act.reason,
        list(act.job_ids),
        _batch_most(act.verb),
        UNDER_WAY_MAX,
    ) or await db.fetch_one("dead_acts.of_token", act.token)
    if row is None:
        raise ConflictError(
            f"{UNDER_WAY_MAX} acts on dead letters are under way: no more are begun",
            hint="see them: cortex dead acts ls",
        )
    number: int = row["id"]
    return number


async def change(db: Database, act_id: int, how: BulkChange, *, by: str, reason: str = "") -> None:
    """Pause an act, let it go on or end it.

    Raises `NotFoundError`, and `ConflictError` that says how it stands.
    """
    states = [state.value for state in how.before]
    fact = f"dead_act_{how.name}"
    if await db.fetch("dead_acts.change", act_id, how.after.value, states, by, reason, fact):
        return
    row = await show(db, act_id)
    who = f" by {row['changed_by']}" if row["changed_by"] and row["state"] != BulkState.DONE else ""
    raise ConflictError(f"act {act_id} is {row['state'].lower()}{who}: it was not {how.name}")


async def page(db: Database, *, limit: int) -> list[dict[str, Any]]:
    """Return acts, those that are under way first, then the newest."""
    return [dict(row) for row in await db.fetch("dead_acts.list", None, limit)]


async def show(db: Database, act_id: int) -> dict[str, Any]:
    """Return one act. Raises `NotFoundError`."""
    row = await db.fetch_one("dead_acts.list", act_id, 1)
    if row is None:
        told = f"there is no act {act_id} on dead letters"
        raise NotFoundError(told, hint="list them: cortex dead acts ls")
    return dict(row)


async def failures(db: Database, act_id: int, *, limit: int) -> list[dict[str, Any]]:
    """Return the letters that an act could not settle, in the order of their turns."""
    return [dict(row) for row in await db.fetch("dead_acts.failures", act_id, limit)]


async def forget(db: Database, *, kept_s: float, limit: int) -> int:
    """Delete acts that ended so long ago; return how many. Their letters stay as they are."""
    return len(await db.fetch("dead_acts.forget", kept_s, limit))


async def work_off(db: Database, *, new_id: Callable[[], UUID]) -> float | None:
    """Do one batch, if one is due; return in how many seconds the next one is, None: there is none.

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
        act = await connection.fetchrow(sql("dead_acts.take"))
        if act is None:  # somebody was quicker, or holds it
            return False
        await _batch(db.bound(connection), connection, act, new_id)
        return True

    return 0.0 if await db.transact(batch) else ELSEWHERE_S


async def _batch(
    db: Database, connection: Connection, act: Record, new_id: Callable[[], UUID]
) -> None:
    verb = BulkVerb(act["verb"])
    in_time = max(1, int(act["rate_per_s"] * BATCH_S))
    letters = await connection.fetch(
        sql("dead_acts.next"), act["id"], act["passed"], min(act["batch_max"], in_time)
    )
    ids = [row["job_id"] for row in letters]
    grown = min(2 * act["batch_max"], _batch_most(verb))
    try:
        async with connection.transaction():  # a savepoint: what fails is undone, the act goes on
            settled = await _settle(db, verb, act, ids, new_id)
    except Exception as error:
        refusal = dead_letters.refused(error)
        if refusal is None and not is_locked(error) and not is_called_off(error):
            raise
        if len(ids) > 1:
            await _note(connection, act, {}, done=0, batch_max=len(ids) // 2, pause_s=0)
            return
        if refusal is None:
            await _note(connection, act, {}, done=0, batch_max=1, pause_s=HELD_S)
            return
        settled = [SettledDeadLetter(job_id=ids[0], error=refusal)]
    errors = {
        row["nth"]: each.error
        for row, each in zip(letters, settled, strict=True)
        if each.error is not None
    }
    done = len(settled) - len(errors)
    pause_s = len(ids) / act["rate_per_s"]
    await _note(connection, act, errors, done=done, batch_max=grown, pause_s=pause_s)


async def _settle(
    db: Database, verb: BulkVerb, act: Record, ids: Sequence[UUID], new_id: Callable[[], UUID]
) -> list[SettledDeadLetter]:
    by, reason = act["asked_by"], act["reason"]
    if verb is BulkVerb.DISCARD:
        return await dead_letters.discard(db, ids, by=by, reason=reason)
    wanted = [Resubmission(job_id=each, new_id=new_id()) for each in ids]
    return await dead_letters.resubmit(
        db,
        wanted,
        by=by,
        reason=reason,
        agent_version=act["agent_version"],
        from_start=act["from_start"],
    )


async def _note(
    connection: Connection,
    act: Record,
    errors: dict[int, CortexError],
    *,
    done: int,
    batch_max: int,
    pause_s: float,
) -> None:
    await connection.fetch(
        sql("dead_acts.progress"),
        act["id"],
        done,
        list(errors),
        [error.code for error in errors.values()],
        [_told(error)[:ERROR_MAX] for error in errors.values()],
        batch_max,
        pause_s,
    )


def _told(error: CortexError) -> str:
    return error.message if error.hint is None else f"{error.message}; {error.hint}"


def _batch_most(verb: BulkVerb) -> int:
    return RESUBMIT_BATCH if verb is BulkVerb.RETRY else DISCARD_BATCH
