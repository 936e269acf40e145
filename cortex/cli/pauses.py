"""`cortex pauses`, `cortex pause`, `cortex resume`: which jobs do not start."""

import shlex
from collections.abc import Awaitable, Callable

import click

from cortex.cli.changes import ChangeRequest, changes
from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.queueing.pauses import Pausable, PauseKind
from cortex.domain.safe import safe
from cortex.postgres.database import Database
from cortex.postgres.session import Session
from cortex.store import jobs, queues
from cortex.store import pauses as store
from cortex.store.queues import QueueRow
from cortex.view.resources.pauses import PAUSES
from cortex.view.verbs import PAUSE, RESUME


@click.command(cls=Command, columns=PAUSES.fields)
@click.pass_obj
def pauses(options: Options) -> None:
    """List what is paused, the latest first, with who paused it and why."""
    output = Output(options)
    with session(options) as call:
        rows = call(store.page)
    output.resource(PAUSES, rows)


@click.command(cls=Command, columns=PAUSES.fields)
@click.argument("target", metavar="TARGET")
@changes(PAUSE)
def pause(change: ChangeRequest, *, target: str) -> None:
    """Keep jobs from starting until they are resumed; running jobs end their attempt.

    TARGET is `all`, or type:NAME, tenant:NAME, queue:NAME or job:ID; queue:default holds the jobs
    without a queue. Has no effect on what is paused already.
    """
    _act(change, store.pause, target, remark="was paused already")


@click.command(cls=Command, columns=PAUSES.fields)
@click.argument("target", metavar="TARGET")
@changes(RESUME)
def resume(change: ChangeRequest, *, target: str) -> None:
    """Let jobs start again, at once. Has no effect on what is not paused."""
    _act(change, store.resume, target, remark="was not paused")


def _act(
    change: ChangeRequest, act: Callable[..., Awaitable[bool]], text: str, *, remark: str
) -> None:
    """Apply the change, and show what is paused now; `remark` applies if nothing changed."""
    output = change.output
    with session(change.options) as call:
        target = _target(call, text)

        async def work(db: Database, *, by: str, reason: str) -> dict[str, bool]:
            return {"is_changed": await act(db, target, by=by, reason=reason)}

        operation = f"pauses.{act.__name__}"
        done = change.write(call, work, operation=operation, request={"target": str(target)})
        rows = call(store.page)
        is_empty = (
            act is store.pause
            and bool(target.name)
            and target.kind is PauseKind.QUEUE
            and not _has_tasks(call(queues.page, [target.name]))
        )
    output.resource(PAUSES, rows)
    if is_empty:
        shown = shlex.quote(target.words)
        output.say(f"no task waits in {safe(shown)}; see: cortex queues ls", "warn")
    if not done["is_changed"]:
        output.say(f"nothing was done: {safe(str(target))} {remark}", "warn")


def _has_tasks(rows: list[QueueRow]) -> bool:
    return any(row.ready or row.running for row in rows)


def _target(call: Session, text: str) -> Pausable:
    """Return what is named; a job by the end of its id, too."""
    word, _, name = text.partition(":")
    if word == PauseKind.JOB and name:
        return Pausable(PauseKind.JOB, str(call(jobs.find, name)))
    return Pausable.parse(text)
