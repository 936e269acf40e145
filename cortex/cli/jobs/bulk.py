"""Bulk operations on all jobs that match a filter: choose, show, confirm, have a job do it."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import attrs
import click

from cortex.cli.asking import confirm_count
from cortex.cli.bulk import BulkWords, carry_out, preview_of, show
from cortex.cli.changes import ChangeRequest
from cortex.cli.pace import Rate
from cortex.cli.target import session
from cortex.domain.bulk import LIMIT_DEFAULT, LIMIT_MAX, BulkRequest, BulkVerb
from cortex.domain.errors import UsageError
from cortex.domain.job_filter import HEIRS, JobFilter, parse_filter
from cortex.store.job_choice import JobChoice

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


@attrs.frozen(kw_only=True)
class JobsRequest:
    """A request to change many jobs at once."""

    filter: str
    which: JobFilter
    limit: int
    rate: float | None
    """Jobs per second; None: no limit."""
    is_dry_run: bool


@attrs.frozen(kw_only=True)
class BulkCommand:
    """The change that a command makes to the chosen jobs."""

    verb: BulkVerb
    words: BulkWords
    choose: Callable[..., Coroutine[Any, Any, JobChoice]]


def bulk_options(command: Decorated) -> Decorated:
    """Add the options of a command that changes jobs by a filter."""
    for option in reversed(
        (
            click.option(
                "--filter",
                "filters",
                multiple=True,
                metavar="FILTER",
                help="All matching jobs, as in `jobs ls`: 'status:retry agent:a-* age>10m'.",
            ),
            click.option("--dry-run", is_flag=True, help="Show how many jobs would change."),
            click.option(
                "--limit",
                type=click.IntRange(1, LIMIT_MAX),
                default=LIMIT_DEFAULT,
                show_default=True,
                metavar="N",
                help="At most N of the matching jobs, the newest.",
            ),
            click.option(
                "--rate",
                type=Rate(),
                metavar="N",
                help="At most N jobs per second.  [no limit]",
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
    rate: float | None,
    dry_run: bool,
) -> JobsRequest | None:
    """Return the bulk request; None if jobs are named by id. Raises `UsageError`."""
    text = " ".join(filters).strip()
    if job_names and text:
        raise UsageError("give ids or a filter, not both")
    if job_names:
        if dry_run:
            raise UsageError(
                "--dry-run goes with --filter", hint="to look at them: cortex jobs show"
            )
        if rate is not None:
            raise UsageError("--rate goes with --filter")
        return None
    if not text:
        raise UsageError("no jobs given", hint="an id, or --filter 'status:retry': cortex jobs ls")
    return JobsRequest(
        filter=text,
        which=parse_filter(text),
        limit=limit,
        rate=rate,
        is_dry_run=dry_run,
    )


def act_on_all(change: ChangeRequest, request: JobsRequest, act: BulkCommand) -> None:
    """Choose, ask, have a job do it, and report the counts.

    The jobs that were counted are changed and no others: see `BulkRequest.counted`.
    """
    change.options.refuse_columns("counts of jobs have no columns")
    output = change.output
    with session(change.options) as call:
        choice: JobChoice = call(act.choose, request.which, limit=request.limit)
        count = len(choice.job_ids)
        if request.is_dry_run:
            show(preview_of(choice), output, act.words)
            return
        wanted = None
        if count:
            jobs = "1 job" if count == 1 else f"{count:,} jobs"
            pace = f", {request.rate:g} per second" if request.rate is not None else ""
            question = f"{act.verb} {jobs}{_failed(choice)}{pace}"
            confirm_count(question, count, change.options, is_agreed=change.is_agreed)
            wanted = BulkRequest.counted(
                act.verb,
                choice.job_ids,
                jobs=request.filter,
                at=choice.at,
                reason=change.reason,
                rate_per_s=request.rate,
            )
        asked = {
            "filter": request.filter,
            "limit": request.limit,
            "rate": request.rate,
            "by": change.by,
            "reason": change.reason,
        }
        report = carry_out(
            call, wanted, output, act.words, by=change.by, key=change.key, asked=asked
        )
    if report is None:
        report = attrs.evolve(preview_of(choice), is_dry_run=False)
    elif choice.has_more:
        report = attrs.evolve(report, has_more=True)
    show(report, output, act.words)


def _failed(choice: JobChoice) -> str:
    """Describe what happens to the failed jobs among the chosen; "" if there are none."""
    if not choice.failed:
        return ""
    of = "" if choice.failed == len(choice.job_ids) else f"{choice.failed:,} failed: "
    return f" ({of}{HEIRS})"
