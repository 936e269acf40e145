"""Circuit breakers that all pods share: each change holds the row, applies a rule, records a fact.

The rules are in `cortex.domain.breaker`; this module only applies them to the shared rows.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import attrs
import orjson

from cortex.domain import breaker as rules
from cortex.domain.breaker import (
    ERRORS_MAX,
    HOLD_MAX_S,
    HOLD_MIN_S,
    PAST_S,
    Breaker,
    BreakerState,
    CountedError,
    Past,
    Turn,
    policy_of,
)
from cortex.domain.effect import FREEZE
from cortex.domain.errors import ConflictError, NotFoundError, UsageError
from cortex.domain.failure import Failure
from cortex.domain.people import Identity
from cortex.domain.retry import RETRY_AFTER_MAX_S
from cortex.postgres.database import Connection, Database, Record
from cortex.postgres.queries import sql
from cortex.store.rows import row_of

COUNT_MAX: Final = 1_000
"""How many jobs to count that wait for one breaker, or for the freeze, as on the screens."""

Rule = Callable[[Breaker, datetime], Breaker]

_COLUMNS = [field.name for field in attrs.fields(Breaker)]


@attrs.frozen(kw_only=True)
class BreakerReading:
    """A breaker, and the database's time when it was read."""

    breaker: Breaker
    now: datetime
    changes: tuple[str, ...] = ()
    """What this very call changed, in the words of facts."""


@attrs.frozen(kw_only=True)
class BreakerRow:
    """A breaker, and the jobs that wait for it."""

    name: str
    state: BreakerState = attrs.field(converter=BreakerState)
    failures: int
    """Consecutive ones."""
    requests: int
    """Since it last closed."""
    opened_at: datetime | None
    open_until: datetime | None
    probe_by: UUID | None
    probe_pod: str | None
    """Name of the pod that probes it now."""
    forced_by: str | None
    """Who holds it open."""
    forced_reason: str | None
    forced_at: datetime | None
    last_error: str | None
    escalated_at: datetime | None
    updated_at: datetime
    waiting: int
    """Jobs that wait for it, up to `COUNT_MAX`."""
    past: Past | None = None
    """See `with_past`."""
    now: datetime = attrs.field(eq=False)


@attrs.frozen(kw_only=True)
class FreezeState:
    """Whether effects are frozen, by whom, why and since when."""

    is_frozen: bool
    by: str | None
    reason: str | None
    frozen_at: datetime | None
    waiting_jobs: int
    """Up to `COUNT_MAX`."""
    now: datetime = attrs.field(eq=False)


async def look(db: Database, *, limit: int) -> tuple[datetime, list[Breaker]]:
    """Return the time and the breakers that are not healthy: all others admit calls."""
    rows = await db.fetch("breakers.look", limit)
    return rows[0]["now"], [_breaker(row) for row in rows if row["name"] is not None]


async def failed(
    db: Database,
    name: str,
    *,
    failure: Failure,
    requests: int,
    probe: int | None,
    retry_after_max_s: float = RETRY_AFTER_MAX_S,
) -> BreakerReading:
    """Count a failure; see `cortex.domain.breaker.failed`."""
    return await _change(
        db,
        name,
        lambda b, now: rules.failed(
            b,
            failure,
            now,
            requests=requests,
            probe=probe,
            retry_after_max_s=retry_after_max_s,
        ),
    )


async def succeeded(db: Database, name: str, *, requests: int, probe: int | None) -> BreakerReading:
    """End a run of failures, or answer the probe."""
    return await _change(db, name, lambda b, _: rules.succeeded(b, requests=requests, probe=probe))


async def move_on(db: Database, name: str) -> BreakerReading:
    """Write the state change that is due by time alone; see `cortex.domain.breaker.moved_on`."""
    return await _change(db, name, rules.moved_on)


async def take_probe(
    db: Database, name: str, *, pod_id: UUID, lease_s: float
) -> tuple[BreakerReading, int | None]:
    """Take the probe if it is free; return its number then.

    After `OutcomeUnknownError` it may be taken: it counts as lost when its lease expires.
    """
    taken: list[bool] = []

    def rule(breaker: Breaker, now: datetime) -> Breaker:
        taken[:] = [breaker.may_be_probed(now)]
        return rules.probe_taken(breaker, now, by=pod_id, lease_s=lease_s)

    reading = await _change(db, name, rule)
    return reading, reading.breaker.probe if taken == [True] else None


async def renew_probe(db: Database, name: str, *, probe: int, lease_s: float) -> BreakerReading:
    """Renew the probe's lease: it is still in flight."""
    return await _change(
        db, name, lambda b, now: rules.renewed(b, now, probe=probe, lease_s=lease_s)
    )


async def give_back(db: Database, name: str, *, probe: int) -> BreakerReading:
    """Release the probe for another call: this one had no result."""
    return await _change(db, name, lambda b, _: rules.given_back(b, probe=probe))


async def force_open(
    db: Database, name: str, *, by: str, reason: str, for_s: float | None = None
) -> BreakerReading:
    """Hold a breaker open for this many seconds; None: until a person closes it.

    Raises `UsageError` for an impossible name or time.
    """
    policy_of(name)
    if for_s is not None and not HOLD_MIN_S <= for_s <= HOLD_MAX_S:
        raise UsageError(
            f"a breaker is held open for 1 second to 30 days, not {for_s:g} s",
            hint="without a time it is held until a person closes it",
        )
    return await _change(
        db,
        name,
        lambda b, now: rules.forced_open(b, now, by=by, reason=reason, for_s=for_s),
        person=(by, reason),
    )


async def close(db: Database, name: str, *, by: str, reason: str) -> BreakerReading:
    """Close a breaker now and reset its counts. Raises `NotFoundError`."""
    await _require(db, name)
    return await _change(db, name, lambda b, _: rules.closed(b), person=(by, reason))


async def freeze(db: Database, *, by: str, reason: str) -> BreakerReading:
    """Let no pod begin an effect from now on: jobs wait. Records who froze last."""
    return await _change(
        db,
        FREEZE,
        lambda b, now: rules.forced_open(b, now, by=by, reason=reason),
        person=(by, reason),
    )


async def unfreeze(db: Database, *, by: Identity, reason: str) -> None:
    """Permit effects again: jobs continue. Raises `ConflictError` if they are not frozen."""
    row = await db.fetch_one("breakers.lift_freeze", by.document(), reason)
    if row is None or not row["is_lifted"]:
        raise ConflictError("effects are not frozen", hint="see: cortex freeze status")


async def frozen(db: Database) -> FreezeState:
    """Return whether effects are frozen, and how many jobs wait for that."""
    row = await db.fetch_one("breakers.freeze", COUNT_MAX)
    if row is None:
        raise AssertionError("breakers.freeze always returns one row")
    return row_of(FreezeState, row)


async def forget(db: Database, *, idle_s: float, limit: int) -> int:
    """Remove breakers that were closed and unchanged for this long; return how many."""
    return len(await db.fetch("breakers.forget", idle_s, limit))


async def page(db: Database, *, name: str | None = None, limit: int = 200) -> list[BreakerRow]:
    """Return breakers, those that are not closed first."""
    rows = await db.fetch("breakers.list", name, limit, COUNT_MAX)
    return [row_of(BreakerRow, row, past=None) for row in rows]


async def _require(db: Database, name: str) -> None:
    policy_of(name)
    if await page(db, name=name, limit=1):
        return
    names = ", ".join(row.name for row in await page(db, limit=10))
    raise NotFoundError(
        f"there is no circuit breaker {name!r}",
        hint=f"there are: {names}" if names else "none has ever opened or counted a failure",
    )


async def _change(
    db: Database, name: str, rule: Rule, *, person: tuple[str, str] | None = None
) -> BreakerReading:
    """Hold a breaker, create it if needed, and write the result of the rule with its facts.

    A person's action is recorded even if it changes nothing.
    """

    async def hold_and_apply(connection: Connection) -> BreakerReading:
        row = await _held(connection, name)
        before, now = _breaker(row), row["now"]
        after = rule(before, now)
        if after is before and person is None:
            return BreakerReading(breaker=before, now=now)
        changes = rules.changes(before, after, is_by_person=person is not None)
        version = await connection.fetchval(
            sql("breakers.save"),
            *attrs.astuple(after),
            changes,
            _data(before, after, person),
            _outside(before) != _outside(after),
        )
        if version is None:
            raise AssertionError(f"breaker {name} changed while it was held")
        saved = attrs.evolve(after, version=version)
        return BreakerReading(breaker=saved, now=now, changes=tuple(changes))

    return await db.transact(hold_and_apply)


async def _held(connection: Connection, name: str) -> Record:
    row = await connection.fetchrow(sql("breakers.hold"), name)
    if row is None:
        await connection.execute(sql("breakers.enter"), name)
        row = await connection.fetchrow(sql("breakers.hold"), name)
    if row is None:
        raise AssertionError(f"breaker {name} was created but does not exist")
    return row


def _outside(breaker: Breaker) -> tuple[object, ...]:
    """Return what other pods must know at once; polling finds the counts."""
    return (breaker.state, breaker.open_until, breaker.probe_until is None, breaker.forced_by)


def _data(before: Breaker, after: Breaker, person: tuple[str, str] | None) -> str:
    """Return a fact's data; after a return to health its numbers are those of the outage."""
    reported = before if after.state is BreakerState.CLOSED else after
    by, reason = person or (None, None)
    document = {
        "before": before.state,
        "after": after.state,
        "failures": reported.failures,
        "opened_at": reported.opened_at,
        "open_until": after.open_until,
        "probe_by": None if after.probe_by is None else str(after.probe_by),
        "error": after.last_error,
        "by": by,
        "reason": reason,
    }
    return orjson.dumps(
        {key: value for key, value in document.items() if value is not None}
    ).decode()


def _breaker(row: Record) -> Breaker:
    values = {name: row[name] for name in _COLUMNS}
    return Breaker(**{**values, "state": BreakerState(row["state"])})


# --- Recent history of circuit breakers, from the facts: bounded, however many there are.


CHANGES_MAX: Final = 50_000
"""Changes to read, of all breakers together."""
CHANGES_EACH_MAX: Final = 500
"""Of one breaker, the newest: a probe every half minute changes it twice."""


async def past(db: Database, names: Sequence[str]) -> dict[str, Past]:
    """Return by name the events of the last hour, and the last errors that count."""
    if not names:
        return {}
    changes = max(1, min(CHANGES_EACH_MAX, CHANGES_MAX // len(names)))
    rows = await db.fetch("breakers.past", list(names), PAST_S, changes, ERRORS_MAX)
    return {
        row["name"]: Past(
            turns=tuple(Turn(**each) for each in _timed(row["turns"])),
            known_since=row["known_since"],
            errors=tuple(CountedError(**each) for each in _timed(row["errors"])),
        )
        for row in rows
    }


async def with_past(db: Database, rows: Sequence[BreakerRow]) -> list[BreakerRow]:
    """Return breakers with their recent history."""
    history = await past(db, [row.name for row in rows])
    return [attrs.evolve(row, past=history[row.name]) for row in rows]


def _timed(document: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = orjson.loads(document)
    return [row | {"at": datetime.fromisoformat(row["at"])} for row in rows]
