"""`cortex budgets set`, `raise` and `rm`: each change is recorded with its person and reason."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, Final

import click

from cortex.cli.changes import ChangeRequest, changes
from cortex.cli.limits import change_limit, limit_columns
from cortex.cli.options import Command, Text
from cortex.cli.run.prices import prices_of, unpriced_warning
from cortex.cli.target import session, settings_from
from cortex.domain.budget import LIMIT_MAX, Budget, Period, Scope, Unit, worded
from cortex.domain.errors import NotFoundError, UsageError
from cortex.postgres.session import Session
from cortex.store import budgets as store
from cortex.store import jobs, specs
from cortex.store.budgets import BudgetChange
from cortex.store.specs import SpecKind
from cortex.view.cells import Row
from cortex.view.resource import Field
from cortex.view.verbs import RAISE_BUDGET, REMOVE_BUDGET, SET_BUDGET

SUBJECT_MAX: Final = 100


class Amount(click.ParamType[Decimal]):
    """US dollars or tokens, zero or more."""

    name = "amount"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Decimal:
        try:
            amount = Decimal(str(value))
        except InvalidOperation:
            amount = Decimal("NaN")
        if not (amount.is_finite() and 0 <= amount <= LIMIT_MAX):
            self.fail(f"{value} is not from 0 to {LIMIT_MAX:,}", param, ctx)
        return amount


class Tokens(Amount):
    """Whole tokens, zero or more."""

    name = "tokens"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Decimal:
        amount = super().convert(value, param, ctx)
        if amount != amount.to_integral_value():
            self.fail(f"{value} is not a whole number of tokens", param, ctx)
        return amount


@click.command("set", cls=Command)
@click.argument("name", required=False)
@click.option("--agent", metavar="NAME", help="Calls of this agent's jobs.")
@click.option(
    "--tenant", type=Text(SUBJECT_MAX), metavar="NAME", help="Calls of this tenant's jobs."
)
@click.option("--job", metavar="ID", help="Calls of this job, and of its continuations.")
@click.option("--usd", type=Amount(), metavar="N", help="Limit in US dollars.")
@click.option("--tokens", type=Tokens(), metavar="N", help="Limit in tokens of any kind.")
@click.option(
    "--per",
    type=click.Choice([each.value for each in Period]),
    metavar="PERIOD",
    help="run: each job on its own [default]; day: all together, reset each UTC day.",
)
@changes(SET_BUDGET)
def set_(
    change: ChangeRequest,
    *,
    name: str | None,
    agent: str | None,
    tenant: str | None,
    job: str | None,
    usd: Decimal | None,
    tokens: Decimal | None,
    per: str | None,
) -> None:
    """Set a limit, new or existing: of an agent, a tenant or a job, or of the budget called NAME.

    If the new limit leaves room, waiting jobs continue.
    """
    if sum(each is not None for each in (name, agent, tenant, job)) != 1:
        raise UsageError("no budget given", hint="give a NAME, --agent, --tenant or --job")
    limit, unit = _limit(usd, tokens)
    with session(change.options) as call:
        if name is not None:
            budget = _named(name, unit, per)
        else:
            scope, subject = _subject(call, agent=agent, tenant=tenant, job=job)
            period = Period(per or Period.RUN)
            budget = Budget(scope=scope, subject=subject, unit=unit, period=period)
        _warn_of_price(call, budget, change)
        put = partial(store.put, budget=budget, limit=limit)
        _write(change, call, put, {"set": budget.name, "limit": limit})


@click.command("raise", cls=Command)
@click.argument("name")
@click.option(
    "--to", type=Amount(), required=True, metavar="N", help="The new limit, in the budget's unit."
)
@changes(RAISE_BUDGET)
def raise_(change: ChangeRequest, *, name: str, to: Decimal) -> None:
    """Raise a limit; waiting jobs continue at once, as far as it gives them room.

    Exits with 5 if the limit is already as high.
    """
    if Budget.parse(name).unit is Unit.TOKENS and to != to.to_integral_value():
        raise UsageError(f"budget {name} counts whole tokens, {to} is not a whole number")
    with session(change.options) as call:
        raised = partial(store.raise_limit, name=name, to=to)
        _write(change, call, raised, {"raise": name, "to": to})


@click.command(cls=Command)
@click.argument("name")
@changes(REMOVE_BUDGET)
def rm(change: ChangeRequest, *, name: str) -> None:
    """Remove a limit and its counts; waiting jobs continue."""
    change.confirm(f"remove budget {name}")
    with session(change.options) as call:
        _write(change, call, partial(store.remove, name=name), {"remove": name})


def _limit(usd: Decimal | None, tokens: Decimal | None) -> tuple[Decimal, Unit]:
    if usd is not None and tokens is None:
        return usd, Unit.USD
    if tokens is not None and usd is None:
        return tokens, Unit.TOKENS
    raise UsageError("no amount given", hint="give either --usd N or --tokens N")


def _named(name: str, unit: Unit, per: str | None) -> Budget:
    budget = Budget.parse(name)
    if budget.unit is not unit or per not in {None, budget.period.value}:
        raise UsageError(
            f"budget {name} counts {budget.unit} per {budget.period}",
            hint="another unit or period needs another budget: give --agent, --tenant or --job",
        )
    return budget


def _warn_of_price(call: Session, budget: Budget, change: ChangeRequest) -> None:
    """Warn about a money limit for an agent whose model has no known price."""
    if budget.unit is not Unit.USD or budget.scope is not Scope.AGENT:
        return
    try:
        newest, *_ = call(specs.versions, SpecKind.AGENT, budget.subject)
    except NotFoundError:
        return  # a budget may exist before its agent
    prices = prices_of(settings_from(change.options))
    for model in (newest.spec["model"], *newest.spec.get("fallback", ())):
        if warning := unpriced_warning(budget.subject, model, prices):
            change.output.say(warning, "warn")


def _subject(
    call: Session, *, agent: str | None, tenant: str | None, job: str | None
) -> tuple[Scope, str]:
    if agent is not None:
        call(specs.versions, SpecKind.AGENT, agent)  # an unknown agent is an error, not a limit
        return Scope.AGENT, agent
    if tenant is not None:
        return Scope.TENANT, tenant
    found = call(jobs.show, call(jobs.find, job or ""))
    return Scope.JOB, str(found.lineage_id or found.id)


def _write(
    change: ChangeRequest,
    call: Session,
    work: Callable[..., Awaitable[BudgetChange]],
    request: Mapping[str, object],
) -> None:
    """Change a budget and report the result; releases very many waiting jobs in batches."""
    row = change_limit(
        change,
        call,
        work,
        operation="budgets.change",
        request=request,
        more=lambda changed: {"woken_jobs": changed.woken_count},
    )
    woken_count = row["woken_jobs"]
    while woken_count == store.WAKE_BATCH:
        woken_count = call(store.wake, [row["name"]])
        row["woken_jobs"] += woken_count
    change.output.listing("budgets", COLUMNS, [row], empty="")


COLUMNS: Final[Sequence[Field[Row]]] = (
    *limit_columns("budget", lambda row, limit: worded(limit, Budget.parse(row["name"]).unit)),
    Field(name="woken_jobs", title="released jobs", is_right=True),
)
