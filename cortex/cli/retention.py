"""`cortex retention`: for how long finished jobs and facts are kept."""

from collections.abc import Iterator
from typing import Any, Final

import attrs
import click

from cortex.cli.changes import ChangeRequest, changes
from cortex.cli.options import Command, Group, Options
from cortex.cli.screen.output import Output
from cortex.cli.screen.terminal import Terminal
from cortex.cli.target import session, settings_from
from cortex.domain.errors import ArchiveError, UsageError
from cortex.domain.people import Identity
from cortex.domain.phrases import rfc3339, span
from cortex.domain.safe import safe
from cortex.postgres.database import Database
from cortex.postgres.session import Session
from cortex.store.background import retention as store
from cortex.store.background.retention import Retention, RetentionPeriods
from cortex.view.phrases import date_time
from cortex.view.verbs import SET_RETENTION, UNSET_RETENTION

retention = Group(
    "retention",
    help=(
        "Delete finished jobs and old facts by age; off until you set it.\n\nA job is deleted with "
        "its steps, effects, history and facts, together with the jobs that continue it, and never "
        "while something still refers to it."
    ),
    sections={
        "Inspect": {"show": ("cortex.cli.retention:show", "Show what is kept, and for how long.")},
        "Change": {
            "set": ("cortex.cli.retention:set_", "Delete what is older than this."),
            "unset": ("cortex.cli.retention:unset", "Delete nothing any more."),
        },
    },
)

PERIODS: Final = ("completed_s", "failed_s", "facts_s")
_KEPT: Final = {
    "completed_s": "completed jobs",
    "failed_s": "failed and cancelled jobs",
    "facts_s": "facts",
}


@click.command(cls=Command)
@click.pass_obj
def show(options: Options) -> None:
    """Show for how long jobs and facts are kept, who set that, and why."""
    options.refuse_columns("the retention has no columns")
    with session(options) as call:
        _show(call, Output(options))


@click.command("set", cls=Command)
@click.option("--completed", metavar="TIME", help="Keep completed jobs this long, such as 30d.")
@click.option("--failed", metavar="TIME", help="Keep failed and cancelled jobs this long.")
@click.option(
    "--facts", metavar="TIME", help="Keep facts this long; without it, a job's facts go with it."
)
@click.option(
    "--archive", metavar="DIR", help="Write a copy as JSON lines first; every pod needs the folder."
)
@changes(SET_RETENTION)
def set_(
    change: ChangeRequest,
    *,
    completed: str | None,
    failed: str | None,
    facts: str | None,
    archive: str | None,
) -> None:
    """Delete finished jobs and facts that are older than this; replaces the setting as a whole.

    What is not named is kept for ever. A dead letter keeps its job until it is retried or
    discarded. What is deleted cannot be brought back.
    """
    change.options.refuse_columns("the retention has no columns")
    periods = RetentionPeriods.parse(
        completed=completed, failed=failed, facts=facts, archive=archive
    )
    named = ", ".join(_worded(periods))
    copy = "" if archive is None else f"; copies go to {archive}"
    unusable = None if archive is None else _unusable(archive)
    if unusable is not None and settings_from(change.options).dsn is None:
        # All pods of the embedded database run on this machine.
        raise UsageError(f"--archive: {unusable}", hint="make the folder, or name another one")
    change.confirm(f"delete for good: {named}{copy}")
    _write(change, periods)
    if unusable is not None:
        text = f"here {unusable}; each machine with pods or ticks needs the folder"
        change.output.say(text, "warn")


@click.command(cls=Command)
@changes(UNSET_RETENTION)
def unset(change: ChangeRequest) -> None:
    """Keep everything from now on. What was deleted stays deleted."""
    change.options.refuse_columns("the retention has no columns")
    _write(change, RetentionPeriods())


def _unusable(folder: str) -> str | None:
    """Return why this machine cannot write copies into the folder."""
    from cortex.runtime.maintenance.archive import check

    try:
        check(folder)
    except ArchiveError as error:
        return error.message
    return None


def _write(change: ChangeRequest, periods: RetentionPeriods) -> None:
    async def work(db: Database, *, by: Identity, reason: str) -> dict[str, Any]:
        before = await store.put(db, periods, by=by, reason=reason)
        return {"before": None if before is None else attrs.asdict(before)}

    with session(change.options) as call:
        change.write_as_person(call, work, operation="retention.set", request=attrs.asdict(periods))
        _show(call, change.output)


def _show(call: Session, output: Output) -> None:
    observed = call(store.current)
    fields = ("archive", "changed_by", "changed_at", "reason", "held_until")
    document: dict[str, Any] = {
        "is_set": observed is not None,
        **{name: getattr(observed, name, None) for name in (*PERIODS, *fields)},
    }
    output.record(
        document,
        name="set" if observed is not None else "unset",
        page=lambda: _page(observed, output.terminal),
    )


def _page(observed: Retention | None, terminal: Terminal) -> Iterator[str]:
    if observed is None:
        yield "everything is kept: no retention is set"
        return
    yield from _worded(observed)
    for name in PERIODS:
        if getattr(observed, name) is None:
            rule = "go with their jobs; others are kept" if name == "facts_s" else "are kept"
            yield f"{_KEPT[name]} {rule}"
    if observed.archive is not None:
        yield f"copies go to {safe(observed.archive)}"
    if observed.held_until is not None:
        until = date_time(observed.held_until) if terminal.is_tty else rfc3339(observed.held_until)
        text = f"held until {until}: the clock was moved, or nothing ran for days"
        yield terminal.paint(text, "warn")
    yield safe(f"set by {observed.changed_by}: {observed.reason}")


def _worded(periods: RetentionPeriods) -> Iterator[str]:
    for name in PERIODS:
        seconds = getattr(periods, name)
        if seconds is not None:
            yield f"{_KEPT[name]} older than {span(seconds).removesuffix(' 0h')}"
