"""What one does to a job, from the list of jobs and from the job itself."""

from cortex_tui.acts import Act
from cortex_tui.backend.protocol import JobRow
from cortex_tui.desk import Desk
from cortex_tui.render.job_rows import job_words
from cortex_tui.widgets.strip_line import StripLine


def cancel(desk: Desk, strip: StripLine, row: JobRow | None) -> None:
    """Ask whether to cancel a job."""
    if row is None:
        strip.tell("there is no job here", "dim")
        return
    job_id, by = row["id"], desk.session.actor
    act = Act(
        question=f"cancel {job_words(row)}",
        command=("jobs", "cancel", str(job_id), "--yes"),
        work=lambda: desk.backend.jobs.cancel(job_id, by=by),
    )
    desk.acts.propose(strip, act)


def retry(desk: Desk, strip: StripLine, row: JobRow | None) -> None:
    """Ask whether to let a job try again now."""
    if row is None:
        strip.tell("there is no job here", "dim")
        return
    job_id, by = row["id"], desk.session.actor
    act = Act(
        question=f"retry now {job_words(row)}",
        command=("jobs", "retry", str(job_id)),
        work=lambda: desk.backend.jobs.retry(job_id, by=by),
    )
    desk.acts.propose(strip, act)
