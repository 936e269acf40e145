"""`cortex jobs timeouts`: the receipts of a job's time-outs."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import click

from cortex.cli.completing import known
from cortex.cli.jobs.receipt_page import block
from cortex.cli.options import META_KEY, Command, Format, Options
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.errors import UsageError
from cortex.domain.phrases import short_id
from cortex.postgres.session import Session
from cortex.store import jobs, steps
from cortex.store.steps import FullStep
from cortex.store.timeouts import Recorded, of_job
from cortex.view.resources.timeouts import TIMEOUT


@click.command(cls=Command)
@click.argument("job", metavar="ID", shell_complete=known("job"))
@click.option("--jsonl", is_flag=True, help="Same as -o jsonl: one whole receipt per line.")
@click.pass_obj
def timeouts(options: Options, *, job: str, jsonl: bool) -> None:
    """Show a job's time-outs, and what each one left behind.

    Documents contain everything: the partial response, files, git state and diff, and for those
    that ended an attempt the transcript of steps up to the interruption.
    """
    options.refuse_columns("receipts have no columns")
    if jsonl and "output" in click.get_current_context().meta.get(META_KEY, {}):
        raise UsageError("--jsonl and -o or --json request two formats", hint="give one of them")
    output = Output(options)
    with session(options) as call:
        job_id = call(jobs.find, job)
        call(jobs.show, job_id)  # raises NotFoundError: a whole id is not looked up by `find`
        receipts = _receipts(call, job_id)
        if jsonl or output.format is Format.JSONL:
            for content in _documents(call, job_id, receipts):
                output.json_line(content)
            return
        match output.format:
            case Format.TABLE | Format.WIDE:
                _page(output, job_id, receipts)
            case Format.NAME:
                for each in receipts:
                    output.line(str(each.id))
            case _:
                found = list(_documents(call, job_id, receipts))
                output.document({"job_id": job_id, "timeouts": found})


def _receipts(call: Session, job_id: UUID) -> Iterator[Recorded]:
    """Yield a job's receipts page by page: each may be large."""
    after = 0
    while page := call(of_job, job_id, after=after):
        yield from page
        after = page[-1].id


def _documents(
    call: Session, job_id: UUID, receipts: Iterator[Recorded]
) -> Iterator[dict[str, Any]]:
    transcript: list[FullStep] | None = None
    for each in receipts:
        text = each.receipt.interruption
        if not text.final_action.ended_attempt:
            yield _document(each, None)
            continue
        if transcript is None:
            transcript = call(steps.outputs, job_id)
        yield _document(each, [step for step in transcript if step.seq <= text.checkpoint_seq])


def _document(recorded: Recorded, transcript: list[FullStep] | None) -> dict[str, Any]:
    """Return a receipt as JSON; `transcript`: the steps up to the interruption."""
    document = TIMEOUT.document(recorded)
    return {**document, "unsettled_s": None, "transcript": transcript}


def _page(output: Output, job_id: UUID, receipts: Iterator[Recorded]) -> None:
    is_empty = True
    for each in receipts:
        if not is_empty:
            output.line("")
        for line in block(each, output.terminal):
            output.line(line)
        is_empty = False
    if is_empty:
        output.say(f"job {short_id(job_id)} has no time-outs", "dim")
