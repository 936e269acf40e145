"""`cortex breakers ls`: recent failures, and the jobs that wait for recovery."""

from collections.abc import Sequence
from typing import Final

import click

from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.breaker import POLICIES, BreakerState, Past, is_calm, strip
from cortex.domain.phrases import NOTHING, age, since_s, span
from cortex.domain.safe import safe
from cortex.store import breakers as store
from cortex.store.breakers import BreakerRow, with_past
from cortex.view.cells import Cell
from cortex.view.effects import held_text, is_held
from cortex.view.resource import Field, on_demand

LIMIT: Final = 200
_MARKS: Final = {
    BreakerState.CLOSED: Cell("● closed", "done"),
    BreakerState.OPEN: Cell("✗ open", "fail"),
    BreakerState.HALF_OPEN: Cell("◆ half-open", "warn"),
}
_HELD: Final = Cell("◆ held open", "warn")


@click.command(cls=Command)
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=LIMIT,
    metavar="N",
    help=f"Maximum number of rows [{LIMIT}].",
)
@click.pass_obj
def ls(options: Options, *, limit: int) -> None:
    """List circuit breakers, open ones first."""
    output = Output(options)
    with session(options) as call:
        rows = call(with_past, call(store.page, limit=limit))
    output.listing("breakers", COLUMNS, rows, empty="no breaker is open; no recent failures")


def _waiting(row: BreakerRow) -> Cell:
    more = "+" if row.waiting >= store.COUNT_MAX else ""
    return Cell(f"{row.waiting:,}{more}")


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
        return Cell("next job", "warn") if row.state == "HALF_OPEN" else Cell(NOTHING, "dim")
    return Cell(span(left_s) if left_s else "next job")


def last_hour(row: BreakerRow) -> str:
    """Draw its states over the last hour."""
    return strip(row.state, _past(row), row.now)


def _last_hour(row: BreakerRow) -> Cell:
    return Cell(last_hour(row), "dim" if is_calm(row.state, _past(row)) else "")


def _past(row: BreakerRow) -> Past:
    return row.past or Past()


def remark(row: BreakerRow) -> str:
    """Return the most important remark; "" for none."""
    error = row.last_error or ""
    if row.forced_by is not None:
        return held_text(row, row.now)
    if row.escalated_at is not None:
        return f"! needs attention: {error}"
    return error


def _remark(row: BreakerRow) -> Cell:
    is_urgent = row.forced_by is not None or row.escalated_at is not None
    return Cell(safe(remark(row)), "warn" if is_urgent else "dim")


# The name is never shortened: people type it.
COLUMNS: Final[Sequence[Field[BreakerRow]]] = (
    Field(name="name", title="breaker", shown=lambda r: Cell(safe(r.name), "bold")),
    Field(name="state", shown=_state),
    Field(name="failures", shown=_failures, is_right=True, is_spare=True),
    Field(name="opened_at", title="since", shown=_since, is_right=True, is_spare=True),
    Field(name="probe_in_s", title="probe", value=_probe_in_s, shown=_probe, is_right=True),
    Field(name="waiting", title="jobs", shown=_waiting, is_right=True),
    Field(
        name="last_hour",
        title="last hour",
        value=last_hour,
        shown=_last_hour,
        is_spare=True,
        is_for_people=True,
    ),
    Field(name="remark", title="why", value=remark, shown=_remark, least=12, is_for_people=True),
    *on_demand("open_until", "probe_pod", "forced_by", "forced_reason", "forced_at"),
    *on_demand("last_error", "escalated_at", "requests", "updated_at"),
    Field(name="turns", value=lambda r: _past(r).turns, is_default=False),
    Field(name="known_since", value=lambda r: _past(r).known_since, is_default=False),
    Field(name="errors", value=lambda r: _past(r).errors, is_default=False),
)
"""`last hour`: one bar per five minutes, from the data in `turns`.

`errors`: the last three that counted.
"""
