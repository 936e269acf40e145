"""Verbs: the options of each command are those of its verb."""

from collections.abc import Iterator

import click

from cortex.cli.main import cli
from cortex.view.verbs import VERBS


def changing(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Each command with a reason, by its words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from changing(command, (*path, name))
        elif command is not None and any(each.name == "reason" for each in command.params):
            yield " ".join((*path, name)), command


def test_each_command_that_takes_a_reason_has_its_options_from_a_verb() -> None:
    commands = dict(changing(cli))
    assert commands.keys() == VERBS.keys()
    for words, verb in VERBS.items():
        options = {each.name: each for each in commands[words].params}
        reason = options["reason"]
        assert isinstance(reason, click.Option)
        assert reason.help == verb.reason, words
        assert bool({"dry_run", "is_dry_run"} & options.keys()) == verb.has_dry_run, words
        assert ("idempotency_key" in options) == verb.has_key, words
