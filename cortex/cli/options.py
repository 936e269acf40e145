"""The options of every command, accepted before or after its verb."""

import difflib
import gc
import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeVar

import click

from cortex.cli.synonyms import (
    HELP,
    aliases_of,
    default_verb,
    is_id,
    option_meant,
    suggestions,
    verb_of,
)
from cortex.domain.errors import UsageError

if TYPE_CHECKING:
    from cortex.view.resource import Field  # commands without a table start without it

META_KEY: Final = "cortex.options"

Row = TypeVar("Row")
Decorated = TypeVar("Decorated", bound=Callable[..., Any])

Sections = Mapping[str, Mapping[str, tuple[str, str]]]


class Format(StrEnum):
    """The format of data on stdout."""

    TABLE = "table"
    WIDE = "wide"
    """A table of all fields that hold one value, never cut."""
    JSON = "json"
    JSONL = "jsonl"
    YAML = "yaml"
    NAME = "name"

    @property
    def is_for_people(self) -> bool:
        """Whether data is shown as a table or a page, not as a document."""
        return self in {Format.TABLE, Format.WIDE}


class Options(NamedTuple):
    """The common options as given; None: not given."""

    dsn: str | None = None
    data: Path | None = None
    debug: bool = False
    output: Format = Format.TABLE
    columns: tuple[str, ...] | None = None
    headers: bool = True
    color: str = "auto"
    no_input: bool = False
    tenant: str | None = None

    def refuse_columns(self, message: str) -> None:
        """Raise `UsageError` with the message if columns were chosen: the command has no table."""
        if self.columns is not None:
            raise UsageError(message, hint="for everything use --json")


def _note(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Keep a given value for the whole command; the rightmost one wins.

    While a shell completes, only the database is kept: other values may be half typed.
    """
    if value is not None and (not context.resilient_parsing or parameter.name in {"dsn", "data"}):
        context.meta.setdefault(META_KEY, {})[parameter.name] = value


def _note_columns(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        names = tuple(name.strip() for name in value.split(",") if name.strip())
        _note(context, parameter, names or None)


def _note_json(context: click.Context, _: click.Parameter, value: bool | None) -> None:  # noqa: FBT001 -- click's
    if value:
        context.meta.setdefault(META_KEY, {})["output"] = Format.JSON.value


def _columns_of(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the names that may complete a list of columns."""
    command = context.command
    columns = command.columns if isinstance(command, Command) else ()
    return completions([each.name for each in columns], incomplete)


def completions(known: Iterable[str], incomplete: str) -> list[str]:
    """Return the lists of words, with commas, that a text may become by one of these."""
    *chosen, word = incomplete.split(",")
    words = [each for each in dict.fromkeys(known) if each not in chosen]
    return [",".join((*chosen, each)) for each in words if each.startswith(word)]


def _option(*names: str, **attributes: Any) -> click.Option:
    chosen = {"callback": _note, "expose_value": False, "default": None, **attributes}
    return click.Option(list(names), **chosen)


def common_options() -> list[click.Option]:
    return [
        _option("--dsn", metavar="URL", help="Address of the database [the embedded one]."),
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
            help="table, wide, json, jsonl, yaml or name.",
        ),
        _option(
            "--json",
            is_flag=True,
            callback=_note_json,
            help="Same as -o json; applies to errors too.",
        ),
        _option(
            "--columns",
            metavar="A,B",
            callback=_note_columns,
            shell_complete=_columns_of,
            help="Columns to show, in order.",
        ),
        _option("--no-headers", "headers", flag_value=False, help="Omit the header of the table."),
        _option(
            "--color",
            type=click.Choice(["auto", "always", "never"]),
            metavar="WHEN",
            help="auto, always or never.",
        ),
        _option("--no-input", is_flag=True, help="Never prompt."),
        _option("--tenant", metavar="NAME", help="Keep to what is this tenant's [all]."),
        _option("--debug", is_flag=True, help="Show tracebacks."),
    ]


def options_of(context: click.Context) -> Options:
    """Return the options given so far."""
    given = dict(context.meta.get(META_KEY, {}))
    if "output" in given:
        given["output"] = Format(given["output"])
    return Options(**given)


def columns_named(names: Sequence[str], columns: "Sequence[Field[Row]]") -> "list[Field[Row]]":
    """Return columns by their names or titles. Raises `UsageError` for an unknown one."""
    by_name = {name: each for each in columns for name in (each.title, each.name) if name}
    for name in names:
        if name not in by_name:
            close = difflib.get_close_matches(name, by_name, n=1)
            raise UsageError(
                f"unknown column {name!r}",
                hint=f"did you mean {close[0]!r}?"
                if close
                else f"columns: {', '.join(each.name for each in columns)}",
            )
    return [by_name[name] for name in names]


LIMIT_MAX: Final = 1000
ROW_NUMBER: Final = click.IntRange(1, 2**63 - 1)
"""A number that a list shows, from which the next page goes on."""


PATH_CHARS_MAX: Final = 4096


def limit_option(
    default: int,
    help: str | None = None,  # noqa: A002 -- click's
    *,
    most: int = LIMIT_MAX,
    is_list: bool = True,
) -> Callable[[Decorated], Decorated]:
    """Return the `--limit` option; a list also takes `-n`, which elsewhere may mean a dry run."""
    return click.option(
        *(("-n", "--limit") if is_list else ("--limit",)),
        type=click.IntRange(1, most),
        default=default,
        show_default=True,
        metavar="N",
        help=help,
    )


def stacked(
    *options: Callable[[Callable[..., Any]], Callable[..., Any]],
) -> Callable[[Decorated], Decorated]:
    """Return a decorator that adds options in this order."""

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


class Text(click.ParamType[str]):
    """Text that the database can store, with a maximum length."""

    name = "text"

    def __init__(self, length_max: int) -> None:
        self.length_max = length_max

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse text that is empty, too long or not UTF-8."""
        text = str(value)
        if not text.strip():
            self.fail("it is empty", param, ctx)
        if len(text) > self.length_max:
            self.fail(f"{len(text)} characters are more than {self.length_max}", param, ctx)
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail("it is not UTF-8", param, ctx)
        return text


class TopicPattern(click.ParamType[str]):
    """A pattern of topics that some topic can match."""

    name = "pattern"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002
        """Refuse a pattern of the runtime's topics that none of them has."""
        from cortex.domain.messages.topic import check_pattern

        source = "topic" if param is None else param.opts[0]
        return check_pattern(value, source=source)


class Seconds(click.ParamType[float]):
    """A finite number of seconds from 0 to a limit."""

    name = "seconds"

    def __init__(self, limit: float) -> None:
        self._limit = limit

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        seconds = click.FLOAT.convert(value, param, ctx)
        if not 0 <= seconds <= self._limit:  # also false for NaN
            self.fail(f"{value} is not from 0 to {self._limit:,.0f} seconds", param, ctx)
        return seconds


class Instant(click.ParamType[datetime]):
    """An instant with its time zone, in the form of RFC 3339."""

    name = "instant"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        try:
            instant = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{str(value)[:80]!r} is not a time such as 2026-01-31T12:00:00Z", param, ctx)
        if instant.tzinfo is None:
            self.fail(f"{value} has no time zone: such as {instant.isoformat()}Z", param, ctx)
        from cortex.domain.option_check import can_show  # not for `--help`

        if not can_show(instant):
            self.fail(f"{value} is not an instant of the years 1 to 9999", param, ctx)
        return instant


class Span(click.ParamType[float]):
    """A duration in seconds: 90s, 15m, 2h, 3d; with `above_zero` not 0s."""

    name = "span"

    def __init__(self, *, above_zero: bool = False) -> None:
        self._above_zero = above_zero

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        from cortex.domain.phrases import parse_span

        try:
            seconds = parse_span(str(value))
        except UsageError as error:
            self.fail(error.message, param, ctx)
        if self._above_zero and not seconds:
            self.fail(f"{value!r} is not above 0", param, ctx)
        return seconds


HELP_NAMES: Final = ("-h", "--help")


class Command(click.Command):
    """A command with the common options; its callback gets `Options` by `@click.pass_obj`."""

    common: ClassVar[tuple[click.Option, ...]] = tuple(common_options())

    def __init__(
        self, *arguments: Any, columns: "Sequence[Field[Any]]" = (), **attributes: Any
    ) -> None:
        super().__init__(*arguments, **attributes)
        self.columns = columns
        """The fields of its table: shells complete their names, others are refused."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        own = super().get_params(ctx)
        taken = {name for each in own for name in each.opts}
        return [*own, *(each for each in self.common if taken.isdisjoint(each.opts))]

    def get_help_option_names(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(HELP_NAMES)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*(p for each in self.params for p in each.get_usage_pieces(ctx)), "[OPTIONS]"]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise _led(error, self.get_params(ctx)) from None

    def invoke(self, ctx: click.Context) -> Any:
        ctx.obj = options = options_of(ctx)
        if options.columns is not None and self.columns:
            columns_named(options.columns, self.columns)  # a typo fails before anything is read
        if not gc.isenabled():  # `main` disabled it for the imports, which are done
            gc.freeze()
            gc.enable()
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write examples, the command's own options, then the common ones separately."""
        from cortex.cli.examples import EXAMPLES

        lines = EXAMPLES.get(ctx.command_path.partition(" ")[2], ())
        if lines:
            with formatter.section("Examples"):
                for line in lines:
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
        params = self.get_params(ctx)
        own = [p for p in params if p not in self.common]
        write_section(formatter, "Options", _records(ctx, own))
        common = [p for p in params if p in self.common]
        write_section(formatter, "On every command", _records(ctx, common))


class Unknown(click.UsageError):
    """An unknown command or option; `possibilities` are suggestions."""

    def __init__(
        self, name: str, possibilities: Sequence[str], ctx: click.Context | None, kind: str
    ) -> None:
        super().__init__(f"no such {kind} {name!r}", ctx)
        self.possibilities = possibilities


def _led(error: click.NoSuchOption, parameters: Iterable[click.Parameter]) -> click.UsageError:
    """Return an error that suggests the option that one of another tool means, if there is one."""
    meant = option_meant(error.option_name, {name for each in parameters for name in each.opts})
    return error if meant is None else Unknown(error.option_name, [meant], error.ctx, "option")


class Group(click.Group):
    """A group whose commands are imported only when they are called.

    `sections`: title to the commands below it, each with its place (`module:attribute`) and one
    line of help, so that `--help` needs no import either.
    """

    def __init__(
        self,
        name: str,
        *,
        help: str,  # noqa: A002 -- click's
        sections: Sections,
    ) -> None:
        self._places = {
            command: place for rows in sections.values() for command, (place, _) in rows.items()
        }
        self._default = default_verb(self._places)
        super().__init__(
            name,
            help=help,
            no_args_is_help=self._default is None,
            # `jobs -n 5`: the option is one of `jobs ls`.
            context_settings={"ignore_unknown_options": self._default is not None},
        )
        self._sections = sections

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), *Command.common]

    def get_help_option_names(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(HELP_NAMES)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command, or return None for an unknown name."""
        if cmd_name not in self._places:
            return None
        module, _, attribute = self._places[cmd_name].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{self._places[cmd_name]} is not a command")
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            rest = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise _led(error, self.get_params(ctx)) from None
        if self._default is not None and not ctx.resilient_parsing:
            words = [*ctx._protected_args, *rest]  # noqa: SLF001 -- where click keeps the verb
            if not words or words[0].startswith("-"):
                ctx._protected_args, ctx.args = [self._default], words  # noqa: SLF001
        return ctx.args

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] == HELP and not ctx.resilient_parsing:
            if not args[1:]:
                click.echo(ctx.get_help(), color=ctx.color)
                ctx.exit()
            args = [*args[1:], HELP_NAMES[-1]]
        args = self.meant(args)
        if args[0] not in self._places and not ctx.resilient_parsing:
            path = ctx.command_path.partition(" ")[2]
            found = suggestions(args[0], self._places, group=path)
            raise Unknown(args[0], [f"{ctx.command_path} {each}" for each in found], ctx, "command")
        return super().resolve_command(ctx, args)

    def meant(self, args: list[str]) -> list[str]:
        """Return the command's words for an alias, or for an id without a verb."""
        if is_id(args[0]) and "show" in self._places:
            return ["show", *args]
        return [*(verb_of(args[0], self._places) or args[:1]), *args[1:]]

    def aliases(self) -> dict[str, str]:
        """Return the aliases of this group's commands."""
        return aliases_of(self._places)

    @property
    def default(self) -> str | None:
        """The verb that runs when none is given."""
        return self._default

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return ["[COMMAND]" if self._default else "COMMAND", "[OPTIONS]"]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands first: readers look for them."""
        for title, rows in self._sections.items():
            write_section(formatter, title, [(name, line) for name, (_, line) in rows.items()])
        default = {"no command": self._default} if self._default else {}
        write_section(formatter, "Aliases", _joined(default | self.aliases()))
        write_section(formatter, "Options", _records(ctx, super().get_params(ctx)))
        write_section(formatter, "On every command", _records(ctx, Command.common))


def _joined(aliases: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return one line per command with all its aliases."""
    words: dict[str, list[str]] = {}
    for alias, meant in aliases.items():
        words.setdefault(meant, []).append(alias)
    return [(", ".join(each), f"the same as {meant}") for meant, each in words.items()]


def write_section(
    formatter: click.HelpFormatter, title: str, records: Sequence[tuple[str, str]]
) -> None:
    """Write a titled list of definitions; nothing when it is empty."""
    if records:
        with formatter.section(title):
            formatter.write_dl(records)


def _records(ctx: click.Context, parameters: Sequence[click.Parameter]) -> list[tuple[str, str]]:
    options = [each for each in parameters if isinstance(each, click.Option)]
    return [record for each in options if (record := each.get_help_record(ctx)) is not None]
