"""`cortex jobs priority`: moves a job that is not over in the line."""

import click

from cortex.cli.changes import ChangeRequest, changes
from cortex.cli.completing import known
from cortex.cli.options import Command
from cortex.cli.target import session
from cortex.domain.phrases import short_id
from cortex.domain.policy import PRIORITY_MAX
from cortex.postgres.database import Database
from cortex.store import jobs
from cortex.view.verbs import PRIORITIZE_JOB


# So that -10 is a number.
@click.command(cls=Command, context_settings={"ignore_unknown_options": True})
@click.argument("job", metavar="ID", shell_complete=known("job"))
@click.argument("priority", metavar="N", type=click.IntRange(-PRIORITY_MAX, PRIORITY_MAX))
@changes(PRIORITIZE_JOB)
def priority(change: ChangeRequest, *, job: str, priority: int) -> None:
    """Give a job another priority; lower numbers run first.

    A waiting job moves at once; a running one goes on, and has it when it waits again. Exits with
    5 if the job has ended.
    """
    with session(change.options) as call:
        job_id = call(jobs.find, job)

        async def work(db: Database, *, by: str, reason: str) -> dict[str, int]:
            before = await jobs.prioritize(db, job_id, priority, by=by, reason=reason)
            return {"before": before}

        request = {"job": str(job_id), "priority": priority}
        done = change.write(call, work, operation="jobs.priority", request=request)
    document = {"id": job_id, "priority": priority, "priority_before": done["before"]}
    change.output.record({"job": document}, name=str(job_id), page=list)
    change.output.say(f"job {short_id(job_id)}: priority {done['before']} → {priority}", "ok")
