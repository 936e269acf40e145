"""`cortex costs`: cost of model calls by group, and the share that was paid again."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import click

from cortex.cli.options import Command, Format, Options, Span
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.phrases import short_id, span
from cortex.domain.prices import PRICES_AS_OF
from cortex.domain.safe import safe
from cortex.store import facts
from cortex.store.facts import CostGroup, CostRow
from cortex.view.cells import Cell
from cortex.view.phrases import NOTHING, count, money
from cortex.view.resource import Field, on_demand

GROUPS_MAX: Final = 1000


@click.command(cls=Command)
@click.option(
    "--by",
    type=click.Choice([each.value for each in CostGroup]),
    default=CostGroup.AGENT.value,
    show_default=True,
    metavar="GROUP",
    help="agent, model, tenant, job or day.",
)
@click.option(
    "--since",
    "since_s",
    type=Span(above_zero=True),
    default="30d",
    show_default=True,
    metavar="SPAN",
    help="How far back: 12h, 30d …",
)
@click.pass_obj
def costs(options: Options, *, by: str, since_s: float) -> None:
    """Show the cost of model calls: tokens, money, and the part paid again.

    "cached" and "written" are tokens read from the prompt cache and written to it.
    "Paid again" covers calls whose response was not stored: they failed, were cancelled or
    repeated, or their pod died. Days are UTC days; calls without a known price count no money.
    """
    output = Output(options)
    with session(options) as call:
        rows, total = call(facts.costs, by=CostGroup(by), since_s=since_s, limit=GROUPS_MAX)
    if options.columns is None and output.format in {Format.JSON, Format.YAML}:
        output.document(
            {
                "by": by,
                "since_s": since_s,
                "list_prices_as_of": PRICES_AS_OF.isoformat(),
                "costs": [_document(row) for row in rows],
                "total": {**_document(total), "name": None},
            }
        )
        return
    shown = [*rows, total] if output.is_for_people and rows else rows
    output.listing(
        "costs", _columns(by), shown, empty=f"no model was called in the last {span(since_s)}"
    )
    if output.is_for_people:
        _explain(output, rows, total)


def _explain(output: Output, rows: Sequence[CostRow], total: CostRow) -> None:
    """Report what a reader of the table could misread."""
    if rows:
        as_of = f"{PRICES_AS_OF.day} {PRICES_AS_OF:%B %Y}"
        output.say(f"list prices of {as_of}, except those in the setting prices", "dim")
    if total.unpriced_calls:
        output.say(f"calls without a known price, not included: {total.unpriced_calls}", "warn")
    if total.estimated_calls:
        output.say(f"lost calls, whose prompts are estimated: {total.estimated_calls}", "dim")
    if len(rows) == GROUPS_MAX:
        output.say(f"only the first {GROUPS_MAX}; the total covers all", "dim")


def _document(row: CostRow) -> dict[str, Any]:
    return {column.name: column.exact(row) for column in _columns("")}


def _name(row: CostRow, by: str) -> Cell:
    if row.is_total:
        return Cell("total", "dim")
    if by == CostGroup.JOB:
        return Cell(short_id(UUID(row.name)) if row.name else NOTHING, "bold")
    return Cell(safe(row.name or "") or NOTHING, "bold")


def _tokens(name: str, **more: Any) -> Field[CostRow]:
    """Return the field of a number of tokens or calls."""

    def shown(row: CostRow) -> Cell:
        number = getattr(row, name)
        return Cell(count(number), "" if number else "dim")

    return Field(name=name, shown=shown, is_right=True, **more)


def _money(usd: Decimal | None, *, calls: int, unpriced: int) -> Cell:
    if not calls:
        return Cell(NOTHING, "dim")
    if unpriced == calls:
        return Cell("unknown", "warn")
    return Cell(f"{money(usd)} + ?", "warn") if unpriced else Cell(money(usd))


def _cost(row: CostRow) -> Cell:
    return _money(row.cost_usd, calls=row.calls, unpriced=row.unpriced_calls)


def _again(row: CostRow) -> Cell:
    calls, unpriced = row.again_calls, row.again_unpriced_calls
    return _money(row.again_usd, calls=calls, unpriced=unpriced)


def _columns(by: str) -> tuple[Field[CostRow], ...]:
    return (
        Field(
            name="name",
            value=lambda r: "total" if r.is_total else r.name,
            title=by,
            shown=lambda r: _name(r, by),
            least=12,
        ),
        _tokens("calls"),
        _tokens("input_tokens", title="in"),
        _tokens("output_tokens", title="out"),
        _tokens("cache_read_tokens", title="cached", is_spare=True),
        _tokens("cache_write_tokens", title="written", is_spare=True),
        Field(name="cost_usd", title="cost", shown=_cost, is_right=True),
        _tokens("again_tokens", title="paid again"),
        Field(name="again_usd", title="of the cost", shown=_again, is_right=True),
        *on_demand(
            "unpriced_calls",
            "estimated_calls",
            "again_calls",
            "again_unpriced_calls",
        ),
    )
