"""`cortex quotas set` and `rm`: each change is recorded with its person and reason."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import click

from cortex.cli.asking import acting_name, as_option, confirm, unasked_option
from cortex.cli.idempotent import idempotent, mutate
from cortex.cli.limits import change_document, kept_reason
from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.screen.table import Column
from cortex.cli.target import session
from cortex.domain.errors import UsageError
from cortex.domain.quota import DECIMALS_MAX, Period, Quota
from cortex.domain.safe import safe
from cortex.postgres.database import Database
from cortex.postgres.session import Session
from cortex.store import agents, effects
from cortex.store import quotas as store
from cortex.store.quotas import QuotaChange
from cortex.view.cells import Cell, Row

AGENTS_MAX: Final = 1000
_FIGURE: Final = re.compile(rf"[0-9]{{1,15}}(?:\.[0-9]{{1,{DECIMALS_MAX}}})?")
_UNIT: Final = re.compile(r"[^\W\d_]\w{0,19}")


@click.command("set", cls=Command)
@click.argument("tool")
@click.option("--limit", required=True, metavar="N", help="The limit.")
@click.option(
    "--per",
    required=True,
    type=click.Choice([each.value for each in Period]),
    metavar="PERIOD",
    help="hour or day, in UTC.",
)
@click.option(
    "--of", "argument", metavar="ARGUMENT", help="Sum up this argument instead of counting calls."
)
@click.option("--unit", metavar="UNIT", help="Unit of that argument, for display: EUR.")
@kept_reason
@unasked_option
@as_option
@idempotent
@click.pass_obj
def set_(
    options: Options,
    *,
    tool: str,
    limit: str,
    per: str,
    argument: str | None,
    unit: str | None,
    reason: str,
    actor: str | None,
    idempotency_key: str | None,
) -> None:
    """Set a quota of TOOL, new or existing; if a tool has several, all of them apply.

    Counting starts now. If the new limit leaves room, waiting jobs continue.
    """
    by = acting_name(actor)
    if not _FIGURE.fullmatch(limit):
        raise UsageError(f"--limit {limit!r} is not a number", hint="such as 20 or 12.50")
    if unit is not None and not _UNIT.fullmatch(unit):
        raise UsageError(f"--unit {unit!r} is not one short word", hint="such as EUR")
    text = f"{limit} {unit}/{per}" if unit else f"{limit}/{per}"
    quota = Quota.parse(tool, text, argument=argument)
    for name in (tool, argument or ""):
        if safe(name) != name:
            raise UsageError(f"{safe(name)!r} contains invisible characters")
    output = Output(options)
    with session(options) as call:
        _warn_of_typo(call, tool, output)
        _change(
            call,
            lambda db: store.put(db, quota, by=by, reason=reason),
            output,
            key=idempotency_key,
            request={"set": quota.name, "limit": text, "by": by, "reason": reason},
        )


@click.command(cls=Command)
@click.argument("name")
@kept_reason
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_option
@idempotent
@click.pass_obj
def rm(
    options: Options,
    *,
    name: str,
    reason: str,
    yes: bool,
    actor: str | None,
    idempotency_key: str | None,
) -> None:
    """Remove a quota and its counts; waiting jobs continue."""
    by = acting_name(actor)
    confirm(safe(f"remove quota {name}"), options, is_agreed=yes)
    with session(options) as call:
        _change(
            call,
            lambda db: store.remove(db, name, by=by, reason=reason),
            Output(options),
            key=idempotency_key,
            request={"remove": name, "by": by, "reason": reason},
        )


def _warn_of_typo(call: Session, tool: str, output: Output) -> None:
    """Warn if no known agent or effect uses this tool: the quota may have no effect."""
    if any(tool in each.spec.get("tools", ()) for each in call(agents.page, limit=AGENTS_MAX)):
        return
    if not call(effects.page, tool=tool, limit=1):
        output.say(f"no agent has a tool {tool}, and it was never called as an effect", "warn")


def _change(
    call: Session,
    work: Callable[[Database], Awaitable[QuotaChange]],
    output: Output,
    *,
    key: str | None,
    request: Mapping[str, Any],
) -> None:
    row = mutate(
        call,
        lambda db: _summary(work, db),
        output=output,
        key=key,
        operation="quotas.change",
        request=request,
    )
    output.listing("quotas", COLUMNS, [row], empty="")


async def _summary(
    work: Callable[[Database], Awaitable[QuotaChange]], db: Database
) -> dict[str, Any]:
    return change_document(await work(db))


def _limit_shown(limit: float | None) -> Cell:
    return Cell("none", "dim") if limit is None else Cell(Quota.plain(Decimal(str(limit))))


COLUMNS: Final[Sequence[Column[Row]]] = (
    Column(name="name", title="quota", shown=lambda r: Cell(safe(r["name"]), "bold")),
    Column(name="before", shown=lambda r: _limit_shown(r["before"]), is_right=True),
    Column(name="after", shown=lambda r: _limit_shown(r["after"]), is_right=True),
)
