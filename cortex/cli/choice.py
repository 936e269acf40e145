"""The jobs that a command changes: named by id, or all that match a filter.

Dead letters are failed jobs, chosen by the same filter. Those that match are counted, shown and
confirmed; then a job of type `bulk` changes them: see `cortex.cli.bulk`.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import click

from cortex.cli.asking import confirm_count
from cortex.cli.bulk import BulkWords, carry_out, preview_of, show
from cortex.cli.changes import ChangeRequest
from cortex.cli.completing import known
from cortex.cli.filtering import complete_filter
from cortex.cli.options import limit_option, stacked
from cortex.cli.pace import Rate
from cortex.cli.target import session
from cortex.domain.bulk import LIMIT_DEFAULT, LIMIT_MAX, RATE_DEFAULT, BulkRequest, BulkVerb
from cortex.domain.errors import UsageError
from cortex.domain.job_filter import HEIRS, JobFilter, of_letters, parse_filter
from cortex.postgres.session import Session
from cortex.store.job_choice import JobChoice, choose


@attrs.frozen(kw_only=True)
class JobsRequest:
    """The jobs or dead letters that a person asks to change."""

    names: tuple[str, ...]
    filter: str
    """As typed, with the terms of the options; "" if they are named."""
    which: JobFilter
    limit: int
    rate: float | None
    """Per second; None: no limit."""
    is_dry_run: bool

    @property
    def wish(self) -> dict[str, Any]:
        """The values that make two requests the same, without rate, person and reason."""
        return {"names": sorted(self.names), "filter": self.filter, "limit": self.limit}


@attrs.frozen(kw_only=True)
class BulkCommand:
    """The change that a command makes to the chosen jobs."""

    verb: BulkVerb
    words: BulkWords


@attrs.frozen(kw_only=True)
class Chosen:
    """The kind of thing that the commands with these options change."""

    noun: str
    order: str
    """Which of them are taken if more match than the limit."""
    hint: str
    """How to name some."""
    example: str
    is_of_letters: bool = False

    def check(self, request: JobsRequest) -> None:
        """Raise `UsageError` for ids and a filter, for neither, and for options of a filter."""
        if request.names and request.filter:
            raise UsageError("give ids or a filter, not both")
        if not request.names and not request.filter:
            raise UsageError(f"no {self.noun} given", hint=self.hint)
        if request.names and not self.is_of_letters:
            if request.is_dry_run:
                hint = "to look at them: cortex jobs show"
                raise UsageError("--dry-run goes with --filter", hint=hint)
            if request.rate is not None:
                raise UsageError("--rate goes with --filter")


JOBS = Chosen(
    noun="jobs",
    order="the newest",
    hint="an id, or --filter 'status:retry': cortex jobs ls",
    example="'status:retry agent:a-* age>10m'",
)
LETTERS = Chosen(
    noun="dead letters",
    order="the oldest",
    hint="an id, or a filter such as --fingerprint F: cortex dead ls",
    example="'agent:a-* ended<2h'",
    is_of_letters=True,
)


def chosen(what: Chosen) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options that choose what to change; the command gets them as `request`.

    Goes around `changes`, whose reason it checks.

    Raises what `Chosen.check` and `parse_filter` raise, and `UsageError` for no reason where the
    dead letters' is required.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def packed(
            *,
            names: tuple[str, ...],
            filters: tuple[str, ...],
            limit: int,
            rate: float | None,
            is_dry_run: bool,
            reason: str,
            **given: Any,
        ) -> None:
            text = " ".join(filters).strip()
            request = JobsRequest(
                names=names,
                filter=text,
                which=parse_filter(text),
                limit=limit,
                rate=rate,
                is_dry_run=is_dry_run,
            )
            what.check(request)
            if what.is_of_letters:
                if not (reason or is_dry_run):
                    what_for = "it is stored with each dead letter"
                    raise UsageError(f"give the reason: {what_for}", hint="--reason TEXT")
                if not names:
                    text = of_letters(text)
                    request = attrs.evolve(request, filter=text, which=parse_filter(text))
            command(request=request, reason=reason, **given)

        return stacked(*_options(what))(packed)

    return decorate


def _options(what: Chosen) -> Sequence[Callable[[Any], Any]]:
    default = RATE_DEFAULT if what.is_of_letters else None
    return (
        click.argument(
            "names",
            metavar="[ID…]",
            nargs=-1,
            shell_complete=known("dead letter" if what.is_of_letters else "job"),
        ),
        click.option(
            "--filter",
            "filters",
            multiple=True,
            metavar="FILTER",
            shell_complete=complete_filter,
            help=f"All matching {what.noun}, as in `jobs ls`: {what.example}.",
        ),
        click.option("--dry-run", "is_dry_run", is_flag=True, help="Show what would change."),
        limit_option(
            LIMIT_DEFAULT,
            f"At most N of the matching {what.noun}, {what.order}.",
            most=LIMIT_MAX,
            is_list=False,
        ),
        click.option(
            "--rate",
            type=Rate(),
            default=default,
            show_default=default is not None,
            metavar="N",
            help=f"At most N {what.noun} per second." + ("" if default else "  [no limit]"),
        ),
    )


def act_on_all(change: ChangeRequest, request: JobsRequest, act: BulkCommand) -> None:
    """Choose jobs, ask, have a job change them, and report the counts."""
    change.options.refuse_columns("counts of jobs have no columns")
    with session(change.options) as call:
        choice: JobChoice = call(choose, act.verb, request.which, limit=request.limit)
        if request.is_dry_run:
            show(preview_of(choice), change.output, act.words)
            return
        if count := len(choice.job_ids):
            jobs = "1 job" if count == 1 else f"{count:,} jobs"
            pace = f", {request.rate:g} per second" if request.rate is not None else ""
            question = f"{act.verb} {jobs}{_failed(choice)}{pace}"
            confirm_count(question, count, change.options, is_agreed=change.is_agreed)
        have_done(call, change, request, choice, act)


def have_done(
    call: Session,
    change: ChangeRequest,
    request: JobsRequest,
    choice: JobChoice,
    act: BulkCommand,
    *,
    empty: str = "",
    **how: Any,
) -> None:
    """Submit the job that changes the chosen jobs, follow it, and report what it did.

    The jobs that were counted are changed and no others: see `BulkRequest.counted`, which takes
    `how`. `empty`: shown to people if there are none.
    """
    wanted = None
    if choice.job_ids:
        wanted = BulkRequest.counted(
            act.verb,
            choice.job_ids,
            jobs=request.filter,
            at=choice.at,
            reason=change.reason,
            rate_per_s=request.rate,
            **how,
        )
    asked = request.wish | {"rate": request.rate, "by": change.by, "reason": change.reason} | how
    report = carry_out(
        call, wanted, change.output, act.words, by=change.identity, key=change.key, asked=asked
    )
    if report is not None:
        has_more = report.has_more or choice.has_more
        show(attrs.evolve(report, has_more=has_more), change.output, act.words)
        return
    report = attrs.evolve(preview_of(choice), is_dry_run=False)
    if empty and change.output.is_for_people:
        change.output.say(empty, "dim")
    else:
        show(report, change.output, act.words)


def _failed(choice: JobChoice) -> str:
    """Describe what happens to the failed jobs among the chosen; "" if there are none."""
    if not choice.failed:
        return ""
    of = "" if choice.failed == len(choice.job_ids) else f"{choice.failed:,} failed: "
    return f" ({of}{HEIRS})"
