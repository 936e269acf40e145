"""The options that every command takes, before or after its verb."""

from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Final

import attrs
import click

META_KEY: Final = "cortex.options"


class Format(StrEnum):
    """How data is written to stdout."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    YAML = "yaml"
    NAME = "name"


@attrs.frozen(kw_only=True)
class Options:
    """What was asked for on the command line; None was not given."""

    dsn: str | None = None
    data: Path | None = None
    debug: bool = False
    output: Format = Format.TABLE
    columns: tuple[str, ...] | None = None
    headers: bool = True
    color: str = "auto"
    no_input: bool = False


def _note(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Keep a given value for the whole command: what stands further right wins."""
    if value is not None and not context.resilient_parsing:
        context.meta.setdefault(META_KEY, {})[parameter.name] = value


def _note_columns(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        names = tuple(name.strip() for name in value.split(",") if name.strip())
        _note(context, parameter, names or None)


def _option(*names: str, **attributes: Any) -> click.Option:
    chosen = {"callback": _note, "expose_value": False, "default": None, **attributes}
    return click.Option(list(names), **chosen)


def common_options() -> list[click.Option]:
    """Make the options that every command has."""
    return [
        _option("--dsn", metavar="URL", help="Address of the database; none: the embedded one."),
        _option(
            "--data",
            type=click.Path(path_type=Path, file_okay=False),
            metavar="DIR",
            help="Folder of the embedded database.",
        ),
        _option(
            "-o",
            "--output",
            type=click.Choice([each.value for each in Format]),
            metavar="FORMAT",
            help="table, json, jsonl, yaml or name.",
        ),
        _option("--json", "output", flag_value="json", help="The same as -o json, errors too."),
        _option(
            "--columns", metavar="A,B", callback=_note_columns, help="Columns to show, in order."
        ),
        _option("--no-headers", "headers", flag_value=False, help="Leave out the table's head."),
        _option(
            "--color",
            type=click.Choice(["auto", "always", "never"]),
            metavar="WHEN",
            help="auto, always or never.",
        ),
        _option("--no-input", is_flag=True, help="Never ask anything."),
        _option("--debug", is_flag=True, help="Show tracebacks."),
    ]


def options_of(context: click.Context) -> Options:
    """Return what was given up to now."""
    given = dict(context.meta.get(META_KEY, {}))
    if "output" in given:
        given["output"] = Format(given["output"])
    return Options(**given)


class Command(click.Command):
    """A command with the common options; its callback gets `Options` by `@click.pass_obj`."""

    common: ClassVar[tuple[click.Option, ...]] = tuple(common_options())

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), *self.common]

    def invoke(self, ctx: click.Context) -> Any:
        ctx.obj = options_of(ctx)
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options, then the common ones apart."""
        own = [p for p in self.get_params(ctx) if p not in self.common]
        write_options(ctx, formatter, title="Options", parameters=own)
        write_options(ctx, formatter, title="On every command", parameters=self.common)


def write_options(
    ctx: click.Context,
    formatter: click.HelpFormatter,
    *,
    title: str,
    parameters: list[click.Parameter] | tuple[click.Option, ...],
) -> None:
    """Write one section of options; nothing when none of them has a help text."""
    records = [record for p in parameters if (record := p.get_help_record(ctx)) is not None]
    if records:
        with formatter.section(title):
            formatter.write_dl(records)
