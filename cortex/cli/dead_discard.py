"""`cortex dead discard`: failed jobs that nobody will go on from."""

from typing import Any

import click

from cortex.cli.dead_choice import Asked, acting, agree, choose, preview, tell
from cortex.cli.idempotent import mutate
from cortex.cli.options import Command, Options
from cortex.cli.output import Output
from cortex.cli.target import session
from cortex.store import dead_letters
from cortex.store.database import Database


@click.command(cls=Command)
@acting
@click.pass_obj
def discard(options: Options, *, asked: Asked) -> None:
    """Give failed jobs up: their letters are settled, their records stay.

    Give ids, or a filter for many at once.
    Ends with 5 when somebody else had settled a letter that was named.
    """
    output = Output(options)
    with session(options) as call:
        chosen = choose(call, asked)
        if asked.is_dry_run:
            preview(chosen, output, verb="discarded")
            return
        if chosen.letters:
            agree(chosen, asked, options, verb="discard")

        async def work(db: Database) -> list[dict[str, Any]]:
            return dead_letters.documents(
                await dead_letters.discard(db, chosen.ids, by=asked.by, reason=asked.reason or "")
            )

        told = mutate(
            call,
            work,
            output=output,
            key=asked.key,
            operation="dead.discard",
            request=asked.request,
        )
        tell(call, told, asked, output, verb="discarded")
