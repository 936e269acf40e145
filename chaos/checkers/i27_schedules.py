"""I27: each instant of a schedule submits one job, and no job of a schedule lacks its instant.

What was due in an outage is made up for, one job after another, whatever the overlap: none of it is
skipped, and none cancels the job of another.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from chaos.checkers.timeline import Timeline, grouped, of_kind
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence, Row
from chaos.history import Event

PREFIX = "schedule:"
GRACE = timedelta(seconds=60)
"""A schedule that fires later than this had an outage."""
OVERTAKEN = "the instant "
"""How the reason begins for one that a later instant, on time, has left no turn."""
CANCELLED_BY = re.compile(r"the instant (\S+) of its schedule is due")


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I27", "each instant of a schedule submits one job")
    findings.count(len(evidence.instants))
    jobs = {row["id"]: row for row in evidence.jobs}
    owners = Counter(row["job_id"] for row in evidence.instants if row["job_id"] is not None)
    is_at_rest = Timeline.of(evidence).is_at_rest
    for row in evidence.instants:
        for why in _one_job(row, jobs, owners, is_at_rest=is_at_rest):
            findings.broken(why, job=row["job_id"])
    for job_id, row in jobs.items():
        if (row.get("submitted_by") or "").startswith(PREFIX) and job_id not in owners:
            findings.broken(f"job {job_id} of {row['submitted_by']} has no instant", job=job_id)
    for name, line in grouped(evidence.instants, "schedule").items():
        for why in _left_out(line, jobs):
            findings.broken(f"{name} {why}")
    for event in of_kind(evidence, "schedule"):
        for why in _gaps(evidence, event):
            findings.broken(why)
    outcomes = Counter(row["outcome"] for row in evidence.instants)
    return findings.verdict(submitted=outcomes["SUBMITTED"], skipped=outcomes["SKIPPED"])


def _one_job(
    row: Row, jobs: Mapping[Any, Row], owners: Counter[Any], *, is_at_rest: bool
) -> Iterator[str]:
    at = f"{row['schedule']} at {row['instant'].isoformat()}"
    if row["outcome"] == "FAILED" or (row["outcome"] == "QUEUED" and is_at_rest):
        yield f"{at} is {row['outcome']}: {row.get('error')}"
    if row["outcome"] == "SUBMITTED" and row["job_id"] not in jobs:
        yield f"{at} has no job"
    if row["job_id"] is not None and owners[row["job_id"]] > 1:
        yield f"{at} shares its job with another instant"


def _left_out(line: Iterable[Row], jobs: Mapping[Any, Row]) -> Iterator[str]:
    """Yield instants that were due in an outage and were not made up for."""
    outage_end = datetime.min.replace(tzinfo=UTC)
    for row in sorted(line, key=lambda each: each["instant"]):
        at: datetime = row["instant"]
        dealt_at: datetime = row.get("at", at)
        is_overtaken = (row.get("reason") or "").startswith(OVERTAKEN)
        if row["outcome"] == "SKIPPED" and at <= outage_end and not is_overtaken:
            yield f"skipped {at.isoformat()}, which was due in an outage: {row.get('reason')}"
        is_other = row["outcome"] == "MISSED" or is_overtaken or row.get("is_manual", False)
        if is_other or dealt_at - at <= GRACE:
            continue
        outage_end = max(outage_end, dealt_at)
        job = jobs.get(row["job_id"], {})
        by = CANCELLED_BY.match(job.get("cancel_reason") or "")
        if by is not None and datetime.fromisoformat(by[1]) <= dealt_at:
            yield f"cancelled the job of {at.isoformat()} for {by[1]}, due in the same outage"


def _gaps(evidence: Evidence, event: Event) -> Iterator[str]:
    """The instants of a schedule that nothing was done about.

    Those that were too late even for the backfill period are counted, and may be missing.
    """
    name, first = event.value["name"], datetime.fromisoformat(event.value["first"])
    (schedule,) = (row for row in evidence.schedules if row["name"] == name)
    rows = (row for row in evidence.instants if row["schedule"] == name)
    dealt = {row["instant"] for row in rows if row["outcome"] != "MISSED"}
    minute = timedelta(minutes=1)
    times = (first + n * minute for n in range((schedule["next_at"] - first) // minute))
    minutes = event.value["minutes"]
    missing = [at for at in times if at.minute in minutes and at not in dealt]
    if len(missing) > schedule["missed_count"]:
        yield (
            f"{name} passed over {len(missing)} instants, of which {schedule['missed_count']} were "
            f"missed, the first {missing[0].isoformat()}"
        )
