"""`cortex preflight`: whether the jobs that are not over would go on under new code."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import attrs
import click

from cortex.cli.apps import app_arguments, load_apps
from cortex.cli.options import Command, Format, Options
from cortex.cli.screen.output import Output
from cortex.cli.target import database, settings_from
from cortex.domain.phrases import short_id
from cortex.durable.dry_run import Problem
from cortex.jobs import builtin_registry
from cortex.postgres.database import Profile
from cortex.postgres.session import open_session
from cortex.runtime.pod_parts import standard_parts
from cortex.runtime.preflight import Group, NewCode, Report
from cortex.runtime.preflight import preflight as replay_all
from cortex.view.cells import Cell
from cortex.view.resource import Field

MISFITS: Final = 9
"""Exit code: jobs that are not over do not fit the code."""
BOUND_S: Final = 60.0
"""Limit of one statement: a batch of records may be large."""


@click.command(cls=Command)
@app_arguments
@click.pass_obj
def preflight(options: Options, *, apps: tuple[str, ...]) -> None:
    """Check that new code fits the jobs that are not over, before you deploy it.

    Replays the record of each such job against the code of APP, and lists, by type and problem,
    the jobs that would wait for code, diverge or fail. Exits with 9 if there are any, else with 0.
    Writes nothing and calls nothing outside: each handler is stopped where its record ends.
    """
    output = Output(options)
    modules = load_apps(apps)
    settings = settings_from(options)
    with TemporaryDirectory(prefix="cortex-preflight-") as folder:
        parts = standard_parts(apps=modules, workspaces=Path(folder) / "workspaces")
    code = NewCode(
        registry=parts.registry,
        builtin=frozenset(builtin_registry().names),
        tools=parts.tools,
        signer=settings.signer,
    )
    with database(settings, must_exist=True) as address:
        profile = Profile(dsn=address, connections_max=1, is_read_only=True, bound_s=BOUND_S)
        with open_session(profile) as call:
            report = replay_all(call, code)
    _show(output, report)
    if report.misfits:
        raise click.exceptions.Exit(MISFITS)


def _show(output: Output, report: Report) -> None:
    if output.format in {Format.JSON, Format.YAML}:
        content = attrs.asdict(report, recurse=False) | {
            "misfits": report.misfits,
            "groups": [_document(each) for each in report.groups],
        }
        output.document(content)
        return
    output.listing("problems", COLUMNS, report.groups, empty="")
    for line in _lines(report):
        output.say(line)


def _document(group: Group) -> dict[str, Any]:
    return attrs.asdict(group)


def _lines(report: Report) -> Iterator[str]:
    jobs = "job that is" if report.jobs == 1 else "jobs that are"
    fit = "all fit" if not report.misfits else f"{report.misfits:,} would not go on"
    yield f"{report.jobs:,} {jobs} not over, {fit} · {report.seconds:.1f} s"
    if report.unsure:
        yield f"{report.unsure:,} cannot be checked to the end of their record"
    if report.is_capped:
        yield "there are more jobs: only the oldest were checked"


def _problem(group: Group) -> Cell:
    return Cell(group.problem.value, "dim" if group.problem is Problem.UNSURE else "fail")


COLUMNS: Final[Sequence[Field[Group]]] = (
    Field(name="type", style="bold"),
    Field(name="problem", shown=_problem),
    Field(name="where"),
    Field(name="count", title="jobs", shown=lambda r: Cell(f"{r.count:,}"), is_right=True),
    Field(name="example", shown=lambda r: Cell(short_id(r.example))),
    Field(name="message", least=40),
)
