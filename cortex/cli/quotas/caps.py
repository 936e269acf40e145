"""`cortex quotas cap`, `uncap` and `caps`: limits of the jobs that a tenant may have waiting."""

from collections.abc import Sequence
from functools import partial
from typing import Final

import click

from cortex.cli.changes import ChangeRequest, changes
from cortex.cli.listing import list_by_name
from cortex.cli.options import Command, Text
from cortex.cli.target import session
from cortex.domain.policy import NAME_MAX
from cortex.store import quotas as store
from cortex.view.cells import Row
from cortex.view.resource import Field
from cortex.view.resources.quotas import CAPS
from cortex.view.verbs import REMOVE_CAP, SET_CAP

JOBS_MAX: Final = 100_000
BYTES_MAX: Final = 2**50
COLUMNS: Final[Sequence[Field[Row]]] = (
    Field(name="tenant", style="bold"),
    Field(name="jobs_max", title="jobs"),
    Field(name="bytes_max", title="bytes"),
)


@click.command(cls=Command)
@click.argument("capped", metavar="TENANT", type=Text(NAME_MAX))  # --tenant is every command's
@click.option(
    "--jobs",
    type=click.IntRange(1, JOBS_MAX),
    required=True,
    metavar="N",
    help="Most jobs that have not ended; each submit counts that far.",
)
@click.option(
    "--bytes",
    "bytes_max",
    type=click.IntRange(1, BYTES_MAX),
    metavar="N",
    help="Most bytes of their payloads, as stored [any number].",
)
@changes(SET_CAP)
def cap(change: ChangeRequest, *, capped: str, jobs: int, bytes_max: int | None) -> None:
    """Cap the jobs that a tenant may have and that have not ended.

    A submit beyond it is refused: by the HTTP API with 429 and Retry-After. So are people's retries
    of failed jobs. Messages of the runtime and of agents to people, automatic retries and bulk
    operations are not.
    """
    with session(change.options) as call:
        work = partial(store.cap, tenant=capped, jobs_max=jobs, bytes_max=bytes_max)
        request = {"tenant": capped, "jobs": jobs, "bytes": bytes_max}
        row = change.write(call, work, operation="quotas.cap", request=request)
    change.output.listing("caps", COLUMNS, [row], empty="")


@click.command(cls=Command)
@click.argument("capped", metavar="TENANT", type=Text(NAME_MAX))  # --tenant is every command's
@changes(REMOVE_CAP)
def uncap(change: ChangeRequest, *, capped: str) -> None:
    """Remove the cap of a tenant."""
    change.confirm(f"remove the cap of tenant {capped}")
    with session(change.options) as call:
        work = partial(store.uncap, tenant=capped)
        row = change.write(call, work, operation="quotas.uncap", request={"tenant": capped})
    change.output.listing("caps", COLUMNS, [row], empty="")


caps: Final = list_by_name(
    CAPS, help="""List caps of tenants, and the jobs that count towards them."""
)
