"""The recorded figures are those of the manual's tables, and each command is a measurement."""

import re
import shlex
from pathlib import Path
from typing import Final

import click

from bench.command import bench
from bench.recorded import Recorded

ROOT: Final = Path(__file__).parent.parent


def recorded() -> Recorded:
    found = Recorded.newest(ROOT)
    assert found is not None
    return found


def cells(page: str) -> dict[str, list[str]]:
    """The figures of a page's table, by the measurement in their row."""
    found: dict[str, list[str]] = {}
    text = (ROOT / page).read_text("utf-8")
    row = re.compile(
        r"^\|[^|]+\| `(?:cortex|python -m) bench ([^`]+)` \| ([^|]+) \|$", re.MULTILINE
    )
    for command, cell in row.findall(text):
        found.setdefault(command, []).append(cell)
    return found


def test_the_hot_path_shows_each_recorded_figure() -> None:
    shown = cells("docs/internals/hot-path.md")
    for (command, name), value in recorded().figures.items():
        numbers = re.findall(r"(?<![\w.])[\d,]*\d(?:\.\d+)?", " ".join(shown[command]))
        assert value in [float(each.replace(",", "")) for each in numbers], (command, name)


def test_the_readme_shows_figures_of_the_hot_path() -> None:
    shown = cells("docs/internals/hot-path.md")
    found = cells("README.md")
    assert found
    for command, (cell,) in found.items():
        assert cell in shown[command], command


def test_each_command_is_a_measurement() -> None:
    here = click.Context(bench)
    for command, _ in recorded().figures:
        name, *arguments = shlex.split(command)
        found = bench.get_command(here, name)
        assert found is not None, command
        found.make_context(name, arguments, parent=here)
