"""Bulk operations from the command line: one job of type `bulk`, submitted and then followed.

The job goes on without the command, and is watched, cancelled and listed like any other.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import UUID

import attrs

from cortex.cli.idempotent import mutate
from cortex.cli.patient import Patient
from cortex.cli.screen.live_line import live_line
from cortex.cli.screen.output import Output
from cortex.domain.bulk import BulkCounts, BulkFailure, BulkRequest
from cortex.domain.clock import system_chance
from cortex.domain.errors import ConflictError
from cortex.domain.job import BULK, JobStatus
from cortex.domain.job_filter import Refusal
from cortex.domain.people import Identity
from cortex.domain.phrases import short_id
from cortex.domain.safe import safe
from cortex.postgres.database import Database
from cortex.postgres.session import Session
from cortex.store import bulk, jobs, pods
from cortex.store.bulk import BulkStanding
from cortex.store.job_choice import JobChoice
from cortex.store.why import facts_of_all
from cortex.view.cells import fit
from cortex.view.why_brief import EXPLAINED, brief

POLL_S: Final = 0.25
PROGRESS_EVERY_S: Final = 5.0
"""Interval of progress lines where the live line cannot be rewritten, and of reasons to wait."""
FAILURES_SHOWN: Final = 3


@attrs.frozen(kw_only=True)
class BulkWords:
    """What a command does, in words."""

    operation: str
    """Such as `jobs.cancel`."""
    would: str
    """Such as `would be cancelled`."""
    done: str


@attrs.frozen(kw_only=True)
class BulkReport:
    """What was done, or would be."""

    counts: BulkCounts
    has_more: bool
    job_id: UUID | None = None
    left: int = 0
    failures: tuple[BulkFailure, ...] = ()
    is_dry_run: bool = False

    @property
    def document(self) -> dict[str, Any]:
        return {
            "is_dry_run": self.is_dry_run,
            "job": self.job_id,
            "count": self.counts.changed,
            "asked_count": self.counts.asked,
            "resubmitted_count": self.counts.resubmitted,
            "refused": dict(self.counts.refused),
            "failed_count": self.counts.failed,
            "failures": [attrs.asdict(each) for each in self.failures],
            "left_count": self.left,
            "has_more": self.has_more,
        }

    def lines(self, words: BulkWords) -> Iterator[str]:
        """Summarise in one line: `1,204 cancelled, 3 had ended meanwhile`; then what failed."""
        counts, is_dry_run = self.counts, self.is_dry_run
        heirs = counts.resubmitted
        done = counts.changed - counts.asked - heirs
        parts = [f"dry run: {counts.changed:,} {words.would}"] if is_dry_run else []
        if not is_dry_run and (done or not heirs):
            parts.append(f"{done:,} {words.done}")
        if heirs:
            parts.append(
                f"{heirs:,} of them in new jobs" if is_dry_run else f"{heirs:,} go on in new jobs"
            )
        if counts.asked:
            parts.append(f"{counts.asked:,} asked to end: their pods have to stop them")
        later = "" if is_dry_run else " meanwhile"
        for name, number in counts.refused.items():
            parts.append(f"{number:,} {Refusal[name.upper()].value}{later}")
        if counts.failed:
            parts.append(f"{counts.failed:,} failed")
        if self.left:
            parts.append(f"{self.left:,} not begun")
        yield ", ".join(parts)
        for failure in self.failures[:FAILURES_SHOWN]:
            yield safe(f"✗ {short_id(failure.job_id)}: {failure.error}")
        if counts.failed > FAILURES_SHOWN and self.job_id is not None:
            yield f"more of them: cortex jobs show {short_id(self.job_id)} --json"
        if self.has_more and not self.left:
            yield "more may match: raise --limit, or run it again"


def show(report: BulkReport, output: Output, words: BulkWords) -> None:
    count = report.counts.changed
    output.record(report.document, name=str(count), page=lambda: report.lines(words))


def preview_of(choice: JobChoice) -> BulkReport:
    """Return the report of a dry run."""
    counts = BulkCounts(
        changed=len(choice.job_ids),
        resubmitted=choice.failed,
        refused={why_not.name.lower(): count for why_not, count in choice.refused.items()},
    )
    return BulkReport(counts=counts, has_more=choice.has_more, is_dry_run=True)


def carry_out(
    call: Session,
    request: BulkRequest | None,
    output: Output,
    words: BulkWords,
    *,
    by: Identity,
    key: str | None,
    asked: Mapping[str, Any],
) -> BulkReport | None:
    """Submit the operation, follow it to its end and return what it did; None: there was none.

    `request` None: nothing matches, and only an earlier request under the key is followed. `asked`
    is what makes two requests the same. Raises `ConflictError` if the job did not complete, after
    its report.
    """

    async def work(db: Database) -> UUID | None:
        if request is None:
            return None
        submission = request.submission(system_chance().new_id())
        await jobs.submit(db, [submission], by=by.name, credential=by.credential)
        return submission.id

    begun = mutate(call, work, output=output, key=key, operation=words.operation, request=asked)
    if begun is None:
        return None
    job_id = UUID(begun)
    if BULK not in call(pods.live_types):
        output.say(f"job {short_id(job_id)} waits for a pod: none is alive (cortex up)", "warn")
    try:
        ended = _follow(call, job_id, output)
    except KeyboardInterrupt:
        name = short_id(job_id)
        ways = f"to follow it: cortex jobs watch {name}; to stop it: cortex jobs cancel {name}"
        output.say(f"job {name} goes on; {ways}", "warn")
        raise
    report = _report_of(job_id, ended, is_named=request is not None and bool(request.job_ids))
    if ended.status is not JobStatus.COMPLETED:
        show(report, output, words)
        why = ended.error_message or f"cancelled by {ended.cancelled_by}"
        raise ConflictError(
            f"job {job_id} is {ended.status.value}: {why}",
            hint=f"run it again{' with another key' if key else ''} to continue",
        )
    return report


def _report_of(job_id: UUID, ended: BulkStanding, *, is_named: bool) -> BulkReport:
    """`is_named`: by ids, so that those left out had changed meanwhile."""
    if (result := ended.result) is not None:
        left_out = BulkCounts(refused=result.left_out if is_named else {})
        return BulkReport(
            counts=result.counts.plus(left_out),
            failures=result.failures,
            has_more=result.has_more,
            job_id=job_id,
        )
    if (last := ended.progress) is None:
        return BulkReport(counts=BulkCounts(), has_more=False, job_id=job_id)
    return BulkReport(
        counts=last.so_far,
        failures=last.slice.failures,
        left=last.total - last.so_far.passed,
        has_more=False,
        job_id=job_id,
    )


def _follow(call: Session, job_id: UUID, output: Output) -> BulkStanding:
    """Poll until the job has ended, with its progress on the terminal."""
    look = Patient(call, output)
    talk, is_for_people = output.talk, output.is_for_people
    told_at, reason = time.monotonic(), ""
    with live_line(talk, is_on=is_for_people) as live:
        while True:
            standing = look(bulk.standing, job_id)
            if standing.status.is_terminal:
                return standing
            is_time = time.monotonic() >= told_at + PROGRESS_EVERY_S
            if is_time:
                told_at = time.monotonic()
                reason = _reason(look, job_id, standing)
            line = safe(_line(standing, reason))
            live.show(fit(f"{line} · Ctrl-C leaves it running", talk.width - 1))
            if is_time and is_for_people and not talk.moves_cursor:
                output.say(line, "dim")
            call.pause(POLL_S)


def _reason(look: Patient, job_id: UUID, standing: BulkStanding) -> str:
    """Return why the job does not run, in a few words; "" if it does."""
    if standing.status not in EXPLAINED:
        return ""
    facts = look(facts_of_all, [job_id]).get(job_id)
    return "" if facts is None else brief(facts)


def _line(standing: BulkStanding, reason: str) -> str:
    if standing.progress is None:
        return reason or "begins"
    passed, total = standing.progress.so_far.passed, standing.progress.total
    return f"{passed:,} of {total:,}" + (f" · {reason}" if reason else "")
