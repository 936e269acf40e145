"""Words of other tools do what people mean, or the error names the command that does."""

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from cortex.cli.main import cli, run
from cortex.cli.options import Group
from cortex.cli.synonyms import _MEANINGS, HELP, TOP, VERBS, expanded
from tests.support.command_line import Cortex
from tests.support.life import Life

NOUNS = cli.list_commands(click.Context(cli))


def commands(group: click.Command = cli, path: str = "") -> Iterator[tuple[str, click.Command]]:
    if isinstance(group, click.Group):
        context = click.Context(group)
        for name in group.list_commands(context):
            inner = group.get_command(context, name)
            assert inner is not None
            yield from commands(inner, f"{path} {name}".strip())
    else:
        yield path, group


COMMANDS = dict(commands())


def meant_by(line: str) -> str:
    """The command that a line leads to, and what it is given."""
    words = line.split()
    group: click.Command = cli
    path: list[str] = []
    while isinstance(group, Group) and words:
        context = click.Context(group, info_name="cortex")
        name, inner, words = group.resolve_command(context, words)
        assert name is not None
        assert inner is not None
        path.append(name)
        group = inner
    return " ".join([*path, *words])


@pytest.mark.parametrize(
    "line, meant",
    {
        "jobs list": "jobs ls",
        "job get 9f3a": "jobs show 9f3a",
        "jobs describe 9f3a": "jobs show 9f3a",
        "jobs kill 9f3a": "jobs cancel 9f3a",
        "jobs logs 9f3a": "logs 9f3a",
        "jobs ps": "jobs ls --status running",
        "jobs run digest": "jobs submit --wait digest",
        "get pods": "pods ls",
        "get job 9f3a": "jobs show 9f3a",
        "get pods --data x": "pods ls --data x",
        "describe job 9f3a": "jobs show 9f3a",
        "list approvals --all": "approvals ls --all",
        "logs job 9f3a": "logs 9f3a",
        "kill 9f3a --yes": "jobs cancel 9f3a --yes",
        "log 9f3a": "logs 9f3a",
        "tail 9f3a": "logs --follow 9f3a",
        "ps": "jobs ls --status running",
        "submit digest": "jobs submit digest",
        "status": "doctor",
        "status --json": "doctor --json",
        "status 9f3a": "jobs show 9f3a",
        "pods status": "pods ls",
        "breakers show": "breakers ls",
        "budgets delete x": "budgets rm x",
        "dead get 9f3a": "dead show 9f3a",
        "version": "version",
        "jobs ls": "jobs ls",
    }.items(),
)
def test_other_words_do_the_same(line: str, meant: str) -> None:
    assert meant_by(line) == meant


def test_no_alias_takes_the_place_of_a_command() -> None:
    for path, command in COMMANDS.items():
        assert meant_by(path) == path, command


def test_every_synonym_leads_to_an_existing_command() -> None:
    for meant in [*TOP.values(), *(each for found in _MEANINGS.values() for each in found)]:
        path = meant.partition(" --")[0]
        is_group = path in {*NOUNS, *TOP, HELP}
        assert path.rsplit(" -")[0] in COMMANDS or is_group, path
    verbs = {path.rpartition(" ")[2] for path in COMMANDS}
    assert {meant.split()[0] for found in VERBS.values() for meant in found} <= verbs
    for words in ("ps", "jobs run"):
        path, _, option = meant_by(words).partition(" --")
        names = {name for each in COMMANDS[path].params for name in each.opts}
        assert f"--{option.split()[0]}" in names
    assert expanded(["jobs"], NOUNS) == ["jobs"]


@pytest.mark.parametrize(
    "line, hint",
    {
        "remove": "did you mean 'cortex jobs cancel' or 'cortex dead discard' or ",
        "workers": "did you mean 'cortex pods ls'?",
        "jobs delete 1": "did you mean 'cortex jobs cancel'?",
        "pods stop": "did you mean 'cortex pods drain'?",
        "suspend": "did you mean 'cortex pause' or 'cortex pods drain' or ",
        "jbos ls": "did you mean 'cortex jobs'?",
        "jobs submti": "did you mean 'cortex jobs submit'?",
        "jobs kil 1": "did you mean 'cortex jobs kill'?",
        "dead dlq": "did you mean 'cortex dead ls'?",
    }.items(),
)
def test_an_unknown_word_leads_to_a_command(
    line: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(line.split()) == 2
    assert f"hint: {hint}" in capsys.readouterr().err


@pytest.mark.parametrize("path", ["", "jobs", "jobs ls", "approvals approve"])
def test_h_is_help(path: str) -> None:
    long, short = (CliRunner().invoke(cli, [*path.split(), each]) for each in ("--help", "-h"))
    assert long.output == short.output != ""
    assert "-h, --help" in short.output


def test_help_names_aliases_apart() -> None:
    text = CliRunner().invoke(cli, ["jobs", "-h"]).output
    commands_, _, aliases = text.partition("Aliases:")
    assert "kill" not in commands_
    assert "the same as cancel" in aliases


def test_version_command_equals_the_option(cortex: Cortex) -> None:
    assert cortex("version").out == cortex("--version").out
    assert cortex("version", "--json").document["version"] in cortex("version").out


@pytest.mark.parametrize("path", [p for p in COMMANDS if p != "tui"])
def test_every_acting_command_takes_yes_and_a_reason(path: str) -> None:
    names = {name for each in COMMANDS[path].params for name in each.opts}
    if "--as" in names:
        assert "--yes" in names, path
        assert "--reason" in names, path


def test_a_job_that_has_ended_has_no_heartbeat(cortex: Cortex, life: Life) -> None:
    pod = life.pod()
    jobs = [life.job(), life.failed("no")]
    life.finish(pod, life.claim(pod))
    for job in jobs:
        shown = cortex("describe", str(job), "--json").document["job"]
        assert shown["finished_at"] is not None
        assert shown["heartbeat_at"] is None
