"""`cortex jobs show`: everything about one job."""

from collections.abc import Sequence
from uuid import UUID

import attrs
import click

from cortex.cli.completing import known
from cortex.cli.jobs.job_page import JobRecord, page
from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.postgres.database import Database
from cortex.store import approvals, effects, facts, jobs, signals, steps, why
from cortex.store.jobs import StepRow
from cortex.view.why_brief import EXPLAINED, brief

STEPS_DEFAULT = 200
EFFECTS_MAX = 1000
SIGNALS_MAX = 500


async def read_record(db: Database, job_id: UUID, *, steps_max: int | None) -> JobRecord:
    """Read a job with its newest steps without outputs, or with None all steps and outputs."""
    job = await jobs.show(db, job_id)
    found: Sequence[StepRow]
    after = 0 if steps_max is None else max(0, job.checkpoint.get("seq", 0) - steps_max)
    if steps_max is None:
        found = await steps.outputs(db, job_id)
    else:
        found = await steps.page(db, job_id, after=after, limit=steps_max)
    whys = await why.facts_of_all(db, [job_id] if job.status in EXPLAINED else [])
    return JobRecord(
        job=attrs.evolve(job, why=brief(whys[job_id]) if job_id in whys else None),
        steps=found,
        attempts=await jobs.attempts(db, job_id),
        history=await jobs.history(db, job_id),
        changes=await facts.changes_of_job(db, job_id),
        effects=await effects.page(db, job_id=job_id, limit=EFFECTS_MAX),
        approvals=await approvals.of_job(db, job_id),
        signals=await signals.of_job(db, job_id, limit=SIGNALS_MAX),
        substitutions=await steps.substitutions(db, job_id, after=after),
    )


@click.command(cls=Command)
@click.argument("job", metavar="ID", shell_complete=known("job"))
@click.option(
    "--steps",
    "steps_max",
    type=click.IntRange(1, 100_000),
    default=STEPS_DEFAULT,
    show_default=True,
    metavar="N",
    help="Number of newest steps; documents always have all.",
)
@click.pass_obj
def show(options: Options, *, job: str, steps_max: int) -> None:
    """Show a job: its steps on a time axis, attempts, history and result."""
    output = Output(options)
    with session(options) as call:
        record = call(
            read_record,
            call(jobs.find, job),
            steps_max=steps_max if output.is_for_people else None,
        )
    output.record(
        record.document,
        name=str(record.job.id),
        page=lambda: page(record, output.terminal),
    )
