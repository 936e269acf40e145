"""`cortex dead acts pause`, `resume` and `cancel`: control a bulk operation."""

import click

from cortex.cli.asking import acting_name, as_option, confirm, reason_option, unasked_option
from cortex.cli.dead.bulk_columns import ACT_ARGUMENT, ACT_COLUMNS
from cortex.cli.idempotent import idempotent, mutate
from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.bulk_operation import CANCEL, PAUSE, RESUME, BulkChange
from cortex.postgres.database import Database
from cortex.store import bulk_operations

_reason_option = reason_option("Shown with the operation, and stored.")


@click.command(cls=Command)
@ACT_ARGUMENT
@_reason_option
@unasked_option
@as_option
@idempotent
@click.pass_obj
def pause(
    options: Options, *, act_id: int, reason: str, actor: str | None, idempotency_key: str | None
) -> None:
    """Pause a bulk operation after the current batch; `resume` continues from there."""
    _change(options, act_id, PAUSE, by=acting_name(actor), reason=reason, key=idempotency_key)


@click.command(cls=Command)
@ACT_ARGUMENT
@_reason_option
@unasked_option
@as_option
@idempotent
@click.pass_obj
def resume(
    options: Options, *, act_id: int, reason: str, actor: str | None, idempotency_key: str | None
) -> None:
    """Resume a paused bulk operation where it was."""
    _change(options, act_id, RESUME, by=acting_name(actor), reason=reason, key=idempotency_key)


@click.command(cls=Command)
@ACT_ARGUMENT
@_reason_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_option
@idempotent
@click.pass_obj
def cancel(
    options: Options,
    *,
    act_id: int,
    reason: str,
    yes: bool,
    actor: str | None,
    idempotency_key: str | None,
) -> None:
    """Cancel a bulk operation: processed dead letters stay so, the rest wait as before."""
    confirm(f"cancel act {act_id}: it cannot be resumed", options, is_agreed=yes)
    _change(options, act_id, CANCEL, by=acting_name(actor), reason=reason, key=idempotency_key)


def _change(
    options: Options, act_id: int, how: BulkChange, *, by: str, reason: str, key: str | None
) -> None:
    """Apply the change, and show the operation's new state."""
    output = Output(options)
    output.chosen(ACT_COLUMNS)
    with session(options) as call:

        async def work(db: Database) -> dict[str, int]:
            await bulk_operations.change(db, act_id, how, by=by, reason=reason)
            return {"act": act_id}

        mutate(
            call,
            work,
            output=output,
            key=key,
            operation=f"dead.acts.{how.name}",
            request={"act": act_id, "by": by, "reason": reason},
        )
        row = call(bulk_operations.show, act_id)
    output.listing("acts", ACT_COLUMNS, [row], empty="")
