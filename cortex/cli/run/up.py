"""`cortex up`: runs one pod until SIGTERM, SIGINT, or the end of its terminal.

With `--workers` the pod is several processes: see `workers`.
"""

import json
import os
import socket
import sys
import time
from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any
from uuid import UUID

import attrs
import click
import trio

from cortex.plain_structlog import structlog  # before all that imports it

# isort: split
from cortex import crash_points
from cortex.agent.models.providers import endpoints_of
from cortex.agent.tools.abandon import left_count
from cortex.cli.apps import app_arguments, load_apps
from cortex.cli.options import Command, Options
from cortex.cli.run.code_version import code_option, version_of
from cortex.cli.run.fork_server import start
from cortex.cli.run.job_output import job_output_as_lines
from cortex.cli.run.lifeline import Lifeline
from cortex.cli.run.prices import prices_of
from cortex.cli.run.serve import Place, serve
from cortex.cli.run.service_manager import ServiceManager
from cortex.cli.screen.logs import configure_logs
from cortex.cli.target import data_dir, settings_from
from cortex.config import Settings, files
from cortex.domain.errors import UsageError
from cortex.domain.interpreter import start_again
from cortex.runtime import deadman
from cortex.runtime.liveness.drain import Shutdown
from cortex.runtime.pod_parts import PodParts, standard_parts
from cortex.runtime.pod_ready import Intake, Ready

if TYPE_CHECKING:
    from cortex.cli.run.worker_link import WorkerLink


@click.command(cls=Command)
@app_arguments
@code_option
@click.option("--slots", type=int, metavar="N", help="Number of jobs run at once [1000].")
@click.option("--workers", type=int, metavar="N", help="Processes that share the slots [1].")
@click.option("--http", metavar="HOST:PORT", help="Serve the HTTP API; port 0 picks a free one.")
@click.option(
    "--http-proxies",
    metavar="NETWORKS",
    help="Proxies whose X-Forwarded-For and -Proto count: 127.0.0.1,10.1.0.0/16.",
)
@click.option("--tui", "has_screen", is_flag=True, help="Show the terminal UI; log to a file.")
@click.pass_obj
def up(
    options: Options,
    *,
    apps: tuple[str, ...],
    code_version: str | None,
    slots: int | None,
    workers: int | None,
    http: str | None,
    http_proxies: str | None,
    has_screen: bool,
) -> None:
    """Run a pod, which takes jobs until you stop it.

    SIGTERM, Ctrl-C or closing the terminal drains it: jobs continue elsewhere after their next
    step, or after 40 seconds. A second signal hands everything back at once. Several pods may share
    one database.
    """
    began = time.perf_counter()
    settings = settings_from(
        options,
        code_version=code_version,
        slots=slots,
        workers=workers,
        http=http,
        http_proxies=http_proxies,
    )
    lifeline = None
    if has_screen:
        from cortex.cli.run.pod_beside import PodBeside, fork_pod
        from cortex.cli.run.up_screen import up_on_screen
        from cortex.cli.tui import refuse_what_is_no_terminal

        refuse_what_is_no_terminal("cortex up --tui", hint="leave out --tui")
        half = fork_pod()
        if isinstance(half, PodBeside):
            raise click.exceptions.Exit(up_on_screen(half, options, settings))
        lifeline = half
    configure_logs()
    with job_output_as_lines():
        exit_code = _run(options, settings, apps, began=began, lifeline=lifeline)
    raise click.exceptions.Exit(exit_code)


def _run(
    options: Options,
    settings: Settings,
    apps: tuple[str, ...],
    *,
    began: float,
    lifeline: Lifeline | None,
) -> int:
    manager = ServiceManager() if lifeline else ServiceManager.of_environment()
    if manager.http is not None:
        settings = _with_socket(settings, manager.http)
    parts = _parts(settings, load_apps(apps))
    shutdown = Shutdown()
    announce = partial(
        _announce, options, settings, began=began, lifeline=lifeline, manager=manager
    )
    link: WorkerLink | None = None
    if settings.workers > 1:
        from cortex.cli.run.workers import run_workers

        half = run_workers(settings, announce=announce, lifeline=lifeline, manager=manager)
        if isinstance(half, int):
            return half
        link, settings, lifeline = half, half.settings, None
    if link is None or link.is_first:
        crash_points.arm(os.environ.get(crash_points.VARIABLE))
    fork_server = start(settings, parts, apps)

    def report(ready: Ready) -> None:
        fields = {"pod": ready.pod, "http": ready.http, "job_types": ready.job_types}
        if link is None:
            announce(fields)
        else:
            ready.nursery.start_soon(link.run, fields, ready.metrics, ready.checks)

    async def run() -> int:
        if link is None:
            trio.lowlevel.spawn_system_task(manager.follow, shutdown.stop)
        exit_code = await serve(
            settings,
            lambda: parts,
            on_ready=report,
            shutdown=shutdown,
            fork_server=fork_server,
            place=Place(http=manager.http) if link is None else link.place,
        )
        return _ended(exit_code)

    try:
        exit_code = trio.run(run) if lifeline is None else trio.run(lifeline.around, run, shutdown)
    finally:
        fork_server.close()
    # Others replace a worker, and a pod that has a service manager or a screen.
    if shutdown.starts_again and link is None and lifeline is None and not manager.is_there:
        _start_again()
    return exit_code


def run_pod_beside(
    settings: Settings,
    modules: Sequence[ModuleType],
    apps: tuple[str, ...],
    lifeline: Lifeline,
    *,
    only: UUID | None,
    listening: socket.socket | None,
) -> int:
    """Run a pod for the process at the other end of the lifeline, which hears when it is ready."""
    parts = _parts(settings, modules)
    crash_points.arm(os.environ.get(crash_points.VARIABLE))
    fork_server = start(settings, parts, apps)
    shutdown = Shutdown()

    async def run() -> int:
        exit_code = await serve(
            settings,
            lambda: parts,
            on_ready=lambda ready: lifeline.report({"pod": ready.pod, "http": ready.http}),
            shutdown=shutdown,
            fork_server=fork_server,
            place=Place(http=listening),
            intake=Intake(only=only),
        )
        return _ended(exit_code)

    try:
        return trio.run(lifeline.around, run, shutdown)
    finally:
        fork_server.close()


def _parts(settings: Settings, modules: Sequence[ModuleType]) -> PodParts:
    return standard_parts(
        apps=modules,
        workspaces=data_dir(settings) / "workspaces",
        prices=prices_of(settings),
        hidden=tuple(path.resolve() for path in files()),
        is_unsafe=settings.unsafe_run_command,
        workspace_bytes=settings.workspace_mb << 20,
        endpoints=endpoints_of(settings.models),
        code_version=version_of(modules, settings),
    )


def _ended(exit_code: int) -> int:
    """Let an abandoned call not hold the process of a pod that has ended."""
    deadman.arm(deadman.GOODBYE_S, exit_code=exit_code, message=_left_behind())
    return exit_code


def _start_again() -> None:
    hint = "its threads were left behind by time-outs"
    structlog.get_logger().warning("pod starts again", hint=hint)
    start_again()


def _announce(
    options: Options,
    settings: Settings,
    ready: dict[str, Any],
    *,
    began: float,
    lifeline: Lifeline | None,
    manager: ServiceManager,
) -> None:
    """Report that the pod takes jobs."""
    ready_s = time.perf_counter() - began
    pod, http = ready["pod"], ready["http"]
    manager.ready(f"pod {pod} takes jobs")
    fields = {"schema_version": 1, "pod": pod, "ready_s": ready_s, "http": http}
    if lifeline is not None:
        lifeline.report(fields)
    elif options.output.is_for_people:
        workers = f"{settings.workers} workers, " if settings.workers > 1 else ""
        what = f"{workers}{settings.slots} slots, jobs {', '.join(ready['job_types'])}"
        lines = [f"pod {pod} is ready after {ready_s:.2f} s: {what}"]
        if http is not None:
            lines.append(f"the API is at {http}")
        lines.append("Ctrl-C drains it; a second Ctrl-C hands its jobs back at once")
        _say("\n".join(lines))  # in one write: a reader of the first line can rely on the last
    else:
        _say(json.dumps(fields))


def _with_socket(settings: Settings, given: socket.socket) -> Settings:
    """Have the pod serve its API on the service manager's socket."""
    host, number, *_ = given.getsockname()
    address = f"[{host}]:{number}" if ":" in host else f"{host}:{number}"
    if settings.http not in {None, address}:
        raise UsageError(
            f"setting http is {settings.http}, but the service manager passed a socket that "
            f"listens on {address}",
            hint="leave the setting out, or stop the socket unit",
        )
    return attrs.evolve(settings, http=address)


def _say(text: str) -> None:
    """Write to stdout. A ready pod does not end because nobody reads its output."""
    try:
        click.echo(text, file=getattr(sys.stdout, "raw", None))
    except OSError as error:
        structlog.get_logger().warning("stdout cannot be written", error=error.strerror)
        # Python would flush the rest again at exit, and change the exit code.
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)


def _left_behind() -> str | None:
    """Describe the calls that may hold the process although its pod has ended normally."""
    count = left_count()
    if not count:
        return None
    if count == 1:
        return "1 tool that ignored its cancellation was left behind"
    return f"{count} tools that ignored their cancellation were left behind"
