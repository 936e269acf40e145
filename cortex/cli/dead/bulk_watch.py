"""`cortex dead acts watch`: progress of a bulk operation until it is over."""

import time
from collections.abc import Iterator
from typing import Any, Final

import click

from cortex.cli.dead.bulk_columns import ACT_ARGUMENT, ACT_COLUMNS, act_bar
from cortex.cli.options import Command, Options, Seconds
from cortex.cli.patient import Patient
from cortex.cli.screen.live_line import live_line
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.bulk_operation import BulkState, hold_up, left, progress
from cortex.domain.errors import ConflictError, TimedOutError
from cortex.domain.safe import safe
from cortex.postgres.session import Session
from cortex.store import bulk_operations
from cortex.view.cells import fit

POLL_S: Final = 0.5
PROGRESS_EVERY_S: Final = 5.0
"""Interval of progress lines where the live line cannot be rewritten."""
TIMEOUT_MAX_S: Final = 365 * 86_400.0
BAR_CELLS: Final = 20


@click.command(cls=Command)
@ACT_ARGUMENT
@click.option(
    "--timeout",
    type=Seconds(TIMEOUT_MAX_S),
    metavar="S",
    help="Time-out in seconds; exits with 7.",
)
@click.pass_obj
def watch(options: Options, *, act_id: int, timeout: float | None) -> None:
    """Follow a bulk operation until it is over; after Ctrl-C it continues.

    Exits with 5 if it is cancelled before all dead letters were processed, 7 after the time-out.
    """
    output = Output(options)
    output.chosen(ACT_COLUMNS)
    give_up_at = None if timeout is None else time.monotonic() + timeout
    talk, is_for_people = output.talk, output.is_for_people
    shown_at = float("-inf")
    with session(options) as call, live_line(talk, is_on=is_for_people) as live:
        for row in _polls(call, act_id, output):
            if BulkState(row["state"]).is_over:
                break
            line = _line(row)
            live.show(fit(line, talk.width - 1))
            if (
                is_for_people
                and not talk.moves_cursor
                and time.monotonic() >= shown_at + PROGRESS_EVERY_S
            ):
                shown_at = time.monotonic()
                output.say(line)
            if give_up_at is not None and time.monotonic() >= give_up_at:
                raise TimedOutError(
                    f"act {act_id} is not over: {progress(row)}",
                    hint=f"it continues by itself; to see it: cortex dead acts show {act_id}",
                )
    output.listing("acts", ACT_COLUMNS, [row], empty="")
    if row["state"] == BulkState.ENDED:
        raise ConflictError(f"act {act_id} was ended by {row['changed_by']}: {progress(row)}")


def _polls(call: Session, act_id: int, output: Output) -> Iterator[dict[str, Any]]:
    """Poll until it is over; wait while the database is unavailable.

    Raises the error of the first poll.
    """
    look = Patient(call, output)
    while True:
        yield look(bulk_operations.show, act_id)
        call.pause(POLL_S)


def _line(row: dict[str, Any]) -> str:
    waits = hold_up(row, row["now"])
    text = f"act {row['id']}  {act_bar(row, BAR_CELLS)}  {progress(row)}, {left(row):,} left"
    return safe(f"{text} · {waits}" if waits else text)
