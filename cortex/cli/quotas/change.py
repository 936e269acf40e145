"""`cortex quotas set` and `rm`: each change is recorded with its person and reason."""

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import click

from cortex.cli.changes import ChangeRequest, changes
from cortex.cli.limits import change_limit, limit_columns
from cortex.cli.options import Command
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.errors import UsageError
from cortex.domain.people import Identity
from cortex.domain.quota import DECIMALS_MAX, Period, Quota
from cortex.domain.safe import safe
from cortex.postgres.database import Database
from cortex.postgres.session import Session
from cortex.store import effects, specs
from cortex.store import quotas as store
from cortex.store.quotas import QuotaChange
from cortex.store.specs import SpecKind
from cortex.view.verbs import REMOVE_QUOTA, SET_QUOTA

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
@changes(SET_QUOTA)
def set_(
    change: ChangeRequest,
    *,
    tool: str,
    limit: str,
    per: str,
    argument: str | None,
    unit: str | None,
) -> None:
    """Set a quota of TOOL, new or existing; if a tool has several, all of them apply.

    Counting starts now. If the new limit leaves room, waiting jobs continue.
    """
    if not _FIGURE.fullmatch(limit):
        raise UsageError(f"--limit {limit!r} is not a number", hint="such as 20 or 12.50")
    if unit is not None and not _UNIT.fullmatch(unit):
        raise UsageError(f"--unit {unit!r} is not one short word", hint="such as EUR")
    text = f"{limit} {unit}/{per}" if unit else f"{limit}/{per}"
    quota = Quota.parse(tool, text, argument=argument)
    for name in (tool, argument or ""):
        if safe(name) != name:
            raise UsageError(f"{safe(name)!r} contains invisible characters")
    with session(change.options) as call:
        _warn_of_typo(call, tool, change.output)
        put = partial(store.put, quota=quota)
        _write(change, call, put, {"set": quota.name, "limit": text})


@click.command(cls=Command)
@click.argument("name")
@changes(REMOVE_QUOTA)
def rm(change: ChangeRequest, *, name: str) -> None:
    """Remove a quota and its counts; waiting jobs continue."""
    change.confirm(f"remove quota {name}")
    with session(change.options) as call:
        _write(change, call, partial(store.remove, name=name), {"remove": name})


def _warn_of_typo(call: Session, tool: str, output: Output) -> None:
    """Warn if no known agent or effect uses this tool: the quota may have no effect."""
    agents = call(specs.page, SpecKind.AGENT, limit=AGENTS_MAX)
    if any(tool in each.spec.get("tools", ()) for each in agents):
        return
    if not call(effects.page, tool=tool, limit=1):
        output.say(f"no agent has a tool {tool}, and it was never called as an effect", "warn")


def _write(
    change: ChangeRequest,
    call: Session,
    work: Callable[..., Awaitable[QuotaChange]],
    request: Mapping[str, object],
) -> None:
    async def named(db: Database, *, by: Identity, reason: str) -> Any:
        return await work(db, by=by.name, reason=reason)

    row = change_limit(change, call, named, operation="quotas.change", request=request)
    change.output.listing("quotas", COLUMNS, [row], empty="")


COLUMNS: Final = limit_columns("quota", lambda _, limit: Quota.plain(limit))
