"""`cortex`: the command groups, and what surrounds every command."""

import atexit
import gc
import io
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import click

import cortex
from cortex.cli.failures import EXIT_CODES, READER_GONE, is_reader_gone, report
from cortex.cli.options import Group, write_section
from cortex.cli.synonyms import HELP, TOP, expanded
from cortex.domain import interpreter
from cortex.domain.errors import UsageError

SUMMARY = """Run AI agents that survive crashes, deploys and outages.

Every job is a record in Postgres; any pod can continue it from its last step."""


COMPLETE_VARIABLE = "_CORTEX_COMPLETE"


class Root(Group):
    """The root command; its help ends with the exit codes."""

    def meant(self, args: list[str]) -> list[str]:
        return expanded(args, self.list_commands(click.Context(self)))

    def aliases(self) -> dict[str, str]:
        return {**TOP, "ID": "jobs show ID", HELP: "--help"}

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        write_section(formatter, "Exit codes", [(str(c), what) for c, what in EXIT_CODES.items()])


cli = Root(
    "cortex",
    help=SUMMARY,
    sections={
        "Run": {
            "demo": ("cortex.cli.run.demo:demo", "See it work: agents, a crash and a recovery."),
            "init": ("cortex.cli.project.init:init", "Write a project that runs."),
            "up": ("cortex.cli.run.up:up", "Run a pod, which takes jobs until you stop it."),
            "dev": ("cortex.cli.run.dev:dev", "Run a pod that restarts when the code changes."),
            "run": ("cortex.cli.run.run_job:run", "Run one job to its end in this terminal."),
            "tick": ("cortex.cli.run.tick:tick", "Run each background runner once, and exit."),
            "preflight": (
                "cortex.cli.run.preflight:preflight",
                "Check that new code fits the jobs that are not over.",
            ),
            "migrate": ("cortex.cli.migrate:migrate", "Bring the database's schema up to date."),
            "scripted-model": (
                "cortex.cli.run.scripted_model:scripted_model",
                "Serve a scripted model, to try agents without a key.",
            ),
            "bench": ("cortex.bench.command:bench", "Measure this machine."),
        },
        "Inspect and operate": {
            "tui": ("cortex.cli.tui:tui", "Watch and control jobs in the terminal UI."),
            "jobs": (
                "cortex.cli.jobs:jobs",
                "Submit, list, show, watch, wait for and cancel jobs.",
            ),
            "approvals": (
                "cortex.cli.approvals:approvals",
                "Decide the approval requests of jobs.",
            ),
            "why": ("cortex.cli.why:why", "Explain why a job is not running."),
            "logs": ("cortex.cli.logs:logs", "Show what jobs logged and printed."),
            "agents": ("cortex.cli.specs:agents", "Apply, list and show agents."),
            "flows": ("cortex.cli.specs:flows", "Apply, check, draw, list and show flows."),
            "pods": ("cortex.cli.pods:pods", "List pods and drain them."),
            "runners": ("cortex.cli.runners:runners", "List background work and its health."),
            "queues": ("cortex.cli.queues:queues", "List worker queues, and order them."),
            "pauses": ("cortex.cli.pauses:pauses", "List what is paused, by whom and why."),
            "pause": ("cortex.cli.pauses:pause", "Keep jobs from starting."),
            "resume": ("cortex.cli.pauses:resume", "Let paused jobs start again."),
            "patches": (
                "cortex.cli.patches:patches",
                "List which jobs need which branch of changed code.",
            ),
            "schedules": (
                "cortex.cli.schedules:schedules",
                "Submit jobs by the clock: apply, list, pause.",
            ),
            "health": (
                "cortex.cli.health:health",
                "Show queue, failures and background work.",
            ),
            "doctor": (
                "cortex.cli.doctor:doctor",
                "Find problems here, and show how to fix them.",
            ),
            "mcp": ("cortex.cli.mcp:mcp", "Let an assistant operate Cortex."),
            "costs": ("cortex.cli.costs:costs", "Show the cost of model calls."),
            "facts": (
                "cortex.cli.facts:facts",
                "List failures, costs and changes.",
            ),
            "effects": (
                "cortex.cli.effects:effects",
                "List effects, and resolve unknown outcomes.",
            ),
            "freeze": ("cortex.cli.freeze:freeze", "Stop all new effects at once."),
            "quotas": ("cortex.cli.quotas:quotas", "List, set and remove quotas of effects."),
            "limits": ("cortex.cli.job_limits:limits", "List limits of job types."),
            "budgets": ("cortex.cli.budgets:budgets", "List, set, raise and remove budgets."),
            "breakers": ("cortex.cli.breakers:breakers", "List, open and close circuit breakers."),
            "dead": ("cortex.cli.dead:dead", "List, explain, retry and discard failed jobs."),
            "outbox": (
                "cortex.cli.outbox:outbox",
                "List, retry and discard messages to others.",
            ),
            "subscriptions": (
                "cortex.cli.subscriptions:subscriptions",
                "Choose who gets which messages.",
            ),
            "retention": (
                "cortex.cli.retention:retention",
                "Delete old jobs and facts; off until you set it.",
            ),
            "people": ("cortex.cli.people:people", "Say who acts, and by which credentials."),
            "tokens": ("cortex.cli.tokens:tokens", "Manage access to the HTTP API."),
            "licences": (
                "cortex.cli.licences:licences",
                "List what this installation consists of.",
            ),
            "config": ("cortex.cli.config:config", "Show settings and where they come from."),
            "completion": (
                "cortex.cli.completion:completion",
                "Print the completion script of a shell.",
            ),
            "version": ("cortex.cli.version:version", "Show the version."),
        },
    },
)
cli.params.append(
    click.Option(
        ["-V", "--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=lambda context, _, value: _print_version(context, asked=value),
        help="Show the version.",
    )
)


def _print_version(context: click.Context, *, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        click.echo(f"cortex {cortex.__version__}")
        context.exit()


def main() -> NoReturn:
    """Run the command line and exit the process."""
    gc.disable()  # imports make no garbage, but many objects: `Command.invoke` enables it again
    if os.getpid() == 1:
        from cortex.cli.run.first_process import go_on_as_child

        go_on_as_child()
    arguments = sys.argv[1:]
    _open_what_is_closed()
    _let_stderr_fail()
    if any(word.startswith("--dsn") for word in arguments):
        from cortex.config import DSN_IS_FLAG
        from cortex.postgres.dsn import hide_from_process_list

        hide_from_process_list(arguments, mark=DSN_IS_FLAG)
    interpreter.is_command = True
    exit_code = run(arguments)
    gc.freeze()  # Python would otherwise search all objects for garbage before it ends
    if threading.active_count() > 1:
        _end_beside_threads(exit_code)
    sys.exit(exit_code)


def _end_beside_threads(exit_code: int) -> NoReturn:
    """End the process as `sys.exit` does, but leave the interpreter as it is.

    A thread that was left behind in C code, such as a pod's preparation of TLS, would crash while
    Python and OpenSSL are taken down under it.
    """
    atexit._run_exitfuncs()  # noqa: SLF001 -- all that Python has for this
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(exit_code)


def _open_what_is_closed() -> None:
    """Replace closed standard streams: without them Python's would be None."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nothing = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 -- for good
            setattr(sys, name, nothing)


class _Unfailing(io.FileIO):
    """Accepts every write, and drops what it cannot write."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def _let_stderr_fail() -> None:
    """Keep a stderr that cannot be written (a full disk) from changing the exit code.

    There is no other place to report it.
    """
    own = sys.__stderr__
    if own is not None and sys.stderr is own:  # not a stream opened in place of a closed one
        raw = _Unfailing(own.fileno(), "w", closefd=False)
        sys.stderr = sys.__stderr__ = io.TextIOWrapper(  # type: ignore[misc]
            io.BufferedWriter(raw), encoding=own.encoding, errors=own.errors, line_buffering=True
        )


def run(arguments: Sequence[str], *, root: Group = cli, name: str = "cortex") -> int:
    """Run one command of a group and return its exit code."""
    try:
        _complete_for_shell()
        _refuse_unstorable(arguments)
        with root.make_context(name, list(arguments)) as context:
            root.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as ended:
        return _flushed(ended.exit_code)
    except click.exceptions.NoArgsIsHelpError as asked:
        click.echo(asked.format_message(), err=True)
        return asked.exit_code
    except (Exception, KeyboardInterrupt, BaseExceptionGroup) as error:  # noqa: BLE001 -- the outermost place
        return _reader_gone() if is_reader_gone(error) else report(error, arguments)
    return 0


def _refuse_unstorable(arguments: Sequence[str]) -> None:
    """Raise `UsageError` for an argument that is not text: not UTF-8, or with NUL.

    Checked for all arguments: any of them may end in the record, in a log or on a screen.
    """
    for word in arguments:
        try:
            word.encode()
        except UnicodeEncodeError:
            is_text = False
        else:
            is_text = "\0" not in word
        if not is_text:
            raise UsageError(f"{word!a} is not UTF-8 text", hint="this applies to paths as well")


def _flushed(exit_code: int) -> int:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return _reader_gone()
    return exit_code


def _reader_gone() -> int:
    # Python flushes stdout once more at exit, and would report an error.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return READER_GONE


def _complete_for_shell() -> None:
    instruction = os.environ.get(COMPLETE_VARIABLE)
    if instruction:
        from click.shell_completion import shell_complete

        raise click.exceptions.Exit(
            shell_complete(cli, {}, "cortex", COMPLETE_VARIABLE, instruction)
        )
