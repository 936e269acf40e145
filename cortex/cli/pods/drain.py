"""`cortex pods drain` and `undrain`: keeps a running pod from taking jobs, until undrained."""

from collections.abc import Awaitable, Callable

import click

from cortex.cli.changes import ChangeRequest, changes
from cortex.cli.completing import known
from cortex.cli.options import Command
from cortex.cli.target import session
from cortex.domain.safe import safe
from cortex.postgres.database import Database
from cortex.store import drains
from cortex.store import pods as store
from cortex.store.drains import with_moved
from cortex.view.resources.pods import PODS
from cortex.view.verbs import DRAIN_POD, UNDRAIN_POD


@click.command(cls=Command, columns=PODS.fields)
@click.argument("pod", metavar="POD", shell_complete=known("pod"))
@changes(DRAIN_POD)
def drain(change: ChangeRequest, *, pod: str) -> None:
    """Stop a pod from taking jobs; its jobs continue elsewhere from their next checkpoint.

    POD is its name, or the beginning of its id. The process keeps running, and nothing is aborted.
    """
    _act(change, drains.request, pod)


@click.command(cls=Command, columns=PODS.fields)
@click.argument("pod", metavar="POD", shell_complete=known("pod"))
@changes(UNDRAIN_POD)
def undrain(change: ChangeRequest, *, pod: str) -> None:
    """Let a drained pod take jobs again, at once.

    POD is its name, or the beginning of its id.
    """
    _act(change, drains.withdraw, pod)


def _act(change: ChangeRequest, act: Callable[..., Awaitable[bool]], pod: str) -> None:
    """Apply the change, and show the pod's new state."""
    output = change.output
    with session(change.options) as call:
        pod_id = call(drains.find, pod)

        async def work(db: Database, *, by: str, reason: str) -> dict[str, bool]:
            return {"is_changed": await act(db, pod_id, by=by, reason=reason)}

        operation = f"pods.{'drain' if act is drains.request else 'undrain'}"
        done = change.write(call, work, operation=operation, request={"pod": pod_id})
        rows = call(with_moved, [row for row in call(store.page) if row.id == pod_id])
    output.resource(PODS, rows, empty="it has ended meanwhile")
    if not done["is_changed"]:
        text = "a drain was requested already" if act is drains.request else "it was not drained"
        output.say(f"nothing was done: {safe(text)}", "warn")
