"""Lists of resources, whole or by name, as commands."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import click

from cortex.cli.options import Command, Options, limit_option
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.errors import UsageError
from cortex.view.resource import NamedResource, WholeResource

State = TypeVar("State")


def list_all(resource: WholeResource[Any], *, help: str, verb: str = "ls") -> click.Command:  # noqa: A002 -- click's
    """Return the command that lists a resource whole."""

    @click.command(verb, cls=Command, help=help, columns=resource.fields)
    @click.pass_obj
    def ls(options: Options) -> None:
        output = Output(options)
        with session(options) as call:
            rows = call(resource.page)
        output.resource(resource, rows)

    return ls


def list_by_name(resource: NamedResource[Any], *, help: str) -> click.Command:  # noqa: A002 -- click's
    """Return the command `ls` of a resource, with `--limit` and `--after`."""

    @click.command("ls", cls=Command, help=help, columns=resource.fields)
    @limit_option(resource.page_rows)
    @click.option(
        "--after",
        default="",
        metavar="NAME",
        help="Show the names after this one: the next page.",
    )
    @click.pass_obj
    def ls(options: Options, *, limit: int, after: str) -> None:
        output = Output(options)
        with session(options) as call:
            rows = call(resource.page, after=after, limit=limit)
        output.resource(resource, rows, empty=f"no more {resource.noun}" if after else None)
        if len(rows) == limit and output.terminal.is_tty:
            output.say(f"more: --after {rows[-1].name}", "dim")

    return ls


def named_states(words: Sequence[str], known: Mapping[str, State]) -> tuple[State, ...]:
    """Return the states named by words; commas separate several. Raises `UsageError`."""
    found: dict[State, None] = {}
    for word in (part.strip().lower() for text in words for part in text.split(",")):
        if word not in known:
            close = difflib.get_close_matches(word, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"states: {', '.join(known)}"
            raise UsageError(f"unknown state {word!r}", hint=hint)
        found[known[word]] = None
    return tuple(found)
