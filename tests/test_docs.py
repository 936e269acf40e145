"""The README says what the code does: settings, states, error codes, commands."""

import re
from collections.abc import Iterator
from pathlib import Path

import attrs
import click
import pytest

from cortex.cli.main import cli
from cortex.config import Settings
from cortex.domain import errors
from cortex.domain.job import TRANSITIONS

README = Path(__file__).parent.parent / "README.md"


def rows(title: str) -> list[list[str]]:
    """The cells of the table in one section, without its head."""
    section = README.read_text("utf-8").split(f"\n## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip().strip("`") for cell in line.strip("|").split(" | ")] for line in lines]


def shown(value: object) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def test_settings_are_those_of_the_code() -> None:
    fields = attrs.fields(Settings)
    expected = [[f.name, shown(f.default), f.metadata["doc"]] for f in fields]
    assert rows("Settings") == expected


def test_states_are_those_of_the_code() -> None:
    expected = [
        [state.value, ", ".join(to.value for to in TRANSITIONS if to in TRANSITIONS[state]) or "none"]
        for state in TRANSITIONS
    ]
    assert rows("States") == expected


def error_classes(base: type[errors.CortexError]) -> Iterator[type[errors.CortexError]]:
    yield base
    for child in base.__subclasses__():
        yield from error_classes(child)


def test_error_codes_are_those_of_the_code() -> None:
    expected = {
        each.code: [each.code, str(each.exit_code), (each.__doc__ or "").strip().splitlines()[0]]
        for each in error_classes(errors.CortexError)
        if each.__module__ == errors.__name__
    }
    assert rows("Errors") == list(expected.values())


def commands(group: click.Group, path: str = "cortex") -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group) and name != "bench":
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}"


def test_commands_are_those_of_the_code() -> None:
    assert sorted(row[0] for row in rows("Commands")) == sorted(commands(cli))


def test_figures_name_commands_that_exist() -> None:
    bench = cli.get_command(click.Context(cli), "bench")
    assert isinstance(bench, click.Group)
    named = set(re.findall(r"cortex bench (\w+)", README.read_text("utf-8")))
    assert named == set(bench.list_commands(click.Context(bench)))


@pytest.mark.parametrize("marker", ["<!--"])
def test_nothing_is_left_to_fill_in(marker: str) -> None:
    assert marker not in README.read_text("utf-8")
