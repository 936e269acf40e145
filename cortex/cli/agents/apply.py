"""`cortex agents apply`: from YAML files to versions and budgets in the database."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, Final

import click

from cortex.agent.spec import AgentSpec, parse_agents
from cortex.cli.changes import ChangeRequest, changes
from cortex.cli.files import read_definitions
from cortex.cli.options import Command
from cortex.cli.run.prices import prices_of, unpriced_warning
from cortex.cli.screen.output import Output
from cortex.cli.target import session, settings_from
from cortex.domain.budget import Budget, Period, Scope, Unit, worded
from cortex.domain.clock import system_chance
from cortex.domain.safe import safe
from cortex.postgres.database import Database
from cortex.store import agents as store
from cortex.store import budgets
from cortex.view.cells import Cell, Row
from cortex.view.resource import Field, on_demand
from cortex.view.verbs import APPLY_AGENTS


@click.command(cls=Command)
@click.argument("files", metavar="FILE…", nargs=-1, required=True)
@changes(APPLY_AGENTS)
def apply(change: ChangeRequest, *, files: tuple[str, ...]) -> None:
    """Apply agents from YAML files (`-` for stdin); a changed agent becomes a new version.

    All files are checked before anything is written. Jobs keep the version they started with.
    Budgets declared in a file are set; a budget removed from the file stays until you remove it.
    """
    output = change.output
    specs = read_definitions(files, what="agents", parse=parse_agents)
    prices = prices_of(settings_from(change.options))

    async def work(db: Database, *, by: str, reason: str) -> list[dict[str, Any]]:
        return await db.transact(
            lambda connection: _apply(db.bound(connection), specs, by=by, reason=reason)
        )

    with session(change.options) as call:
        request = {"agents": [spec.to_json() for spec in specs]}
        rows = change.write(call, work, operation="agents.apply", request=request)
    output.listing("agents", COLUMNS, rows, empty="")
    if output.is_for_people:
        _explain(output, rows)
    for spec in specs:
        is_limited = spec.budget is not None and spec.budget.usd is not None
        if is_limited and (warning := unpriced_warning(spec.name, spec.model, prices)):
            output.say(warning, "warn")


async def _apply(
    db: Database, specs: list[AgentSpec], *, by: str, reason: str
) -> list[dict[str, Any]]:
    chance = system_chance()
    changes: dict[str, dict[str, Any]] = {}
    for spec in sorted(specs, key=lambda each: each.name):  # in one transaction: fixed lock order
        version, is_new = await store.apply(
            db, new_id=chance.new_id(), name=spec.name, spec=spec.to_json(), by=by, reason=reason
        )
        change = "unchanged" if not is_new else "created" if version == 1 else "updated"
        changes[spec.name] = {
            "name": spec.name,
            "version": version,
            "change": change,
            **await _limit(db, spec, by=by, reason=reason or f"agent {spec.name} v{version}"),
        }
    return [changes[spec.name] for spec in specs]


async def _limit(db: Database, spec: AgentSpec, *, by: str, reason: str) -> dict[str, Any]:
    """Set the budgets of an agent; return the changes and the budgets no longer declared."""
    wanted = dict(_budgets(spec))
    changed = []
    for budget, limit in wanted.items():
        change = await budgets.ensure(db, budget, limit=limit, by=by, reason=reason)
        if change is not None:
            before = None if change.before is None else float(change.before)
            changed.append({"name": change.name, "before": before, "after": float(limit)})
    names = {budget.name for budget in wanted}
    left = [name for name in await budgets.declared(db, spec.name) if name not in names]
    return {"budgets": changed, "left_budgets": left}


def _budgets(spec: AgentSpec) -> Iterator[tuple[Budget, Decimal]]:
    """Yield the budgets declared in an agent's file; amounts are exact decimals."""
    if spec.budget is None:
        return
    for unit, amount in ((Unit.USD, spec.budget.usd), (Unit.TOKENS, spec.budget.tokens)):
        if amount is not None:
            period = Period(spec.budget.per)
            budget = Budget(scope=Scope.AGENT, subject=spec.name, unit=unit, period=period)
            yield budget, Decimal(str(amount))


def _explain(output: Output, rows: list[Row]) -> None:
    """Report the changed budgets."""
    for row in rows:
        for each in row["budgets"]:
            before = "" if each["before"] is None else f", was {_worded(each, 'before')}"
            output.say(f"budget {each['name']} is {_worded(each, 'after')}{before}", "dim")
        for name in row["left_budgets"]:
            how = f"cortex budgets rm {name} --reason …"
            output.say(
                (f"budget {name} is no longer in the file but still applies; remove it: {how}"),
                "warn",
            )


def _worded(change: Row, which: str) -> str:
    return worded(Decimal(str(change[which])), Budget.parse(change["name"]).unit)


_STYLES: Final = {"created": "done", "updated": "run", "unchanged": "dim"}

COLUMNS: Final[Sequence[Field[Row]]] = (
    Field(
        name="name",
        title="agent",
        shown=lambda r: Cell(safe(r["name"]), "bold"),
    ),
    Field(name="version", shown=lambda r: Cell(f"v{r['version']}")),
    Field(
        name="change",
        shown=lambda r: Cell(r["change"], _STYLES[r["change"]]),
    ),
    *on_demand("budgets", "left_budgets"),
)
