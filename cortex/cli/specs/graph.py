"""`cortex flows graph`: the steps of a flow, as boxes or as a Mermaid diagram."""

from pathlib import Path

import click

from cortex.cli.completing import known
from cortex.cli.files import read_definitions
from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.errors import UsageError
from cortex.flows.graph import boxes, mermaid
from cortex.flows.spec import FlowSpec, parse_flows
from cortex.store import specs as store
from cortex.store.specs import SpecKind


@click.command(cls=Command)
@click.argument("flow", metavar="NAME|FILE", shell_complete=known("flow"))
@click.option("--mermaid", "as_mermaid", is_flag=True, help="Print Mermaid, also in a terminal.")
@click.pass_obj
def graph(options: Options, *, flow: str, as_mermaid: bool) -> None:
    """Draw a flow of the database, or those of a YAML file: boxes in a terminal, else Mermaid."""
    options.refuse_columns("a graph has no columns")
    output = Output(options)
    specs = _specs(options, flow)
    drawn = [{"name": spec.name, "mermaid": "\n".join(mermaid(spec))} for spec in specs]
    if not output.is_for_people:
        output.document({"flows": drawn})
        return
    for index, spec in enumerate(specs):
        if index:
            output.line("")
        is_boxes = output.terminal.is_tty and not as_mermaid
        for line in boxes(spec) if is_boxes else mermaid(spec):
            output.line(line)


def _specs(options: Options, flow: str) -> list[FlowSpec]:
    """Read a file if it looks like one: names have no slash, and no such suffix."""
    if flow == "-" or "/" in flow or Path(flow).suffix in {".yaml", ".yml"}:
        return read_definitions((flow,), what="flows", parse=parse_flows)
    with session(options) as call:
        newest = call(store.versions, SpecKind.FLOW, flow)[0]
    try:
        return [FlowSpec.from_json(newest.spec)]
    except UsageError as error:
        message = f"{error.message}; it was applied by another version of Cortex"
        raise UsageError(message) from error
