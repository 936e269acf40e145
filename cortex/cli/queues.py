"""`cortex queues`: waiting jobs per worker queue, pause and resume."""

import shlex
from collections.abc import Awaitable, Callable

import click

from cortex.cli.changes import ChangeRequest, changes
from cortex.cli.completing import known
from cortex.cli.options import Command, Group, Options, limit_option
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.safe import safe
from cortex.postgres.database import Database
from cortex.store import queues as store
from cortex.view.queues import parse_named_queue, parse_queue, queue_shown
from cortex.view.resources.queues import QUEUES
from cortex.view.verbs import ORDER_QUEUE, PAUSE_QUEUE, RESUME_QUEUE

queues = Group(
    "queues",
    help=(
        "List worker queues, pause and resume them.\n\nJobs of a named queue run "
        "one after another; jobs without one are in `default`, and run as pods "
        "have room. In a strict queue, the next job begins only when the one "
        "before has ended. Jobs in a paused queue are not claimed; running ones "
        "continue."
    ),
    sections={
        "Inspect": {"ls": ("cortex.cli.queues:ls", "List queues and their waiting jobs.")},
        "Change": {
            "pause": ("cortex.cli.queues:pause", "Claim no more jobs from a queue."),
            "resume": ("cortex.cli.queues:resume", "Resume a paused queue."),
            "order": ("cortex.cli.queues:order", "Make a named queue strict, or relaxed."),
        },
    },
)


@click.command(cls=Command, columns=QUEUES.fields)
@limit_option(store.QUEUES_MAX, "Maximum number of rows.")
@click.pass_obj
def ls(options: Options, *, limit: int) -> None:
    """List queues: paused ones first, then those with tasks, by name."""
    output = Output(options)
    with session(options) as call:
        rows = call(store.page, limit=limit)
    output.resource(QUEUES, rows)


@click.command(cls=Command, columns=QUEUES.fields)
@click.argument("queue", metavar="QUEUE", shell_complete=known("queue"))
@changes(PAUSE_QUEUE)
def pause(change: ChangeRequest, *, queue: str) -> None:
    """Claim no more jobs from a queue until it is resumed; running jobs continue.

    `default` is the queue of all jobs without one. Has no effect on a paused queue.
    """
    _act(change, store.pause, queue, remark="was paused already")


@click.command(cls=Command, columns=QUEUES.fields)
@click.argument("queue", metavar="QUEUE", shell_complete=known("queue"))
@changes(RESUME_QUEUE)
def resume(change: ChangeRequest, *, queue: str) -> None:
    """Resume a queue at once. Has no effect on a queue that is not paused."""
    _act(change, store.resume, queue, remark="was not paused")


@click.command(cls=Command, columns=QUEUES.fields)
@click.argument("queue", metavar="QUEUE", shell_complete=known("queue"))
@click.argument("rule", metavar="RULE", type=click.Choice(["strict", "relaxed"]))
@changes(ORDER_QUEUE)
def order(change: ChangeRequest, *, queue: str, rule: str) -> None:
    """Choose when the next job of a named queue begins.

    In a relaxed queue, the default, it begins when the job before it does not run: also while
    that job sleeps, asks people or waits for a retry. In a strict queue, it begins when the job
    before it has ended. The rule applies at once to the jobs in the queue.
    """
    name = parse_named_queue(queue)
    act = store.make_strict if rule == "strict" else store.make_relaxed
    _act(change, act, name, remark=f"was {rule} already")


def _act(
    change: ChangeRequest, act: Callable[..., Awaitable[bool]], queue: str, *, remark: str
) -> None:
    """Apply the change, and show the queue's new state; `remark` applies if nothing changed."""
    output = change.output
    name = parse_queue(queue)

    async def work(db: Database, *, by: str, reason: str) -> dict[str, bool]:
        return {"is_changed": await act(db, name, by=by, reason=reason)}

    with session(change.options) as call:
        operation = f"queues.{act.__name__}"
        done = change.write(call, work, operation=operation, request={"queue": name})
        rows = call(store.page, [name])
    output.resource(QUEUES, rows)
    if not done["is_changed"]:
        output.say(f"nothing was done: queue {safe(queue_shown(name))} {remark}", "warn")
    elif act is store.pause and name is not None and not (rows[0].ready or rows[0].running):
        shown = shlex.quote(queue_shown(name))
        output.say(f"no task waits in queue {safe(shown)}; see: cortex queues ls", "warn")
