"""Filters for dead letters: the options, and their meaning."""

import difflib
import functools
import re
from collections.abc import Callable
from typing import Any, Final

import click

from cortex.cli.options import Span, Text
from cortex.domain.dead_letter import DeadLetterFilter, DeadLetterState
from cortex.domain.failure import FailureClass
from cortex.postgres.session import Session
from cortex.store import dead_letters, specs
from cortex.store.specs import SpecKind

NAME: Final = Text(200)
SUGGESTED_MAX: Final = 8


class Fingerprint(click.ParamType[str]):
    """The beginning of a fingerprint."""

    name = "fingerprint"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value).strip().lower()
        if not re.fullmatch(r"[0-9a-f]{4,12}", text):
            self.fail(f"{value!r} is not a fingerprint or its first 4 digits", param, ctx)
        return text


_OPTIONS: Final = (
    click.option(
        "--fingerprint", type=Fingerprint(), metavar="F", help="Only this error, as in `dead ls`."
    ),
    click.option("--type", "type_", type=NAME, metavar="TYPE", help="Only this job type."),
    click.option("--code", type=NAME, metavar="CODE", help="Only errors of this code."),
    click.option(
        "--class",
        "error_class",
        type=click.Choice([each.value for each in FailureClass], case_sensitive=False),
        metavar="CLASS",
        help="Only errors of this class, such as PERMANENT.",
    ),
    click.option("--agent", type=NAME, metavar="NAME", help="Only this agent's jobs."),
    click.option("--tenant", type=NAME, metavar="NAME", help="Only this tenant's jobs."),
    click.option(
        "--since",
        "since_s",
        type=Span(),
        metavar="TIME",
        help="Only failures of the last 2h, 3d …",
    ),
)


def filtered(command: Callable[..., None]) -> Callable[..., None]:
    """Add the filter options; the command gets them as `which`."""

    @functools.wraps(command)
    def packed(*args: Any, type_: str | None, **given: Any) -> None:
        names = ("fingerprint", "code", "error_class", "agent", "tenant", "since_s")
        which = DeadLetterFilter(type=type_, **{name: given.pop(name) for name in names})
        command(*args, which=which, **given)

    for option in reversed(_OPTIONS):
        option(packed)
    return packed


def nothing_matches(call: Session, which: DeadLetterFilter) -> str:
    """Report that a filter matches nothing; suggests similar values for unknown ones.

    Raises `NotFoundError` for an agent that does not exist.
    """
    if which.agent is not None:
        call(specs.versions, SpecKind.AGENT, which.agent)
    known = call(dead_letters.known)
    for kind, given in (("type", which.type), ("code", which.code), ("tenant", which.tenant)):
        if given is None or given in known[kind].names:
            continue
        if known[kind].is_all:
            return f"no dead letter has {kind} {given!r}{_suggestion(given, known[kind].names)}"
        if close := _close(given, known[kind].names):
            return f"no dead letter matches: {kind} {given!r}{close}"
    return "no dead letter matches"


def _suggestion(given: str, known: list[str]) -> str:
    if close := _close(given, known):
        return close
    more = ", …" if len(known) > SUGGESTED_MAX else ""
    return f"; there are {', '.join(known[:SUGGESTED_MAX])}{more}" if known else ""


def _close(given: str, known: list[str]) -> str:
    close = difflib.get_close_matches(given, known, n=1)
    return f": did you mean {close[0]!r}?" if close else ""


def states_of(words: tuple[str, ...]) -> tuple[DeadLetterState, ...]:
    """Return the states named by words; by default those that wait for a decision."""
    if "all" in words:
        return tuple(DeadLetterState)
    named = tuple(state for state in DeadLetterState if state.value.lower() in words)
    return named or DeadLetterFilter().states
