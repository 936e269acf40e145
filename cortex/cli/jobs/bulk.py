"""Bulk operations on all jobs that match a filter: choose, show, confirm, run, count."""

from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Final, TypeVar

import attrs
import click

from cortex.cli.asking import confirm_count
from cortex.cli.idempotent import mutate
from cortex.cli.jobs.paced import Tally, work_at
from cortex.cli.options import Options
from cortex.cli.pace import Rate
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.errors import UsageError
from cortex.domain.job_filter import HEIRS, JobFilter, Refusal, parse_filter
from cortex.postgres.database import Database
from cortex.postgres.session import Session
from cortex.store.job_choice import BulkDone, JobChoice, PartlyDoneError

LIMIT_DEFAULT: Final = 1000
LIMIT_MAX: Final = 10_000

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


@attrs.frozen(kw_only=True)
class BulkRequest:
    """A request to change many jobs at once."""

    filter: str
    which: JobFilter
    limit: int
    rate: float | None
    """Jobs per second; None: no limit."""
    is_dry_run: bool
    is_agreed: bool


@attrs.frozen(kw_only=True)
class BulkCommand:
    """The change that a command makes to the chosen jobs."""

    operation: str
    """Such as `jobs.cancel`."""
    verb: str
    would: str
    """Such as `would be cancelled`."""
    done: str
    choose: Callable[..., Coroutine[Any, Any, JobChoice]]
    work: Callable[..., Coroutine[Any, Any, BulkDone]]


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
                help=(
                    "At most N jobs per second, paced by this command: Ctrl-C stops it.  [no limit]"
                ),
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
    is_agreed: bool,
) -> BulkRequest | None:
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
    return BulkRequest(
        filter=text,
        which=parse_filter(text),
        limit=limit,
        rate=rate,
        is_dry_run=dry_run,
        is_agreed=is_agreed,
    )


def act_on_all(
    options: Options,
    request: BulkRequest,
    act: BulkCommand,
    *,
    by: str,
    reason: str,
    key: str | None,
) -> None:
    """Choose, ask, run and report the counts, even when it ends early.

    Under a key everything is one transaction: all or nothing.
    """
    options.refuse_columns("counts of jobs have no columns")
    if request.rate is not None and key is not None:
        raise UsageError(
            "--rate does not go with --idempotency-key, which needs a single transaction",
            hint=(
                "leave the key out: run again, the same command continues with the remaining jobs"
            ),
        )
    output = Output(options)
    with session(options) as call:
        choice: JobChoice = call(act.choose, request.which, limit=request.limit)
        count = len(choice.job_ids)
        if request.is_dry_run:
            came = _BulkResult(count, 0, _named(choice.refused), resubmitted=choice.failed)
            document = _document(came, choice, is_dry_run=True)
            output.record(document, name=str(count), page=lambda: _summary(document, act))
            return
        if count:
            jobs = "1 job" if count == 1 else f"{count:,} jobs"
            pace = f", {request.rate:g} per second" if request.rate is not None else ""
            question = f"{act.verb} {jobs}{_failed(choice)}{pace}"
            confirm_count(question, count, options, is_agreed=request.is_agreed)

        if key is None:
            _act_in_batches(request.rate, call, output, choice, act, by=by, reason=reason)
            return

        async def work(db: Database) -> dict[str, Any]:
            try:
                done = await act.work(db, choice.job_ids, by=by, reason=reason)
            except PartlyDoneError as error:  # the transaction was rolled back
                raise error.cause from None
            return {
                "changed": done.changed,
                "asked": done.asked,
                "resubmitted": done.resubmitted,
                "refused": _named(done.refused),
            }

        done = mutate(
            call,
            work,
            output=output,
            key=key,
            operation=act.operation,
            request={"filter": request.filter, "limit": request.limit, "by": by, "reason": reason},
        )
    came = _BulkResult(
        done["changed"], done["asked"], done["refused"], resubmitted=done.get("resubmitted", 0)
    )
    _report(output, came, choice, act)


def _failed(choice: JobChoice) -> str:
    """Describe what happens to the failed jobs among the chosen; "" if there are none."""
    if not choice.failed:
        return ""
    of = "" if choice.failed == len(choice.job_ids) else f"{choice.failed:,} failed: "
    return f" ({of}{HEIRS})"


def _act_in_batches(
    rate: float | None,
    call: Session,
    output: Output,
    choice: JobChoice,
    act: BulkCommand,
    *,
    by: str,
    reason: str,
) -> None:
    """Run in batches, at a rate or not. Raises the error that ends it early."""
    tally = Tally(left=len(choice.job_ids))
    try:
        work_at(rate, call, output, choice.job_ids, act.work, tally=tally, by=by, reason=reason)
    finally:
        came = _BulkResult(
            tally.changed,
            tally.asked,
            _named(tally.refused),
            left=tally.left,
            unsure=tally.unsure,
            resubmitted=tally.resubmitted,
        )
        _report(output, came, choice, act)


@attrs.frozen
class _BulkResult:
    """The outcome."""

    changed: int
    asked: int
    refused: Mapping[str, int]
    left: int = 0
    unsure: int = 0
    resubmitted: int = 0


def _report(output: Output, came: _BulkResult, choice: JobChoice, act: BulkCommand) -> None:
    document = _document(came, choice, is_dry_run=False)
    output.record(document, name=str(came.changed), page=lambda: _summary(document, act))


def _named(refused: Mapping[Refusal, int]) -> dict[str, int]:
    return {why_not.name.lower(): number for why_not, number in refused.items()}


def _document(came: _BulkResult, choice: JobChoice, *, is_dry_run: bool) -> dict[str, Any]:
    return {
        "is_dry_run": is_dry_run,
        "count": came.changed,
        "asked_count": came.asked,
        "resubmitted_count": came.resubmitted,
        "refused": dict(came.refused),
        "left_count": came.left,
        "unsure_count": came.unsure,
        "has_more": choice.has_more,
    }


def _summary(document: Mapping[str, Any], act: BulkCommand) -> Iterator[str]:
    """Summarise in one line: `1,204 cancelled, 3 had ended meanwhile`."""
    is_dry_run = document["is_dry_run"]
    count, stopping = document["count"], document["asked_count"]
    heirs = document["resubmitted_count"]
    done = count - stopping - heirs
    parts = [f"dry run: {count:,} {act.would}"] if is_dry_run else []
    if not is_dry_run and (done or not heirs):
        parts.append(f"{done:,} {act.done}")
    if heirs:
        parts.append(
            f"{heirs:,} of them in new jobs" if is_dry_run else f"{heirs:,} go on in new jobs"
        )
    if stopping:
        parts.append(f"{stopping:,} asked to end: their pods have to stop them")
    later = "" if is_dry_run else " meanwhile"
    for name, number in document["refused"].items():
        parts.append(f"{number:,} {Refusal[name.upper()].value}{later}")
    if document["unsure_count"]:
        parts.append(f"{document['unsure_count']:,} unknown: the reply was lost")
    if document["left_count"]:
        parts.append(f"{document['left_count']:,} not begun")
    yield ", ".join(parts)
    if left := document["left_count"] + document["unsure_count"]:
        how = f" with --limit {left}" if document["has_more"] else ""
        yield f"the same command{how} continues with the rest"
    elif document["has_more"]:
        yield "more may match: raise --limit, or run it again"
