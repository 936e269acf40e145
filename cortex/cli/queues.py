"""`cortex queues`: waiting jobs per worker queue, and the order of a named one."""

import click

from cortex.cli.changes import ChangeRequest, changes
from cortex.cli.completing import known
from cortex.cli.options import Command, Group, Options, limit_option
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.safe import safe
from cortex.postgres.database import Database
from cortex.store import queues as store
from cortex.view.queues import parse_named_queue, queue_shown
from cortex.view.resources.queues import QUEUES
from cortex.view.verbs import ORDER_QUEUE

queues = Group(
    "queues",
    help=(
        "List worker queues, and order them.\n\nJobs of a named queue run "
        "one after another; jobs without one are in `default`, and run as pods "
        "have room. In a strict queue, the next job begins only when the one "
        "before has ended. Jobs in a paused queue are not claimed; running ones "
        "continue."
    ),
    sections={
        "Inspect": {"ls": ("cortex.cli.queues:ls", "List queues and their waiting jobs.")},
        "Change": {
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
    output = change.output

    async def work(db: Database, *, by: str, reason: str) -> dict[str, bool]:
        return {"is_changed": await act(db, name, by=by, reason=reason)}

    with session(change.options) as call:
        operation = f"queues.{act.__name__}"
        done = change.write(call, work, operation=operation, request={"queue": name})
        rows = call(store.page, [name])
    output.resource(QUEUES, rows)
    if not done["is_changed"]:
        shown = safe(queue_shown(name))
        output.say(f"nothing was done: queue {shown} was {rule} already", "warn")
