"""`cortex tokens ls`: access to the HTTP API; never shows the tokens themselves."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import click

from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.phrases import NOTHING, age, short_id, since_s, span
from cortex.domain.safe import safe
from cortex.store import tokens as store
from cortex.store.tokens import ListedToken
from cortex.view.cells import Cell
from cortex.view.resource import Field, on_demand

LIMIT_MAX: Final = 1000


@click.command(cls=Command)
@click.option("--all", "with_ended", is_flag=True, help="Include revoked and expired tokens.")
@click.option("--name", metavar="NAME", help="Only this person's.")
@click.option(
    "--limit", type=click.IntRange(1, LIMIT_MAX), default=100, show_default=True, metavar="N"
)
@click.pass_obj
def ls(options: Options, *, with_ended: bool, name: str | None, limit: int) -> None:
    """List tokens, the newest first: holder, roles, last use."""
    output = Output(options)
    output.chosen(COLUMNS)
    with session(options) as call:
        rows = call(store.page, name=name, with_ended=with_ended, limit=limit)
    empty = "no token matches" if name or with_ended else ("no tokens yet: cortex tokens create")
    output.listing("tokens", COLUMNS, rows, empty=empty)


def _state(row: ListedToken) -> Cell:
    styles = {"ACTIVE": "done", "EXPIRED": "warn", "REVOKED": "fail"}
    return Cell(row.state.lower(), styles[row.state])


def _ago(row: ListedToken, instant: datetime | None) -> Cell:
    return Cell(NOTHING, "dim") if instant is None else Cell(age(since_s(row, instant)))


def _expires(row: ListedToken) -> Cell:
    if row.expires_at is None:
        return Cell("never", "dim")
    left_s = -since_s(row, row.expires_at)
    return Cell(f"in {span(left_s)}") if left_s > 0 else Cell("over", "dim")


COLUMNS: Final[Sequence[Field[ListedToken]]] = (
    Field(name="id", shown=lambda r: Cell(short_id(r.id), "dim")),
    Field(name="name", shown=lambda r: Cell(safe(r.name), "bold"), least=8),
    Field(name="roles", shown=lambda r: Cell(", ".join(r.roles))),
    Field(name="state", shown=_state),
    Field(
        name="last_used_at",
        title="used",
        shown=lambda r: _ago(r, r.last_used_at),
        is_right=True,
    ),
    Field(name="expires_at", title="expires", shown=_expires, is_right=True, is_spare=True),
    Field(
        name="created_at",
        title="age",
        shown=lambda r: _ago(r, r.created_at),
        is_right=True,
        is_spare=True,
    ),
    *on_demand("created_by", "revoked_at", "revoked_by"),
)
