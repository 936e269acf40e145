"""`cortex dead discard`: gives failed jobs up."""

from typing import Any

import click

from cortex.cli.changes import ChangeRequest, changes
from cortex.cli.choice import LETTERS, JobsRequest, chosen, have_done
from cortex.cli.dead.choice import ACTS, agree, find, preview, report
from cortex.cli.dead.filters import filtered
from cortex.cli.options import Command
from cortex.cli.target import session
from cortex.domain.bulk import BulkVerb
from cortex.postgres.database import Database
from cortex.store import dead_letters
from cortex.view.verbs import DISCARD_LETTERS


@click.command(cls=Command)
@filtered
@chosen(LETTERS)
@changes(DISCARD_LETTERS)
def discard(change: ChangeRequest, *, request: JobsRequest) -> None:
    """Discard dead letters; the records of their jobs stay.

    Named dead letters are discarded at once: exits with 5 if another person resolved one first. A
    filter submits a job of type `bulk`, which goes on after Ctrl-C.
    """
    output, verb = change.output, BulkVerb.DISCARD
    with session(change.options) as call:
        found = find(call, request, verb)
        if request.is_dry_run:
            preview(found, output, verb)
            return
        agree(found, change, request, verb)
        if not request.names:
            have_done(call, change, request, found.choice, ACTS[verb], empty=found.empty)
            return

        async def work(db: Database, /, *, by: str, reason: str) -> list[dict[str, Any]]:
            done = await dead_letters.discard(db, found.choice.job_ids, by=by, reason=reason)
            return dead_letters.documents(done)

        done = change.write(call, work, operation="dead.discard", request=request.wish)
        report(call, done, output, verb)
