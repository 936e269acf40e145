"""`cortex schedules pause`, `resume`, `trigger` and `rm`."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import click

from cortex.cli.changes import ChangeRequest, changes
from cortex.cli.completing import known
from cortex.cli.options import Command
from cortex.cli.target import session
from cortex.domain.safe import safe
from cortex.postgres.database import Database
from cortex.store.background import schedules as store
from cortex.view.resources.schedules import SCHEDULES
from cortex.view.verbs import PAUSE_SCHEDULE, REMOVE_SCHEDULE, RESUME_SCHEDULE, TRIGGER_SCHEDULE

_name: Final = click.argument("name", metavar="NAME", shell_complete=known("schedule"))


@click.command(cls=Command, columns=SCHEDULES.fields)
@_name
@changes(PAUSE_SCHEDULE)
def pause(change: ChangeRequest, *, name: str) -> None:
    """Fire nothing until it is resumed; its running jobs continue.

    Instants that fall into the pause never fire.
    """
    _write(change, store.pause, name)


@click.command(cls=Command, columns=SCHEDULES.fields)
@_name
@changes(RESUME_SCHEDULE)
def resume(change: ChangeRequest, *, name: str) -> None:
    """Resume a paused schedule: the next instant counts from now."""
    _write(change, store.resume, name)


@click.command(cls=Command)
@_name
@changes(TRIGGER_SCHEDULE)
def trigger(change: ChangeRequest, *, name: str) -> None:
    """Submit a job of it now, beside its instants and whatever its overlap says."""

    async def work(db: Database, *, by: str, reason: str) -> dict[str, str]:
        return {
            "job_id": str(
                await store.trigger(db, name, by=by, credential=change.credential, reason=reason)
            )
        }

    with session(change.options) as call:
        done = change.write(call, work, operation="schedules.trigger", request={"name": name})
    output, job_id = change.output, done["job_id"]
    document = {"schedule": name, "job_id": job_id}
    output.record(document, name=job_id, page=lambda: [f"submitted {job_id}"])
    if output.is_for_people:
        output.say(f"follow it: cortex jobs watch {job_id}", "dim")


@click.command(cls=Command)
@_name
@changes(REMOVE_SCHEDULE)
def rm(change: ChangeRequest, *, name: str) -> None:
    """Remove a schedule and the record of its instants; its jobs stay.

    One that code of a living pod declares would come back: pause it instead.
    """
    change.confirm(f"remove schedule {name}")

    async def work(db: Database, *, by: str, reason: str) -> dict[str, str]:
        await store.remove(db, name, by=by, reason=reason)
        return {"name": name}

    with session(change.options) as call:
        done = change.write(call, work, operation="schedules.remove", request={"name": name})
    change.output.record(done, name=name, page=lambda: [f"removed {safe(name)}"])


def _write(change: ChangeRequest, act: Callable[..., Awaitable[None]], name: str) -> None:
    """Apply the change, and show the schedule's new state."""

    async def work(db: Database, *, by: str, reason: str) -> dict[str, Any]:
        await act(db, name, by=by, reason=reason)
        return {"name": name}

    with session(change.options) as call:
        operation = f"schedules.{act.__name__}"
        change.write(call, work, operation=operation, request={"name": name})
        rows = [call(store.show, name)]
    change.output.resource(SCHEDULES, rows, empty="")
