"""Circuit breakers: recent failures, and the jobs that wait for recovery."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from cortex.domain.breaker import (
    ERRORS_MAX,
    POLICIES,
    BreakerState,
    CountedError,
    Past,
    Turn,
    is_calm,
)
from cortex.domain.phrases import span
from cortex.domain.safe import safe
from cortex.store.breakers import COUNT_MAX, BreakerRow
from cortex.view.breakers import strip
from cortex.view.cells import Cell
from cortex.view.effects import held_text, is_held
from cortex.view.phrases import NOTHING, age, since_s
from cortex.view.resource import Field, Resource, on_demand

_MARKS: Final = {
    BreakerState.CLOSED: Cell("● closed", "done"),
    BreakerState.OPEN: Cell("✗ open", "fail"),
    BreakerState.HALF_OPEN: Cell("◆ half-open", "warn"),
}
_HELD: Final = Cell("◆ held open", "warn")


def _waiting(row: BreakerRow) -> Cell:
    more = "+" if row.waiting >= COUNT_MAX else ""
    return Cell(f"{min(row.waiting, COUNT_MAX):,}{more}", "" if row.waiting else "dim")


def _failures(row: BreakerRow) -> Cell:
    policy = POLICIES.get(row.name.partition(":")[0])  # newer pods may have more kinds
    limit = f"/{policy.opens_after}" if policy else ""
    return Cell(f"{row.failures}{limit}", "" if row.failures else "dim")


def _since(row: BreakerRow) -> Cell:
    return Cell(age(since_s(row, row.opened_at or row.updated_at)))


def _state(row: BreakerRow) -> Cell:
    return _HELD if is_held(row, row.now) else _MARKS[row.state]


def _probe_in_s(row: BreakerRow) -> float | None:
    if row.state != BreakerState.OPEN or row.open_until is None:
        return None
    return max(0.0, -since_s(row, row.open_until))


def _probe(row: BreakerRow) -> Cell:
    if row.probe_by is not None:
        return Cell(safe(f"by {row.probe_pod or 'a pod'}"), "warn")
    left_s = _probe_in_s(row)
    if left_s is None:
        is_due = row.state is BreakerState.HALF_OPEN
        return Cell("next job", "warn") if is_due else Cell(NOTHING, "dim")
    return Cell(span(left_s) if left_s else "next job")


def _past(row: BreakerRow) -> Past:
    return row.past or Past()


def _last_hour(row: BreakerRow) -> str:
    return strip(row.state, _past(row), row.now)


def _remark(row: BreakerRow) -> str:
    """Return the most important remark; "" for none."""
    error = row.last_error or ""
    if row.forced_by is not None:
        return held_text(row, row.now)
    if row.escalated_at is not None:
        return f"! needs attention: {error}"
    return error


def _remark_cell(row: BreakerRow) -> Cell:
    is_urgent = row.forced_by is not None or row.escalated_at is not None
    return Cell(safe(_remark(row)), "warn" if is_urgent else "dim")


def _turns(row: BreakerRow) -> tuple[Turn, ...]:
    return _past(row).turns


def _known_since(row: BreakerRow) -> datetime | None:
    return _past(row).known_since


def _errors(row: BreakerRow) -> tuple[CountedError, ...]:
    return _past(row).errors


# The name is never shortened: people type it.
FIELDS: Final[Sequence[Field[BreakerRow]]] = (
    Field(name="name", title="breaker", style="bold"),
    Field(name="state", shown=_state),
    Field(
        name="failures", doc="consecutive failures", shown=_failures, is_right=True, is_spare=True
    ),
    Field(name="opened_at", title="since", shown=_since, is_right=True, is_spare=True),
    Field(
        name="probe_in_s",
        doc="until one call may test it; null: it is not open",
        title="probe",
        value=_probe_in_s,
        shown=_probe,
        is_right=True,
    ),
    Field(
        name="waiting",
        doc=f"waiting jobs, up to {COUNT_MAX:,}",
        title="jobs",
        shown=_waiting,
        is_right=True,
    ),
    Field(
        name="last_hour",
        doc="a bar for every five minutes, drawn from `turns`",
        title="last hour",
        value=_last_hour,
        shown=lambda r: Cell(_last_hour(r), "dim" if is_calm(r.state, _past(r)) else ""),
        is_spare=True,
        is_for_people=True,
    ),
    Field(
        name="remark",
        title="why",
        value=_remark,
        shown=_remark_cell,
        least=12,
        is_for_people=True,
    ),
    *on_demand("forced_reason", "forced_at", "last_error", "updated_at"),
    *on_demand(
        open_until="when one call may test it",
        probe_by="id of the pod that tests it now",
        probe_pod="the pod that tests it now",
        forced_by="the person who holds it open",
        escalated_at="when a person was asked for help",
        requests="requests since it last closed, as far as reported",
    ),
    Field(
        name="turns",
        doc="changes of state in the last hour, the oldest first",
        value=_turns,
        is_default=False,
    ),
    Field(
        name="known_since",
        doc="earlier changes were not read; null: all were read",
        value=_known_since,
        is_default=False,
    ),
    Field(
        name="errors",
        doc=f"the last {ERRORS_MAX} that counted, the newest first",
        value=_errors,
        is_default=False,
    ),
)

BREAKERS: Final = Resource(
    name="Breaker",
    noun="breakers",
    doc="A circuit breaker, shared by all pods.",
    row=BreakerRow,
    fields=FIELDS,
    empty="no breaker is open; no recent failures",
    unlisted=frozenset({"now", "past"}),
)
