"""`cortex tick`: runs each runner once and exits, for a cluster without pods or beside them.

`dispatch` is a real pod for a bounded time: with a record, a heartbeat and a lock, so that the jobs
of a killed tick are taken over like those of any pod.
"""

import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Final

import click
import trio

import cortex.plain_structlog  # noqa: F401 -- before all that imports structlog

# isort: split
from cortex import crash_points
from cortex.agent.models.providers import endpoints_of
from cortex.agent.tools.abandon import left_count
from cortex.cli.apps import app_options, load_apps
from cortex.cli.options import Command, Options, Span
from cortex.cli.run.code_version import code_option, version_of
from cortex.cli.run.fork_server import start
from cortex.cli.run.job_output import job_output_as_lines
from cortex.cli.run.prices import prices_of
from cortex.cli.run.serve import under_signals
from cortex.cli.screen.logs import configure_logs
from cortex.cli.screen.output import Output
from cortex.cli.target import data_dir, settings_from
from cortex.config import Settings, files
from cortex.domain.classification import leading
from cortex.domain.clock import system_chance
from cortex.domain.errors import UnavailableError, UsageError
from cortex.domain.safe import safe
from cortex.durable.message_handlers import handlers_by_name
from cortex.runtime import deadman
from cortex.runtime.liveness.drain import Shutdown
from cortex.runtime.maintenance.runners import RUNNERS
from cortex.runtime.outbox.outbox import Outbox
from cortex.runtime.pod_parts import standard_parts
from cortex.runtime.pod_ready import own_name
from cortex.runtime.tick import Outcome, RunnerReport, TickReport, of_shard
from cortex.runtime.tick_process import TickProcess
from cortex.store.background.runners import DISPATCH, TICK
from cortex.view.cells import Cell
from cortex.view.resource import Field

NAMES: Final = (*RUNNERS, DISPATCH)
DATABASE_GONE: Final = 8
ON_EVERY_SHARD: Final = frozenset({DISPATCH, Outbox.name})
GLYPHS: Final = {
    Outcome.OK: ("✓", "done"),
    Outcome.FAILED: ("✗", "fail"),
    Outcome.SKIPPED: ("·", "dim"),
    Outcome.NOT_RUN: ("·", "warn"),
}
REMARKS: Final = {
    Outcome.SKIPPED: "another process is doing it",
    Outcome.NOT_RUN: "the tick ended before its turn",
}


class DatabaseGoneError(UnavailableError):
    """The database does not answer: no runner could run."""

    exit_code = DATABASE_GONE


@click.command(cls=Command)
@app_options
@code_option
@click.option("--runners", "names", metavar="A,B", help="Only these runners [all].")
@click.option("--shard", metavar="I/N", help="Run part I, from 0, of N parts of the runners [0/1].")
@click.option("--max", "max_s", type=Span(), metavar="TIME", help="Time of the whole tick [480s].")
@click.option(
    "--runner-max", "runner_max_s", type=Span(), metavar="TIME", help="Time of one runner [60s]."
)
@click.option("--items", type=int, metavar="N", help="Items of one runner [200].")
@click.pass_obj
def tick(
    options: Options,
    *,
    apps: tuple[str, ...],
    code_version: str | None,
    names: str | None,
    shard: str | None,
    max_s: float | None,
    runner_max_s: float | None,
    items: int | None,
) -> None:
    """Run each background runner once, and exit.

    For a cluster without `cortex up`: call it each minute, from cron or a Kubernetes CronJob. Any
    number of ticks and pods may share one database. `dispatch` runs jobs until none is due or its
    time is over, and hands back the rest. Exits with 1 when a runner failed, with 8 when the
    database is gone.
    """
    output = Output(options)
    output.chosen(COLUMNS)
    settings = settings_from(
        options,
        code_version=code_version,
        tick_runners=names,
        tick_shard=shard,
        tick_max_s=max_s,
        tick_runner_max_s=runner_max_s,
        tick_items=items,
        workers=1,
    )
    chosen = chosen_names(settings)
    configure_logs(level=logging.WARNING)  # cron would mail each line, each minute
    crash_points.arm(os.environ.get(crash_points.VARIABLE))
    try:
        # Standard output is for the report, which programs read.
        with job_output_as_lines(), redirect_stdout(sys.stderr):
            done, code = _Ticking(settings, chosen, apps).run()
    except (UnavailableError, ExceptionGroup) as error:
        cause = leading(error)
        if isinstance(cause, UnavailableError):
            raise DatabaseGoneError(cause.message, hint=cause.hint) from error
        raise
    if done is not None:
        output.listing("runners", COLUMNS, done.runners, empty="no runner is in this shard")
    raise click.exceptions.Exit(code)


def chosen_names(settings: Settings) -> tuple[str, ...]:
    """Return the runners of a tick. Raises `UsageError` for an unknown one."""
    words = [word.strip() for word in (settings.tick_runners or "").split(",")]
    asked = [word for word in words if word] or list(NAMES)
    for word in asked:
        if word not in NAMES:
            raise UsageError(
                f"there is no runner {word[:40]!r}", hint=f"runners: {', '.join(NAMES)}"
            )
    index, count = settings.shard
    return tuple(
        name for name in asked if name in ON_EVERY_SHARD or of_shard(name, index=index, count=count)
    )


class _Ticking:
    def __init__(self, settings: Settings, names: Sequence[str], apps: Sequence[str]) -> None:
        modules = load_apps(apps) if {DISPATCH, Outbox.name} & set(names) else ()
        parts = fork_server = None
        if DISPATCH in names:
            parts = standard_parts(
                apps=modules,
                workspaces=data_dir(settings) / "workspaces",
                prices=prices_of(settings),
                hidden=tuple(path.resolve() for path in files()),
                is_unsafe=settings.unsafe_run_command,
                workspace_bytes=settings.workspace_mb << 20,
                endpoints=endpoints_of(settings.models),
                code_version=version_of(modules, settings),
            )
            fork_server = start(settings, parts, apps)
        self._tick = TickProcess(
            settings=settings,
            names=names,
            name=f"{TICK}{own_name()}",
            chance=system_chance(),
            ending=Shutdown(),
            parts=parts,
            handlers=handlers_by_name(*modules),
            fork_server=fork_server,
        )

    def run(self) -> tuple[TickReport | None, int]:
        """Return what was done, None if a signal came before it, and the exit code."""
        try:
            return trio.run(self._run)
        finally:
            if self._tick.fork_server is not None:
                self._tick.fork_server.close()

    async def _run(self) -> tuple[TickReport | None, int]:
        tick = self._tick
        done, signal_seen = await under_signals(tick.settings, tick.run, ending=tick.ending)
        if done is None or tick.ending.abort.is_set():
            code = 128 + (signal_seen or signal.SIGTERM)
        elif done.is_database_gone:
            code = DATABASE_GONE
        else:
            code = 1 if done.has_failed else 0
        if left_count():  # an abandoned call must not hold the process
            deadman.arm(deadman.GOODBYE_S, exit_code=code)
        return done, code


def _outcome(row: RunnerReport) -> Cell:
    glyph, style = GLYPHS[row.outcome]
    return Cell(f"{glyph} {row.outcome.value}", style)


def _remark(row: RunnerReport) -> Cell:
    if row.error is not None:
        return Cell(safe(row.error), "fail")
    return Cell(REMARKS.get(row.outcome, ""), "dim")


COLUMNS: Final[Sequence[Field[RunnerReport]]] = (
    Field(name="runner", value=lambda r: r.name, shown=lambda r: Cell(safe(r.name), "bold")),
    Field(name="outcome", value=lambda r: r.outcome.value, shown=_outcome),
    Field(name="items", shown=lambda r: Cell(f"{r.items:,}"), is_right=True),
    Field(
        name="duration_s",
        title="time",
        shown=lambda r: Cell(f"{r.duration_s:.2f}s"),
        is_right=True,
    ),
    Field(name="error", title="remark", shown=_remark, least=12),
)
