"""`cortex schedules apply`: from YAML files to the database."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Final

import attrs
import click
import orjson

from cortex.cli.apps import registry_of
from cortex.cli.changes import ChangeRequest, applied_columns, changes
from cortex.cli.files import read_definitions
from cortex.cli.options import Command
from cortex.cli.schedules.source import parse_schedules
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.argument_check import check_payload
from cortex.domain.errors import InvalidValueError, NotFoundError
from cortex.domain.job import RUN_FLOW
from cortex.domain.schedules.schedule import Schedule
from cortex.flows.spec import FlowSpec
from cortex.postgres.database import Database
from cortex.postgres.session import Session
from cortex.store import codes, specs
from cortex.store.background import schedules as store
from cortex.store.specs import SpecKind
from cortex.view.cells import Row
from cortex.view.resource import Field
from cortex.view.schedules import needs
from cortex.view.verbs import APPLY_SCHEDULES


@click.command(cls=Command)
@click.argument("files", metavar="FILE…", nargs=-1, required=True)
@changes(APPLY_SCHEDULES)
def apply(change: ChangeRequest, *, files: tuple[str, ...]) -> None:
    """Apply schedules from YAML files (`-` for stdin): all of them, or none.

    A changed expression or zone counts from now. Schedules that are no longer in a file stay:
    remove them with `cortex schedules rm`.
    """
    wanted = read_definitions(files, what="schedules", parse=parse_schedules)

    async def work(db: Database, *, by: str, reason: str) -> list[store.ScheduleChange]:
        return await store.apply(db, wanted, by=by, credential=change.credential, reason=reason)

    request = {"schedules": [attrs.asdict(each) for each in wanted]}
    with session(change.options) as call:
        _check_arguments(call, wanted)
        _check_flows(call, wanted)
        rows = change.write(call, work, operation="schedules.apply", request=request)
        listed = [call(store.show, each.name) for each in wanted]
    change.output.listing("schedules", COLUMNS, rows, empty="")
    for row in listed:
        _warn(change.output, row)


def _check_arguments(call: Session, wanted: Sequence[Schedule]) -> None:
    """Raise `InvalidValueError` for arguments that neither this Cortex nor a ready pod takes."""
    registry = registry_of()
    types = {each.type for each in wanted}
    live = {name: call(codes.served, name, is_exact=True).codes for name in types}
    for each in wanted:
        if each.agent is None:
            instant = {} if each.instant_as is None else {each.instant_as: "2026-01-01T00:00:00Z"}
            payload = orjson.dumps({**each.arguments, **instant}).decode()
            with _named(each):
                own = registry.find(each.type)
                check_payload(each.type, payload, own=own, live=live[each.type])


def _check_flows(call: Session, wanted: Sequence[Schedule]) -> None:
    """Raise for a flow that does not exist, and for inputs that do not fit it."""
    for each in wanted:
        if each.type == RUN_FLOW:
            given = each.arguments
            with _named(each):
                version = given.get("version")
                newest, *_ = call(specs.versions, SpecKind.FLOW, given["flow"], version=version)
                FlowSpec.from_json(newest.spec).inputs_of(given.get("inputs") or {})


@contextmanager
def _named(schedule: Schedule) -> Iterator[None]:
    """Name the schedule in an error."""
    try:
        yield
    except (InvalidValueError, NotFoundError) as error:
        message = f"schedule {schedule.name!r}: {error.message}"
        raise type(error)(message, hint=error.hint) from error


def _warn(output: Output, row: store.ScheduleRow) -> None:
    if not row.is_served:
        output.say(f"{row.name}: no living pod runs {needs(row)}; its jobs will wait", "warn")
    if row.paused_at is not None:
        output.say(f"{row.name} is paused: cortex schedules resume {row.name}", "warn")


def _next_at(row: Row) -> datetime | None:
    text = row["next_at"]
    return None if text is None else datetime.fromisoformat(text)


COLUMNS: Final[Sequence[Field[Row]]] = (
    *applied_columns("schedule"),
    Field(name="next_at", title="next", value=_next_at),
)
