"""Each command has examples, which parse and which its help shows."""

import shlex

import click
import pytest

from cortex.cli.examples import EXAMPLES
from cortex.cli.main import cli, run
from tests.support.reference_pages import _leaves

COMMANDS = {path.removeprefix("cortex "): command for path, command in _leaves(cli, "cortex")}


def command_of(line: str) -> str:
    """Parse a line as `cortex` does; return the path of its command."""
    words = shlex.split(line, comments=True)
    words = words[: words.index(">")] if ">" in words else words
    assert words.pop(0) == "cortex"
    context = cli.make_context("cortex", words)
    while isinstance(context.command, click.Group):
        given = [*context._protected_args, *context.args]
        name, command, rest = context.command.resolve_command(context, given)
        assert name is not None
        assert command is not None
        context = command.make_context(name, rest, parent=context)
    return context.command_path.removeprefix("cortex ")


def test_every_command_has_examples_that_parse() -> None:
    assert EXAMPLES.keys() == COMMANDS.keys()
    for path, lines in EXAMPLES.items():
        assert 1 <= len(lines) <= 2, path
        for line in lines:
            assert command_of(line) == path, line
            assert len(line) < 100, line


def test_help_shows_the_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["jobs", "cancel", "--help"]) == 0
    shown = capsys.readouterr().out
    for line in EXAMPLES["jobs cancel"]:
        assert f"\n  {line}\n" in shown
    assert shown.index("Examples:") < shown.index("Options:")
