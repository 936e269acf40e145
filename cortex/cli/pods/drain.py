"""`cortex pods drain` and `undrain`: keeps a running pod from taking jobs, until undrained."""

from collections.abc import Awaitable, Callable

import click

from cortex.cli.asking import acting_name, as_option, reason_option, unasked_option
from cortex.cli.idempotent import idempotent, mutate
from cortex.cli.options import Command, Options
from cortex.cli.pods import COLUMNS
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.safe import safe
from cortex.postgres.database import Database
from cortex.store import drains
from cortex.store import pods as store
from cortex.store.drains import with_moved


@click.command(cls=Command)
@click.argument("pod", metavar="POD")
@reason_option("Shown with the pod, and stored.")
@unasked_option
@as_option
@idempotent
@click.pass_obj
def drain(
    options: Options, *, pod: str, reason: str, actor: str | None, idempotency_key: str | None
) -> None:
    """Stop a pod from taking jobs; its jobs continue elsewhere from their next checkpoint.

    POD is its name, or the beginning of its id. The process keeps running, and nothing is aborted.
    """
    _act(options, drains.request, pod, reason=reason, actor=actor, key=idempotency_key)


@click.command(cls=Command)
@click.argument("pod", metavar="POD")
@reason_option("Stored in the record.")
@unasked_option
@as_option
@idempotent
@click.pass_obj
def undrain(
    options: Options, *, pod: str, reason: str, actor: str | None, idempotency_key: str | None
) -> None:
    """Let a drained pod take jobs again, at once.

    POD is its name, or the beginning of its id.
    """
    _act(options, drains.withdraw, pod, reason=reason, actor=actor, key=idempotency_key)


def _act(
    options: Options,
    act: Callable[..., Awaitable[bool]],
    pod: str,
    *,
    reason: str,
    actor: str | None,
    key: str | None,
) -> None:
    """Apply the change, and show the pod's new state."""
    output = Output(options)
    by = acting_name(actor)
    with session(options) as call:
        pod_id = call(drains.find, pod)

        async def work(db: Database) -> dict[str, bool]:
            return {"is_changed": await act(db, pod_id, by=by, reason=reason)}

        done = mutate(
            call,
            work,
            output=output,
            key=key,
            operation=f"pods.{'drain' if act is drains.request else 'undrain'}",
            request={"pod": pod_id, "by": by, "reason": reason},
        )
        rows = call(with_moved, [row for row in call(store.page) if row.id == pod_id])
    output.listing("pods", COLUMNS, rows, empty="it has ended meanwhile")
    if not done["is_changed"]:
        text = "a drain was requested already" if act is drains.request else "it was not drained"
        output.say(f"nothing was done: {safe(text)}", "warn")
