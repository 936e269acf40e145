"""`cortex costs`: cost of model calls by group, and the share that was paid again."""

from collections.abc import Sequence
from typing import Final

import click

from cortex.cli.options import Command, Format, Options, Span
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.phrases import span
from cortex.domain.prices import PRICES_AS_OF
from cortex.store import facts
from cortex.store.facts import CostGroup, CostRow
from cortex.view.resources.costs import COSTS, columns

GROUPS_MAX: Final = 1000


@click.command(cls=Command, columns=COSTS.fields)
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

    "cached" and "written" are tokens read from the prompt cache and written to it, "hit" is the
    share of the prompts that was read, "saved" the money.
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
                "costs": [COSTS.document(row) for row in rows],
                "total": {**COSTS.document(total), "name": None},
            }
        )
        return
    shown = [*rows, total] if output.is_for_people and rows else rows
    output.listing(
        "costs", columns(by), shown, empty=f"no model was called in the last {span(since_s)}"
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
        output.say(
            f"calls that were lost or not counted, estimated: {total.estimated_calls}", "dim"
        )
    if len(rows) == GROUPS_MAX:
        output.say(f"only the first {GROUPS_MAX}; the total covers all", "dim")
