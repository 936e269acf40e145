"""`cortex agents apply`, `cortex flows apply` and `cortex flows validate`."""

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from functools import cache, partial
from typing import Any, Final

import click

from cortex.agent.spec import AgentSpec, parse_agents
from cortex.cli.apps import app_options, registry_of
from cortex.cli.changes import ChangeRequest, applied_columns, changes
from cortex.cli.files import read_definitions
from cortex.cli.options import Command, Options
from cortex.cli.run.prices import prices_of, unpriced_warning
from cortex.cli.screen.output import Output
from cortex.cli.target import session, settings_from
from cortex.domain.budget import Budget, Period, Scope, Unit, worded
from cortex.domain.clock import system_chance
from cortex.domain.errors import InvalidValueError
from cortex.domain.job_limits import of_agent
from cortex.domain.model_endpoints import check_tools
from cortex.domain.people import Identity
from cortex.domain.queueing.submit_rules import refuse_child
from cortex.durable.registry import Registry
from cortex.flows.spec import FlowSpec, parse_flows
from cortex.postgres.database import Database
from cortex.store import budgets, limits
from cortex.store import specs as store
from cortex.store.specs import SpecKind
from cortex.view.cells import Cell, Row
from cortex.view.resource import Field, on_demand
from cortex.view.verbs import APPLY_AGENTS, APPLY_FLOWS

Specs = Sequence[AgentSpec | FlowSpec]


@click.command("apply", cls=Command)
@click.argument("files", metavar="FILE…", nargs=-1, required=True)
@changes(APPLY_AGENTS)
def apply_agents(change: ChangeRequest, *, files: tuple[str, ...]) -> None:
    """Apply agents from YAML files (`-` for stdin); a changed agent becomes a new version.

    All files are checked before anything is written. Jobs keep the version they started with.
    Budgets declared in a file are set; a budget removed from the file stays until you remove it.
    Limits of how many of an agent's jobs run hold at once, for waiting jobs, too.
    """
    output = change.output
    specs = read_definitions(files, what="agents", parse=parse_agents)
    settings = settings_from(change.options)
    prices = prices_of(settings)
    for spec in specs:
        tools = [*spec.tools, *spec.mcp, *(str(each.get("name")) for each in spec.server_tools)]
        for model in (spec.model, *spec.fallback):
            check_tools(model, tools, settings.models, what=f"agent {spec.name!r}")
    rows = _write(change, SpecKind.AGENT, specs)
    output.listing("agents", AGENT_COLUMNS, rows, empty="")
    if output.is_for_people:
        _explain(output, rows)
    for spec in specs:
        if spec.budget is None or spec.budget.usd is None:
            continue
        for model in (spec.model, *spec.fallback):
            if warning := unpriced_warning(spec.name, model, prices):
                output.say(warning, "warn")


@click.command("apply", cls=Command)
@click.argument("files", metavar="FILE…", nargs=-1, required=True)
@app_options
@changes(APPLY_FLOWS)
def apply_flows(change: ChangeRequest, *, files: tuple[str, ...], apps: tuple[str, ...]) -> None:
    """Apply flows from YAML files (`-` for stdin); a changed flow becomes a new version.

    All files are checked before anything is written. Jobs keep the version they were submitted
    with.
    """
    specs = _flows(files, apps)
    rows = _write(change, SpecKind.FLOW, specs)
    change.output.listing("flows", FLOW_COLUMNS, rows, empty="")


@click.command(cls=Command)
@click.argument("files", metavar="FILE…", nargs=-1, required=True)
@app_options
@click.pass_obj
def validate(options: Options, *, files: tuple[str, ...], apps: tuple[str, ...]) -> None:
    """Check flows in YAML files (`-` for stdin); an error names file, line, value and limit.

    Arguments of steps that use `job` are checked against the job types of Cortex and of APP. A type
    that neither has is no error: its jobs wait for a pod that knows it.
    """
    specs = _flows(files, apps)
    rows = [{"name": spec.name, "steps": len(spec.steps)} for spec in specs]
    Output(options).listing("flows", CHECKED, rows, empty="")


def _flows(files: Sequence[str], apps: Sequence[str]) -> list[FlowSpec]:
    @cache
    def types() -> Registry:
        return registry_of(apps)

    def check(job_type: str, names: Iterable[str]) -> tuple[str, str] | None:
        known = types().find(job_type)
        if known is None:
            return None
        try:
            refuse_child(job_type, known.rule)
        except InvalidValueError as error:
            return "job", f"is refused: {error.message}; {error.hint}"
        found = known.names_unlike(names)
        problems = "; ".join((*found.problems, *([found.hint] if found.hint else [])))
        return ("arguments", f"of job type {job_type!r} {problems}") if problems else None

    parse = partial(parse_flows, check_job=check)
    return read_definitions(files, what="flows", parse=parse)


def _write(change: ChangeRequest, kind: SpecKind, specs: Specs) -> list[Row]:
    """Apply all specifications or none; return the changes in the order of the files."""

    async def work(db: Database, *, by: Identity, reason: str) -> list[dict[str, Any]]:
        return await db.transact(
            lambda connection: _apply(
                db.bound(connection),
                kind,
                specs,
                by=by,
                reason=reason,
            )
        )

    request = {kind.plural: [spec.to_json() for spec in specs]}
    with session(change.options) as call:
        rows: list[Row] = change.write_as_person(
            call, work, operation=f"{kind.plural}.apply", request=request
        )
    return rows


async def _apply(
    db: Database, kind: SpecKind, specs: Specs, *, by: Identity, reason: str
) -> list[dict[str, Any]]:
    chance = system_chance()
    done: dict[str, dict[str, Any]] = {}
    for spec in sorted(specs, key=lambda each: each.name):  # in one transaction: fixed lock order
        version, is_new = await store.apply(
            db,
            kind,
            new_id=chance.new_id(),
            name=spec.name,
            spec=spec.to_json(),
            by=by.name,
            credential=by.proven,
            reason=reason,
        )
        word = "unchanged" if not is_new else "created" if version == 1 else "updated"
        done[spec.name] = {"name": spec.name, "version": version, "change": word}
        if isinstance(spec, AgentSpec):
            why = reason or f"agent {spec.name} v{version}"
            done[spec.name] |= await _limit(db, spec, by=by, reason=why)
            declared = [each.declared for each in spec.limits.jobs]
            await limits.declare(db, {of_agent(spec.name): declared})
    return [done[spec.name] for spec in specs]


async def _limit(db: Database, spec: AgentSpec, *, by: Identity, reason: str) -> dict[str, Any]:
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


_VERSION: Final = Field[Row](name="version", shown=lambda r: Cell(f"v{r['version']}"))

AGENT_COLUMNS: Final = (
    *applied_columns("agent", _VERSION),
    *on_demand("budgets", "left_budgets"),
)
FLOW_COLUMNS: Final = applied_columns("flow", _VERSION)
CHECKED: Final[Sequence[Field[Row]]] = (
    FLOW_COLUMNS[0],
    Field(name="steps", shown=lambda r: Cell(f"{r['steps']} steps")),
)
