"""`cortex freeze`: holds back every new effect of all pods, and releases them again."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

import click

from cortex.cli.changes import ChangeRequest, changes
from cortex.cli.options import Command, Group, Options
from cortex.cli.screen.output import Output, document_of
from cortex.cli.screen.terminal import Terminal
from cortex.cli.target import session
from cortex.domain.phrases import rfc3339, span
from cortex.domain.safe import safe
from cortex.postgres.database import Database
from cortex.postgres.session import Session
from cortex.store import breakers as store
from cortex.store.breakers import FreezeState
from cortex.view.phrases import since_s
from cortex.view.verbs import FREEZE, UNFREEZE

freeze = Group(
    "freeze",
    help=(
        "Stop all new effects: calls of tools that change something "
        "outside.\n\nWithin a second no pod starts one. Reads and model calls "
        "continue. Jobs that reach an effect wait; none fails, and all continue "
        "by themselves after the freeze."
    ),
    sections={
        "Inspect": {"status": ("cortex.cli.freeze:status", "Show whether effects are frozen.")},
        "Change": {
            "on": ("cortex.cli.freeze:on", "Start no more effects."),
            "off": ("cortex.cli.freeze:off", "Allow effects again."),
        },
    },
)

_FIELDS: Final = ("is_frozen", "by", "reason", "frozen_at", "waiting_jobs")


@click.command(cls=Command)
@click.pass_obj
def status(options: Options) -> None:
    """Show whether effects are frozen, by whom, why, and how many jobs wait."""
    _refuse_columns(options)
    with session(options) as call:
        _show(call, Output(options))


@click.command(cls=Command)
@changes(FREEZE)
def on(change: ChangeRequest) -> None:
    """Start no more effects, in all pods, until `cortex freeze off`.

    Running calls finish. If effects are frozen already, the new reason and name replace the old
    ones.
    """
    _refuse_columns(change.options)

    async def work(db: Database, *, by: str, reason: str) -> None:
        await store.freeze(db, by=by, reason=reason)

    with session(change.options) as call:
        change.write(call, work, operation="effects.freeze", request={})
        _show(call, change.output)


@click.command(cls=Command)
@changes(UNFREEZE)
def off(change: ChangeRequest) -> None:
    """Allow effects again: all jobs that wait for the freeze continue.

    Exits with 5 if effects are not frozen.
    """
    change.confirm("allow effects again in all pods")
    _refuse_columns(change.options)
    with session(change.options) as call:
        change.write_as_person(call, store.unfreeze, operation="effects.unfreeze", request={})
        _show(call, change.output)


def _refuse_columns(options: Options) -> None:
    options.refuse_columns("the freeze has no columns")


def _show(call: Session, output: Output) -> None:
    observed = call(store.frozen)
    output.record(
        document_of(observed, _FIELDS),
        name="frozen" if observed.is_frozen else "open",
        page=lambda: _page(observed, output.terminal),
    )


def _page(observed: FreezeState, terminal: Terminal) -> Iterator[str]:
    count = observed.waiting_jobs
    more = "+" if count >= store.COUNT_MAX else ""
    jobs = "1 job waits" if count == 1 else f"{count:,}{more} jobs wait"
    if not observed.is_frozen:
        yield f"{terminal.paint('● effects may begin', 'done')}" + (
            f" · {jobs} to be released" if count else ""
        )
        return
    since = (
        "" if observed.frozen_at is None else f" {_since(observed, observed.frozen_at, terminal)}"
    )
    text = f"frozen by {observed.by}{since}: {observed.reason}"
    yield f"{terminal.paint('✗ effects are frozen', 'fail')} · {jobs}"
    yield f"  {safe(text)}"


def _since(observed: FreezeState, frozen_at: datetime, terminal: Terminal) -> str:
    if not terminal.is_tty:
        return rfc3339(frozen_at)
    return f"for {span(since_s(observed, frozen_at))}"
