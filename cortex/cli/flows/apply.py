"""`cortex flows apply` and `cortex flows validate`."""

from collections.abc import Sequence
from typing import Any, Final

import click

from cortex.cli.changes import ChangeRequest, changes
from cortex.cli.files import read_definitions
from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.safe import safe
from cortex.flows.spec import FlowSpec, parse_flows
from cortex.postgres.database import Database
from cortex.store import flows as store
from cortex.view.cells import Cell, Row
from cortex.view.resource import Field
from cortex.view.verbs import APPLY_FLOWS


@click.command(cls=Command)
@click.argument("files", metavar="FILE…", nargs=-1, required=True)
@changes(APPLY_FLOWS)
def apply(change: ChangeRequest, *, files: tuple[str, ...]) -> None:
    """Apply flows from YAML files (`-` for stdin); a changed flow becomes a new version.

    All files are checked before anything is written. Jobs keep the version they were submitted
    with.
    """
    specs = read_definitions(files, what="flows", parse=parse_flows)

    async def work(db: Database, *, by: str, reason: str) -> list[dict[str, Any]]:
        return await db.transact(
            lambda connection: _apply(db.bound(connection), specs, by=by, reason=reason)
        )

    with session(change.options) as call:
        request = {"flows": [spec.to_json() for spec in specs]}
        rows = change.write(call, work, operation="flows.apply", request=request)
    change.output.listing("flows", COLUMNS, rows, empty="")


async def _apply(
    db: Database, specs: list[FlowSpec], *, by: str, reason: str
) -> list[dict[str, Any]]:
    done: dict[str, dict[str, Any]] = {}
    for spec in sorted(specs, key=lambda each: each.name):  # in one transaction: fixed lock order
        version, is_new = await store.apply(
            db, name=spec.name, spec=spec.to_json(), by=by, reason=reason
        )
        word = "unchanged" if not is_new else "created" if version == 1 else "updated"
        done[spec.name] = {"name": spec.name, "version": version, "change": word}
    return [done[spec.name] for spec in specs]


@click.command(cls=Command)
@click.argument("files", metavar="FILE…", nargs=-1, required=True)
@click.pass_obj
def validate(options: Options, *, files: tuple[str, ...]) -> None:
    """Check flows in YAML files (`-` for stdin); an error names file, line, value and limit."""
    specs = read_definitions(files, what="flows", parse=parse_flows)
    rows = [{"name": spec.name, "steps": len(spec.steps)} for spec in specs]
    Output(options).listing("flows", CHECKED, rows, empty="")


_STYLES: Final = {"created": "done", "updated": "run", "unchanged": "dim"}

COLUMNS: Final[Sequence[Field[Row]]] = (
    Field(name="name", title="flow", shown=lambda r: Cell(safe(r["name"]), "bold")),
    Field(name="version", shown=lambda r: Cell(f"v{r['version']}")),
    Field(name="change", shown=lambda r: Cell(r["change"], _STYLES[r["change"]])),
)
CHECKED: Final[Sequence[Field[Row]]] = (
    Field(name="name", title="flow", shown=lambda r: Cell(safe(r["name"]), "bold")),
    Field(name="steps", shown=lambda r: Cell(f"{r['steps']} steps")),
)
