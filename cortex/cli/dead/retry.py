"""`cortex dead retry`: continues failed jobs in new ones."""

from typing import Any, Final

import click

from cortex.cli.dead.begin import begin
from cortex.cli.dead.choice import DeadLetterRequest, acting, agree, choose, preview, report
from cortex.cli.idempotent import mutate
from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.bulk import BulkVerb
from cortex.domain.clock import system_chance
from cortex.domain.dead_letter import NEWEST
from cortex.postgres.database import Database
from cortex.store.dead_letters import documents, resubmissions, resubmit

VERSION_MAX: Final = 2**31 - 1


class Version(click.ParamType[int]):
    """A version of an agent: its number, or `latest`."""

    name = "version"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if value == "latest":
            return NEWEST
        try:
            return click.IntRange(1, VERSION_MAX).convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{value!r} is not a version: give its number, or latest", param, ctx)


@click.command(cls=Command)
@acting
@click.option(
    "--agent-version",
    type=Version(),
    metavar="N",
    help="Another version of the agent, or latest; starts over if it differs.",
)
@click.option(
    "--from-start", is_flag=True, help="Start over instead of continuing after the last step."
)
@click.pass_obj
def retry(
    options: Options,
    *,
    request: DeadLetterRequest,
    agent_version: int | None,
    from_start: bool,
) -> None:
    """Continue failed jobs in new ones, each after the last step of its origin.

    The old jobs stay FAILED. Named jobs are retried at once: exits with 5 if another person
    resolved one first. A filter submits a job of type `bulk`, which goes on after Ctrl-C.
    """
    output = Output(options)
    verb = BulkVerb.RETRY
    with session(options) as call:
        chosen = choose(call, request, verb, from_start=from_start)
        if request.is_dry_run:
            preview(chosen, output, verb)
            return
        if chosen.letters:
            agree(chosen, request, options, verb)
        if not request.names:
            begin(
                call,
                chosen,
                request,
                output,
                verb,
                agent_version=agent_version,
                from_start=from_start,
            )
            return
        wanted = resubmissions(chosen.ids, new_id=system_chance().new_id, rate=request.rate)

        async def work(db: Database) -> list[dict[str, Any]]:
            done = await resubmit(
                db,
                wanted,
                by=request.by,
                reason=request.reason or "",
                agent_version=agent_version,
                from_start=from_start,
            )
            return documents(done)

        text = mutate(
            call,
            work,
            output=output,
            key=request.key,
            operation="dead.retry",
            request=request.request
            | {"rate": request.rate, "agent_version": agent_version, "from_start": from_start},
        )
        report(call, text, output, verb)
