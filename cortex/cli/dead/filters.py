"""The options that select dead letters: short forms of terms of the filter for jobs."""

import difflib
import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from cortex.cli.options import Span, Text
from cortex.domain.errors import UsageError
from cortex.domain.failure import FailureClass
from cortex.domain.job_filter import JobFilter, parse_fingerprint, with_terms
from cortex.postgres.session import Session
from cortex.store import dead_letters, specs
from cortex.store.specs import SpecKind

NAME: Final = Text(200)
SUGGESTED_MAX: Final = 8


class Fingerprint(click.ParamType[str]):
    """The beginning of a fingerprint."""

    name = "fingerprint"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return parse_fingerprint(str(value))
        except UsageError as error:
            self.fail(error.message, param, ctx)


_OPTIONS: Final = (
    click.option(
        "--fingerprint",
        "fingerprint_",
        type=Fingerprint(),
        metavar="F",
        help="Only this error, as in `dead ls`.",
    ),
    click.option("--type", "type_", type=NAME, metavar="TYPE", help="Only this job type."),
    click.option("--code", "code_", type=NAME, metavar="CODE", help="Only errors of this code."),
    click.option(
        "--class",
        "class_",
        type=click.Choice([each.value for each in FailureClass], case_sensitive=False),
        metavar="CLASS",
        help="Only errors of this class, such as PERMANENT.",
    ),
    click.option("--agent", "agent_", type=NAME, metavar="NAME", help="Only this agent's jobs."),
    click.option("--tenant", "tenant_", type=NAME, metavar="NAME", help="Only this tenant's jobs."),
    click.option(
        "--since",
        "since_s",
        type=Span(),
        metavar="TIME",
        help="Only failures of the last 2h, 3d …",
    ),
)


_TERMS: Final = ("fingerprint", "type", "code", "class", "agent", "tenant")


def filtered(command: Callable[..., None]) -> Callable[..., None]:
    """Add options that are short forms of terms; the command gets them with its `filters`."""

    @functools.wraps(command)
    def packed(*args: Any, filters: tuple[str, ...], since_s: float | None, **given: Any) -> None:
        values = {key: given.pop(f"{key}_") for key in _TERMS}
        chosen = {key: value for key, value in values.items() if value is not None}
        terms = [with_terms(" ".join(filters), chosen)] if chosen else [*filters]
        if since_s is not None:
            terms.append(f"ended<{since_s:.0f}s")
        command(*args, filters=tuple(terms), **given)

    for option in reversed(_OPTIONS):
        packed = option(packed)
    return packed


def nothing_matches(call: Session, which: JobFilter) -> str:
    """Report that a filter matches nothing; suggests similar values for unknown ones.

    Raises `NotFoundError` for an agent that does not exist.
    """
    for agent in _plain(which.agents):
        call(specs.versions, SpecKind.AGENT, agent)
    known = call(dead_letters.known)
    kinds = (("type", which.types), ("code", which.codes), ("tenant", which.tenants))
    for kind, given in ((kind, value) for kind, values in kinds for value in _plain(values)):
        if given in known[kind].names:
            continue
        if known[kind].is_all:
            return f"no dead letter has {kind} {given!r}{_suggestion(given, known[kind].names)}"
        if close := _close(given, known[kind].names):
            return f"no dead letter matches: {kind} {given!r}{close}"
    return "no dead letter matches"


def _plain(values: Sequence[str]) -> list[str]:
    """Return the values that are no patterns."""
    return [value for value in values if "*" not in value]


def _suggestion(given: str, known: list[str]) -> str:
    if close := _close(given, known):
        return close
    more = ", …" if len(known) > SUGGESTED_MAX else ""
    return f"; there are {', '.join(known[:SUGGESTED_MAX])}{more}" if known else ""


def _close(given: str, known: list[str]) -> str:
    close = difflib.get_close_matches(given, known, n=1)
    return f": did you mean {close[0]!r}?" if close else ""
