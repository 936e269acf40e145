"""`cortex dead discard`: gives failed jobs up."""

from typing import Any

import click

from cortex.cli.dead.begin import begin
from cortex.cli.dead.choice import DeadLetterRequest, acting, agree, choose, preview, report
from cortex.cli.idempotent import mutate
from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.bulk import BulkVerb
from cortex.postgres.database import Database
from cortex.store import dead_letters


@click.command(cls=Command)
@acting
@click.pass_obj
def discard(options: Options, *, request: DeadLetterRequest) -> None:
    """Discard dead letters; the records of their jobs stay.

    Named dead letters are discarded at once: exits with 5 if another person resolved one first. A
    filter submits a job of type `bulk`, which goes on after Ctrl-C.
    """
    output = Output(options)
    verb = BulkVerb.DISCARD
    with session(options) as call:
        chosen = choose(call, request)
        if request.is_dry_run:
            preview(chosen, output, verb)
            return
        if chosen.letters:
            agree(chosen, request, options, verb)
        if not request.names:
            begin(call, chosen, request, output, verb)
            return

        async def work(db: Database) -> list[dict[str, Any]]:
            return dead_letters.documents(
                await dead_letters.discard(
                    db, chosen.ids, by=request.by, reason=request.reason or ""
                )
            )

        text = mutate(
            call,
            work,
            output=output,
            key=request.key,
            operation="dead.discard",
            request=request.request,
        )
        report(call, text, output, verb)
