"""`cortex pods`: running pods and their health."""

from typing import Final

import click

from cortex.cli.options import Command, Group, Options
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.store import pods as store
from cortex.store import pulse
from cortex.store.drains import with_moved
from cortex.view.pods import ticks_text
from cortex.view.resources.pods import PODS

ENDED_MAX: Final = 50

pods = Group(
    "pods",
    help="List and drain pods, the processes that run jobs.",
    sections={
        "Inspect": {"ls": ("cortex.cli.pods:ls", "List pods and their health.")},
        "Change": {
            "drain": ("cortex.cli.pods.drain:drain", "Stop a pod from taking jobs."),
            "undrain": ("cortex.cli.pods.drain:undrain", "Let a drained pod take jobs again."),
        },
    },
)


@click.command(cls=Command, columns=PODS.fields)
@click.option("--all", "with_ended", is_flag=True, help="Include the newest stopped pods.")
@click.pass_obj
def ls(options: Options, *, with_ended: bool) -> None:
    """List pods: state, load, and time since the last heartbeat."""
    output = Output(options)
    with session(options) as call:
        rows = call(with_moved, call(store.page, ended=ENDED_MAX if with_ended else 0))
        ticked_s = None if rows else call(pulse.figures).ticked_s
    empty = "no pod is running: cortex up" if ticked_s is None else ticks_text(ticked_s)
    output.resource(PODS, rows, empty=empty)
