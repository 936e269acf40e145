"""The first words that people type: each runs the right command, or the error names it."""

import contextlib
import io
import re
from typing import Final

import click

from cortex.cli.failures import failure_of
from cortex.cli.main import cli
from cortex.cli.synonyms import default_verb

ID: Final = "1f0c5a20-2188-71a9-a83c-ac7be6880bc4"
FIRST_WORDS: Final = {
    "help": "help",
    "help jobs": "help",
    "help jobs ls": "help",
    "jobs help": "help",
    "-h": "help",
    "-V": "version",
    "--version": "version",
    "version": "version",
    "docs": "help",
    "ls": "jobs ls",
    "ls --failed": "--status fail",
    "ls --running": "--status run",
    "list": "jobs ls",
    "ps": "jobs ls",
    "jobs": "jobs ls",
    "jobs -n 5": "jobs ls",
    "jobs --json": "jobs ls",
    f"logs {ID} -f -n 5": "logs",
    "logs -n 5": "logs",
    f"tail {ID}": "logs",
    "tasks": "jobs ls",
    "running": "ps",
    "failed": "dead ls",
    "errors": "dead ls",
    "job 9f3a1c": "jobs show",
    "jobs 9f3a1c": "jobs show",
    ID: "jobs show",
    "9f3a1c": "jobs show",
    f"show {ID}": "jobs show",
    f"get {ID}": "jobs show",
    f"inspect {ID}": "jobs show",
    f"describe {ID}": "jobs show",
    f"events {ID}": "jobs show",
    f"history {ID}": "jobs show",
    f"trace {ID}": "jobs show",
    f"result {ID}": "jobs show",
    f"wait {ID}": "jobs wait",
    f"cancel {ID}": "jobs cancel",
    f"kill {ID}": "jobs cancel",
    "stop": "pods drain",
    "down": "pods drain",
    f"retry {ID}": "jobs retry",
    f"rerun {ID}": "jobs retry",
    "approve": "approvals ls",
    "approvals": "approvals ls",
    "deny": "approvals ls",
    "pending": "approvals ls",
    "dead": "dead ls",
    "dlq": "dead ls",
    "up app.py": "up",
    "run app.py": "run",
    "dev": "dev",
    "dev app.py": "dev",
    "init shop": "init",
    "new shop": "init",
    "create shop": "init",
    "run app.py count_words k=v": "run",
    "up --port 8080": "--http HOST:PORT",
    "start": "up",
    "start app.py": "up",
    "serve": "up",
    "worker": "up",
    "submit t k=v": "jobs submit",
    "submit t -p k=v": "--arg",
    "enqueue t": "jobs submit",
    "trigger nightly": "schedules trigger",
    "queue": "queues ls",
    "queues": "queues ls",
    "schedule": "schedules ls",
    "cron": "schedules ls",
    "status": "doctor",
    "top": "tui",
    "ui": "tui",
    "tui": "tui",
    "web": "up --http HOST:PORT",
    "dashboard": "tui",
    "stats": "health",
    "metrics": "health",
    "config": "config show",
    "settings": "config show",
    "env": "config show",
    "doctor": "doctor",
    "check": "doctor",
    "db": "migrate",
    "migrate": "migrate",
    "shell": "tui",
    "workers": "pods ls",
    "pods": "pods ls",
    "agents": "agents ls",
    "tools": "agents show",
    "types": "jobs types",
    "usage": "costs",
    "cost": "costs",
    "logs -f": "logs",
    "logs 9f3a1c -f": "logs",
    "tail": "logs",
    "tail 9f3a1c": "logs",
    "jobs logs 9f3a1c": "logs",
    "submit": "jobs types",
    "agent clerk": "agents show clerk",
    "crons": "schedules ls",
    "deploy": "up",
    "search digest": "jobs ls",
    "jbos": "jobs ls",
}


def led_to(line: str) -> str:
    """Parse a line as `cortex` does; return the command that it runs, or the error's hint."""
    context: click.Context = click.Context(cli)
    path: list[str] = []
    shown = io.StringIO()
    try:
        with contextlib.redirect_stdout(shown):
            context = cli.make_context("cortex", line.split())
            while isinstance(context.command, click.Group):
                words = [*context._protected_args, *context.args]
                name, command, rest = context.command.resolve_command(context, words)
                assert name is not None
                assert command is not None
                path.append(name)
                context = command.make_context(name, rest, parent=context)
    except click.exceptions.Exit:
        return "help" if "Usage:" in shown.getvalue() else "version"
    except click.exceptions.NoArgsIsHelpError as usage:
        return usage.format_message()
    except click.UsageError as error:
        failure = failure_of(error)
        assert failure.exit_code == 2
        return failure.hint or ""
    return " ".join(path)


def leads(line: str, meant: str) -> bool:
    """Whether a line runs a command, or its error names it or its group in one line."""
    found = led_to(line)
    if found == meant:
        return True
    group = meant.rpartition(" ")[0] or meant
    return re.search(rf"(?<![\w-])({meant}|cortex {group})(?![\w-])", found) is not None


def test_first_words_lead_to_the_right_command() -> None:
    lost = {line: led_to(line) for line, meant in FIRST_WORDS.items() if not leads(line, meant)}
    assert not lost
    assert len(FIRST_WORDS) >= 66


def test_a_bare_group_runs_only_what_reads() -> None:
    for name in cli.list_commands(click.Context(cli)):
        group = cli.get_command(click.Context(cli), name)
        if isinstance(group, click.Group):
            verb = default_verb(group.list_commands(click.Context(group)))
            assert verb in {"ls", "show", "status", None}
            command = None if verb is None else group.get_command(click.Context(group), verb)
            assert command is None or not any(each.required for each in command.params)
