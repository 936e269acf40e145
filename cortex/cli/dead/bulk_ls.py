"""`cortex dead acts ls` and `show`: progress and failures of bulk operations."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import click

from cortex.cli.dead.bulk_columns import (
    ACT_ARGUMENT,
    ACT_COLUMNS,
    FAILURE_COLUMNS,
    act_bar,
    act_state,
)
from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.screen.table import lines_of
from cortex.cli.target import session
from cortex.domain.bulk_operation import hold_up, left, progress
from cortex.domain.phrases import to_plain
from cortex.domain.safe import safe
from cortex.store import bulk_operations
from cortex.view.cells import pad
from cortex.view.dead_letters import when

LIMIT_MAX: Final = 1000
FAILURES_MAX: Final = 10_000
LABEL_CELLS: Final = 10
PAGE_BAR_CELLS: Final = 40


@click.command(cls=Command)
@click.option(
    "--limit", type=click.IntRange(1, LIMIT_MAX), default=50, show_default=True, metavar="N"
)
@click.pass_obj
def ls(options: Options, *, limit: int) -> None:
    """List bulk operations on dead letters: running ones first, then the newest."""
    output = Output(options)
    output.chosen(ACT_COLUMNS)
    with session(options) as call:
        rows = call(bulk_operations.page, limit=limit)
    empty = "no bulk operations yet: cortex dead retry --fingerprint F --reason TEXT"
    output.listing("acts", ACT_COLUMNS, rows, empty=empty)


@click.command(cls=Command)
@ACT_ARGUMENT
@click.option(
    "--limit",
    type=click.IntRange(1, FAILURES_MAX),
    default=50,
    show_default=True,
    metavar="N",
    help="Maximum number of failures shown.",
)
@click.pass_obj
def show(options: Options, *, act_id: int, limit: int) -> None:
    """Show the progress of a bulk operation, and its failures."""
    options.refuse_columns("one act has no columns")
    output = Output(options)
    with session(options) as call:
        row = call(bulk_operations.show, act_id)
        failures = call(bulk_operations.failures, act_id, limit=limit)
    document = {column.name: to_plain(column.value(row)) for column in output_columns()}
    output.record(
        {"act": document, "failures": failures},
        name=str(act_id),
        page=lambda: _page(row, failures, output),
    )


def output_columns() -> Iterator[Any]:
    """Yield the columns of documents."""
    yield from (column for column in ACT_COLUMNS if not column.is_for_people)


def _page(row: dict[str, Any], failures: Sequence[dict[str, Any]], output: Output) -> Iterator[str]:
    paint, is_tty = output.terminal.paint, output.terminal.is_tty
    state = act_state(row)
    head = f"act {row['id']}"
    yield f"{paint(head, 'bold')}  {paint(state.text, state.style)}"
    yield f"  {act_bar(row, PAGE_BAR_CELLS)}  {progress(row)}, {left(row):,} left"
    facts = {
        "waits": hold_up(row, row["now"]),
        "letters": row["which"],
        "rate": f"{row['rate_per_s']:g} per second",
        "asked": f"by {row['asked_by']}, {when(row, row['created_at'], is_tty=is_tty)}",
        "why": row["reason"],
    }
    for label, text in facts.items():
        if text:
            style = "warn" if label == "waits" else ""
            yield f"  {paint(pad(label, LABEL_CELLS), 'dim')}{paint(safe(text), style)}"
    if failures:
        yield ""
        yield from lines_of(FAILURE_COLUMNS, failures, terminal=output.terminal, headers=True)
        more = row["failed_count"] - len(failures)
        if more > 0:
            yield f"… {more:,} more: --limit {row['failed_count']}"
