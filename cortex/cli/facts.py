"""`cortex facts`: recorded failures, costs and changes."""

import click

from cortex.cli.options import ROW_NUMBER, Command, Options, Span, limit_option
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.phrases import SPAN_MAX_S
from cortex.store import facts as store
from cortex.store import jobs
from cortex.store.facts import FactType
from cortex.view.resources.facts import FACTS


@click.command(cls=Command, columns=FACTS.fields)
@click.option("--job", metavar="ID", help="Only facts of this job.")
@click.option(
    "--type",
    "types",
    multiple=True,
    type=click.Choice([each.value for each in FactType]),
    metavar="TYPE",
    help="error, cost or lifecycle.",
)
@click.option(
    "--source", metavar="NAME", help="Only this source: llm:NAME, tool:NAME, budget:NAME …"
)
@click.option(
    "--since",
    "since_s",
    type=Span(above_zero=True),
    metavar="SPAN",
    help="How far back: 12h, 1d … [everything].",
)
@limit_option(50)
@click.option("--before", type=ROW_NUMBER, metavar="ID", help="Only older facts: the next page.")
@click.pass_obj
def facts(
    options: Options,
    *,
    job: str | None,
    types: tuple[str, ...],
    source: str | None,
    since_s: float | None,
    limit: int,
    before: int | None,
) -> None:
    """List facts, the newest first: failures, costs, and changes with person and reason."""
    output = Output(options)
    with session(options) as call:
        rows = call(
            store.page,
            types=types or tuple(FactType),
            since_s=SPAN_MAX_S if since_s is None else since_s,
            source=source,
            job_id=call(jobs.find, job) if job else None,
            before=before,
            limit=limit,
        )
    is_filtered = any((job, types, source, since_s, before))
    output.resource(FACTS, rows, empty="no fact matches" if is_filtered else None)
    if len(rows) == limit and output.terminal.is_tty:
        output.say(f"older ones: --before {rows[-1].id}", "dim")
