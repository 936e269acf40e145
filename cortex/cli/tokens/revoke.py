"""`cortex tokens revoke`: invalidates a token and the sessions started with it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import click

from cortex.cli.asking import acting_name, as_option, confirm, reason_option
from cortex.cli.idempotent import idempotent, mutate
from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.screen.table import Column
from cortex.cli.target import session
from cortex.domain.phrases import short_id
from cortex.domain.safe import safe
from cortex.store import tokens as store
from cortex.view.cells import Cell, Row


@click.command(cls=Command)
@click.argument("named", metavar="TOKEN")
@reason_option("Stored with the change.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_option
@idempotent
@click.pass_obj
def revoke(
    options: Options,
    *,
    named: str,
    reason: str,
    yes: bool,
    actor: str | None,
    idempotency_key: str | None,
) -> None:
    """Revoke a token, named by its id, the end of it, or its person.

    Reading ends within a second, everything else at once. Exits with 5 if it was revoked before.
    """
    output = Output(options)
    by = acting_name(actor)
    with session(options) as call:
        token_id = call(store.find, named)
        confirm(safe(f"revoke token {short_id(token_id)} ({named})"), options, is_agreed=yes)
        row = mutate(
            call,
            lambda db: store.revoke(db, token_id, by=by, reason=reason),
            output=output,
            key=idempotency_key,
            operation="tokens.revoke",
            request={"token": token_id, "by": by, "reason": reason},
        )
    output.listing("tokens", COLUMNS, [row], empty="")


COLUMNS: Final[Sequence[Column[Row]]] = (
    Column(name="id"),
    Column(name="name", shown=lambda r: Cell(safe(r["name"]), "bold")),
    Column(name="revoked_by", shown=lambda r: Cell(safe(r["revoked_by"]))),
    Column(name="revoked_at", value=lambda r: datetime.fromisoformat(r["revoked_at"])),
)
