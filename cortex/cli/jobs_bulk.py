"""Acts on all jobs that fit a filter: chosen, shown, agreed to, done, counted."""

from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Final, TypeVar

import attrs
import click

from cortex.cli.asking import confirm_count
from cortex.cli.idempotent import mutate
from cortex.cli.options import Options
from cortex.cli.output import Output
from cortex.cli.target import session
from cortex.domain.errors import UsageError
from cortex.domain.job_choice import WhyNot
from cortex.domain.job_filter import JobFilter, parse_filter
from cortex.store.database import Database
from cortex.store.job_choice import Choice, Done

LIMIT_DEFAULT: Final = 1000
LIMIT_MAX: Final = 10_000

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


@attrs.frozen(kw_only=True)
class Bulk:
    """What is asked of many jobs at once."""

    filter: str
    which: JobFilter
    limit: int
    is_dry_run: bool
    is_agreed: bool


@attrs.frozen(kw_only=True)
class Act:
    """What a command does to the jobs that it has chosen."""

    operation: str
    """Such as `jobs.cancel`."""
    verb: str
    would: str
    """Such as `would be cancelled`."""
    done: str
    choose: Callable[..., Coroutine[Any, Any, Choice]]
    work: Callable[..., Coroutine[Any, Any, Done]]


def bulk_options(command: Decorated) -> Decorated:
    """Add what a command takes that acts on jobs by a filter."""
    for option in reversed(
        (
            click.option(
                "--filter",
                "filters",
                multiple=True,
                metavar="FILTER",
                help="All jobs that fit, as `jobs ls` has it: 'status:retry agent:a-* age>10m'.",
            ),
            click.option("--dry-run", is_flag=True, help="Only say how many would be changed."),
            click.option(
                "--limit",
                type=click.IntRange(1, LIMIT_MAX),
                default=LIMIT_DEFAULT,
                show_default=True,
                metavar="N",
                help="Of those that fit so many at most, the newest.",
            ),
        )
    ):
        command = option(command)
    return command


def bulk_of(
    job_names: tuple[str, ...],
    filters: tuple[str, ...],
    *,
    limit: int,
    dry_run: bool,
    is_agreed: bool,
) -> Bulk | None:
    """Return what is asked of many jobs; None: of those that are named. Raises `UsageError`."""
    text = " ".join(filters).strip()
    if job_names and text:
        raise UsageError("give ids or a filter, not both")
    if job_names:
        if dry_run:
            raise UsageError("--dry-run goes with --filter", hint="look at them: cortex jobs show")
        return None
    if not text:
        raise UsageError("which jobs?", hint="an id, or --filter 'status:retry': cortex jobs ls")
    return Bulk(
        filter=text,
        which=parse_filter(text),
        limit=limit,
        is_dry_run=dry_run,
        is_agreed=is_agreed,
    )


def act_on_all(
    options: Options, asked: Bulk, act: Act, *, by: str, reason: str, key: str | None
) -> None:
    """Choose, ask, act and tell how many."""
    if options.columns is not None:
        raise UsageError("numbers of jobs have no columns", hint="all of it: --json")
    output = Output(options)
    with session(options) as call:
        choice: Choice = call(act.choose, asked.which, limit=asked.limit)
        count = len(choice.job_ids)
        if asked.is_dry_run:
            document = _document(count, 0, _named(choice.refused), choice, is_dry_run=True)
            output.record(document, name=str(count), page=lambda: _told(document, act))
            return
        if count:
            jobs = "1 job" if count == 1 else f"{count:,} jobs"
            question = f"{act.verb} {jobs}"
            confirm_count(question, count, options, is_agreed=asked.is_agreed)

        async def work(db: Database) -> dict[str, Any]:
            done = await act.work(db, choice.job_ids, by=by, reason=reason)
            return {
                "changed": done.changed,
                "asked": done.asked,
                "refused": _named(done.refused),
            }

        done = mutate(
            call,
            work,
            output=output,
            key=key,
            operation=act.operation,
            request={"filter": asked.filter, "limit": asked.limit, "by": by, "reason": reason},
        )
    document = _document(done["changed"], done["asked"], done["refused"], choice, is_dry_run=False)
    output.record(document, name=str(done["changed"]), page=lambda: _told(document, act))


def _named(refused: Mapping[WhyNot, int]) -> dict[str, int]:
    return {why_not.name.lower(): number for why_not, number in refused.items()}


def _document(
    count: int, asked_count: int, refused: Mapping[str, int], choice: Choice, *, is_dry_run: bool
) -> dict[str, Any]:
    return {
        "is_dry_run": is_dry_run,
        "count": count,
        "asked_count": asked_count,
        "refused": dict(refused),
        "has_more": choice.has_more,
    }


def _told(document: Mapping[str, Any], act: Act) -> Iterator[str]:
    """Say it in one line: `1,204 cancelled, 3 had ended meanwhile`."""
    is_dry_run = document["is_dry_run"]
    count, asked = document["count"], document["asked_count"]
    head = f"dry run: {count:,} {act.would}" if is_dry_run else f"{count - asked:,} {act.done}"
    parts = [head]
    if asked:
        parts.append(f"{asked:,} asked to end: their pods have to stop them")
    later = "" if is_dry_run else " meanwhile"
    for name, number in document["refused"].items():
        parts.append(f"{number:,} {WhyNot[name.upper()].value}{later}")
    yield ", ".join(parts)
    if document["has_more"]:
        yield "more may fit: raise --limit, or run it again"
