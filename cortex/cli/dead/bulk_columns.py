"""Bulk operations on dead letters in columns, and their failures."""

from collections.abc import Sequence
from typing import Final

import click

from cortex.cli.screen.table import Column, only_on_demand
from cortex.domain import bulk_operation
from cortex.domain.bulk_operation import BulkState, BulkVerb
from cortex.domain.dead_letter import DeadLetterState
from cortex.domain.phrases import NOTHING, age, short_id, since_s
from cortex.domain.safe import safe
from cortex.view.cells import Cell, Row, bar
from cortex.view.dead_letters import failed_cell, state_cell, why_cell

BAR_CELLS: Final = 12
ACT_ARGUMENT: Final = click.argument("act_id", metavar="ACT", type=click.IntRange(1, 2**63 - 1))
_MARKS: Final = {
    BulkState.RUNNING: Cell("● running", "run"),
    BulkState.PAUSED: Cell("◆ paused", "warn"),
    BulkState.DONE: Cell("✓ done", "done"),
    BulkState.ENDED: Cell("⊘ ended", "dim"),
}


def act_state(row: Row) -> Cell:
    """Return glyph and word of a bulk operation's state."""
    return _MARKS[BulkState(row["state"])]


def act_bar(row: Row, cells: int = BAR_CELLS) -> str:
    """Return the progress of a bulk operation as a bar."""
    return bar(bulk_operation.passed(row), row["letter_count"], cells)


def _why(row: Row) -> Cell:
    return why_cell(row, row["now"])


ACT_COLUMNS: Final[Sequence[Column[Row]]] = (
    Column(name="id", title="act", shown=lambda r: Cell(str(r["id"]), "bold")),
    Column(
        name="verb",
        title="what",
        value=lambda r: BulkVerb(r["verb"]).value.lower(),
    ),
    Column(name="state", shown=act_state),
    Column(
        name="progress",
        title="",
        value=act_bar,
        shown=lambda r: Cell(act_bar(r)),
        is_for_people=True,
        is_spare=True,
    ),
    Column(name="letter_count", title="letters", is_right=True),
    Column(name="done_count", title="done", is_right=True),
    Column(name="failed_count", title="not", shown=failed_cell, is_right=True),
    Column(name="left", value=bulk_operation.left, is_right=True),
    Column(
        name="created_at",
        title="age",
        shown=lambda r: Cell(age(since_s(r, r["created_at"]))),
        is_right=True,
    ),
    Column(
        name="why",
        value=lambda r: _why(r).text,
        shown=_why,
        least=16,
        is_for_people=True,
    ),
    *only_on_demand("rate_per_s", "asked_by", "reason", "which", "agent_version", "from_start"),
    *only_on_demand("due_at", "changed_by", "changed_at", "change_reason", "ended_at"),
    Column(
        name="waits_for_pod",
        value=lambda r: r["state"] == BulkState.RUNNING and not r["has_pod"],
        is_default=False,
    ),
)


def _now(row: Row) -> Cell:
    state = row["state"]
    return (
        state_cell(DeadLetterState(state))
        if state in tuple(DeadLetterState)
        else Cell(NOTHING, "dim")
    )


FAILURE_COLUMNS: Final[Sequence[Column[Row]]] = (
    Column(name="job_id", title="id", shown=lambda r: Cell(short_id(r["job_id"]), "bold")),
    Column(name="type", least=8),
    Column(name="error_code", title="code", least=8),
    Column(name="error", title="why not", shown=lambda r: Cell(safe(r["error"])), least=16),
    Column(name="state", title="now", shown=_now),
    *only_on_demand("nth", "fingerprint", "agent"),
)
