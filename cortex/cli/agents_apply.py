"""`cortex agents apply`: from YAML files to versions in the database."""

from typing import Any, Final

import click

from cortex.agent.spec import AgentSpec, parse_agents
from cortex.cli.asking import acting_name, as_option
from cortex.cli.files import read_bytes
from cortex.cli.options import Command, Options
from cortex.cli.output import Output
from cortex.cli.table import Cell, Column
from cortex.cli.target import session
from cortex.domain.clock import system_chance
from cortex.domain.errors import UsageError
from cortex.domain.safe import safe
from cortex.store import agents as store

FILE_BYTES_MAX: Final = 1_048_576


@click.command(cls=Command)
@click.argument("files", metavar="FILE…", nargs=-1, required=True)
@as_option
@click.pass_obj
def apply(options: Options, *, files: tuple[str, ...], actor: str | None) -> None:
    """Apply agents from YAML files (`-` for stdin): what changed becomes a new version.

    All files are checked before anything is written. Jobs keep the version that they started with.
    """
    output = Output(options)
    by = acting_name(actor)
    specs = _parse(files)
    chance = system_chance()
    rows: list[dict[str, Any]] = []
    with session(options) as call:
        for spec in specs:
            version, is_new = call(
                store.apply, new_id=chance.new_id(), name=spec.name, spec=spec.to_json(), by=by
            )
            change = "unchanged" if not is_new else "created" if version == 1 else "updated"
            rows.append({"name": spec.name, "version": version, "change": change})
    output.listing("agents", COLUMNS, rows, empty="")


def _parse(files: tuple[str, ...]) -> list[AgentSpec]:
    places: dict[str, str] = {}
    specs = []
    for name in files:
        source = "stdin" if name == "-" else name
        content = read_bytes(name, what="agents", bytes_max=FILE_BYTES_MAX)
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise UsageError(f"{source}:{line}: this is not UTF-8") from error
        for spec in parse_agents(text, source):
            if spec.name in places:
                raise UsageError(
                    f"agent {spec.name!r} stands in {places[spec.name]} and in {source}"
                )
            places[spec.name] = source
            specs.append(spec)
    return specs


_STYLES: Final = {"created": "done", "updated": "run", "unchanged": "dim"}

COLUMNS: Final = (
    Column(
        name="name",
        title="agent",
        shown=lambda r: Cell(safe(r["name"]), "bold"),
    ),
    Column(name="version", shown=lambda r: Cell(f"v{r['version']}")),
    Column(
        name="change",
        shown=lambda r: Cell(r["change"], _STYLES[r["change"]]),
    ),
)
