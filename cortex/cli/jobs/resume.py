"""`cortex jobs resume`: continues a failed job, in one of three ways."""

import sys
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import attrs
import click

from cortex.cli.changes import ChangeRequest, changes
from cortex.cli.completing import known
from cortex.cli.jobs.receipt_page import CHOICES, block
from cortex.cli.options import Command
from cortex.cli.screen.output import Output
from cortex.cli.target import data_dir, session, settings_from
from cortex.domain.clock import system_chance
from cortex.domain.phrases import short_id
from cortex.domain.safe import safe
from cortex.domain.timeouts import Choice, recommended_choice
from cortex.store import jobs, resumptions
from cortex.store import timeouts as receipts
from cortex.store.jobs import ShownJob
from cortex.store.resumptions import Settled
from cortex.store.timeouts import Recorded
from cortex.view.verbs import RESUME_JOB


@click.command(cls=Command)
@click.argument("job", metavar="ID", shell_complete=known("job"))
@click.option(
    "--choice",
    type=click.Choice([each.value for each in Choice]),
    metavar="CHOICE",
    help="retry_step, discard_and_retry or escalate.",
)
@changes(RESUME_JOB)
def resume(change: ChangeRequest, *, job: str, choice: str | None) -> None:
    """Continue a failed job: a new job starts from its last checkpoint.

    \b
    retry_step         run the step again with everything as it is
    discard_and_retry  set aside what the step left half done, then run it again: uncommitted
                       changes since the last checkpoint go into a git stash, new files into a
                       folder; nothing is lost. Run it where the job's folders are.
    escalate           leave it to an operator

    Without --choice, a clean job retries its step; for a job that left something, the command asks.
    """  # noqa: D301 -- the mark keeps the lines as they are
    with session(change.options) as call:
        failed = call(resumptions.failed, call(jobs.find, job))
        call(resumptions.lock, failed.id)
        receipt = call(receipts.that_ended, failed.id)
        chosen = Choice(choice) if choice else _chosen(failed.id, receipt, change.output)
        set_aside: dict[str, Any] = {}
        if chosen is Choice.DISCARD_AND_RETRY and call(resumptions.is_open, failed.id):
            files = [each.path for each in receipt.receipt.artefacts] if receipt else []
            settled = call(resumptions.settled, failed.id, files=files)
            data = data_dir(settings_from(change.options))
            set_aside = _discard(failed, receipt, settled, data=data)
        done = change.write(
            call,
            partial(
                resumptions.carry_out,
                job_id=failed.id,
                choice=chosen,
                credential=change.credential,
                set_aside=set_aside,
                new_id=system_chance().new_id(),
            ),
            operation="jobs.resume",
            request={"job": failed.id, "choice": chosen},
        )
    change.output.record(done, name=done["resumed_as"] or done["job"], page=lambda: _page(done))


def _chosen(job_id: UUID, found: Recorded | None, output: Output) -> Choice:
    """Choose for a clean job; ask a person about one that left something."""
    is_clean = found is None or found.receipt.is_clean
    cannot_ask = output.options.no_input or not (sys.stdin.isatty() and sys.stderr.isatty())
    if found is None or is_clean or cannot_ask:
        return resumptions.choice_of_clean(job_id, found)
    recommended = recommended_choice(found.receipt)
    for line in block(found, output.talk):
        output.talk.write(line)
    for each, meaning in CHOICES.items():
        output.say(f"  {each:<18} {meaning}", "bold" if each is recommended else "")
    names = click.Choice([each.value for each in Choice])
    return Choice(click.prompt("choice", type=names, default=recommended.value, err=True))


def _discard(
    failed: ShownJob, found: Recorded | None, settled: Settled, *, data: Path
) -> dict[str, Any]:
    """Set aside what the interrupted step left; return where it went, as plain JSON."""
    import trio

    from cortex.agent.workspace.discarding import leftovers_of, put_aside

    leftovers = leftovers_of(
        failed, found, settled, workspaces=data / "workspaces", new_id=system_chance().new_id()
    )
    return attrs.asdict(trio.run(put_aside, leftovers))


def _page(done: dict[str, Any]) -> list[str]:
    failed = short_id(UUID(done["job"]))
    if done["resumed_as"] is None:
        return [f"job {failed} is left to an operator: cortex dead show {failed}"]
    return [
        *_summary(done["set_aside"] or {}),
        f"job {failed} continues as {done['resumed_as']}: {done['choice']}",
    ]


def _summary(set_aside: dict[str, Any]) -> list[str]:
    lines = [
        f"stashed in {each['folder']}: git stash apply {each['commit']} brings it back"
        for each in set_aside.get("stashes", ())
    ]
    if set_aside.get("files"):
        lines.append(f"{len(set_aside['files'])} files moved to {set_aside['into']}")
    if set_aside and not lines:
        lines.append("nothing was left to set aside")
    return [safe(line) for line in lines]
