"""Schedules as a person writes them in YAML.

name: nightly-digest
cron: "0 3 * * *"
tz: Europe/Berlin
job: digest
arguments: {urls: [https://example.com]}
backfill: 6h
overlap: queue
jitter: 60
instant_as: day
---
name: the-next-schedule-in-the-same-file
agent: researcher
"""

from typing import Any

import attrs

from cortex.agent.yaml_source import Document, parse_definitions
from cortex.domain.errors import UsageError
from cortex.domain.schedules.schedule import Overlap, Schedule, ScheduleError
from cortex.durable.structuring import MisfitError, structure


@attrs.frozen(kw_only=True)
class ScheduleSource:
    """One document of a file; `Schedule.make` checks its values."""

    name: str
    cron: str
    tz: str = "UTC"
    job: str | None = None
    agent: str | None = None
    arguments: dict[str, Any] = attrs.field(factory=dict)
    tenant: str | None = None
    backfill: str | int = 0
    overlap: str = Overlap.SKIP
    jitter: str | int = 0
    instant_as: str | None = None


def parse_schedules(text: str, source: str) -> list[Schedule]:
    """Return the schedules of a YAML file, at least one; `source` is its name in errors.

    Raises `UsageError` with file, line, field and value for the first problem.
    """
    fields = "name, cron and job"
    return parse_definitions(text, source, parse=_parse, noun="schedule", fields=fields)


def _parse(document: Document) -> Schedule:
    try:
        given = structure(document.value, ScheduleSource)
    except MisfitError as misfit:
        problem = document.first(misfit.problems)
        raise document.refused((problem,), noun="schedule") from misfit
    fields = attrs.asdict(given)
    try:
        return Schedule.make(type=fields.pop("job"), **fields)
    except ScheduleError as error:
        line = document.line((error.field,))
        message = f"{document.source}:{line}: {error.field} {error.message}"
        raise UsageError(message, hint=error.hint) from error
