"""`cortex config`: the settings in effect, and where each comes from."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import click

from cortex.cli.options import Command, Group, Options
from cortex.cli.screen.output import Output
from cortex.cli.target import data_dir, settings_from
from cortex.config import FIELDS, PREFIX, misspelled, origins
from cortex.domain.safe import safe
from cortex.postgres.dsn import redact
from cortex.view.cells import Cell
from cortex.view.phrases import NOTHING
from cortex.view.resource import Field

DEFAULT: Final = "default"

config = Group(
    "config",
    help="Show the settings in effect.",
    sections={
        "Inspect": {
            "show": ("cortex.cli.config:show", "List all settings and where they come from.")
        }
    },
)


@attrs.frozen(kw_only=True)
class SettingRow:
    """A setting as this process has it."""

    setting: str
    value: str | int | float | bool | None
    source: str
    meaning: str


@click.command(cls=Command)
@click.pass_obj
def show(options: Options) -> None:
    """List all settings with their values and where each comes from.

    A flag wins over an environment variable, that over cortex.toml in the working directory, and
    that over config.toml in the user's configuration directory. cortex.toml sets only what widens
    nothing. Passwords are not shown.
    """
    settings = settings_from(options)
    sources = origins({"dsn": options.dsn, "data": options.data})
    rows = [
        SettingRow(
            setting=name,
            value=_value(name, data_dir(settings) if name == "data" else getattr(settings, name)),
            source=sources.get(name, DEFAULT),
            meaning=field.metadata["doc"],
        )
        for name, field in FIELDS.items()
    ]
    output = Output(options)
    output.listing("settings", COLUMNS, rows, empty="")
    for variable, close in misspelled().items():
        output.say(f"{variable} is not a setting: did you mean {close}?")


def _value(name: str, value: Any) -> str | int | float | bool | None:
    if isinstance(value, Path):
        return str(value)
    if name == "models":
        return ", ".join(each.name for each in value) or None
    if name == "callback_secret" and value:
        return "(hidden)"
    plain: str | int | float | bool | None = redact(value) if name == "dsn" and value else value
    return plain


def _shown(row: SettingRow) -> Cell:
    if row.value is None:
        return Cell(NOTHING, "dim")
    if isinstance(row.value, bool):
        text = str(row.value).lower()
    else:
        text = f"{row.value:g}" if isinstance(row.value, float) else safe(str(row.value))
    return Cell(text, "dim" if row.source == DEFAULT else "bold")


def _source(row: SettingRow) -> Cell:
    return Cell(safe(row.source), "dim" if row.source == DEFAULT else "")


COLUMNS: Final[Sequence[Field[SettingRow]]] = (
    Field(name="setting"),
    Field(name="value", shown=_shown, least=8),
    Field(name="source", shown=_source, least=12),
    Field(name="variable", value=lambda r: f"{PREFIX}{r.setting.upper()}", is_default=False),
    Field(name="meaning", shown=lambda r: Cell(r.meaning, "dim"), least=20, is_spare=True),
)
