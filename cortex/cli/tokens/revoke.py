"""`cortex tokens revoke`: invalidates a token and the sessions started with it."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Final

import click

from cortex.cli.changes import ChangeRequest, changes
from cortex.cli.options import Command
from cortex.cli.target import session
from cortex.domain.phrases import short_id
from cortex.store import tokens as store
from cortex.view.cells import Row
from cortex.view.resource import Field
from cortex.view.verbs import REVOKE_TOKEN


@click.command(cls=Command)
@click.argument("named", metavar="TOKEN")
@changes(REVOKE_TOKEN)
def revoke(change: ChangeRequest, *, named: str) -> None:
    """Revoke a token, named by its id, the end of it, or its person.

    Reading ends within a second, everything else at once. Exits with 5 if it was revoked before.
    """
    with session(change.options) as call:
        token_id = call(store.find, named)
        change.confirm(f"revoke token {short_id(token_id)} ({named})")
        work = partial(store.revoke, token_id=token_id)
        row = change.write_as_person(
            call, work, operation="tokens.revoke", request={"token": token_id}
        )
    change.output.listing("tokens", COLUMNS, [row], empty="")


COLUMNS: Final[Sequence[Field[Row]]] = (
    Field(name="id"),
    Field(name="name", style="bold"),
    Field(name="revoked_by"),
    Field(name="revoked_at", value=lambda r: datetime.fromisoformat(r["revoked_at"])),
)
