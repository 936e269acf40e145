"""I27: each instant of a schedule submits one job, and no job of a schedule lacks its instant."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

from chaos.checkers.timeline import Timeline, of_kind
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence
from chaos.history import Event

PREFIX = "schedule:"


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I27", "each instant of a schedule submits one job")
    findings.count(len(evidence.instants))
    jobs = {row["id"]: row for row in evidence.jobs}
    is_at_rest = Timeline.of(evidence).is_at_rest
    owners = Counter(row["job_id"] for row in evidence.instants if row["job_id"] is not None)
    for row in evidence.instants:
        at = f"{row['schedule']} at {row['instant'].isoformat()}"
        if row["outcome"] == "FAILED" or (row["outcome"] == "QUEUED" and is_at_rest):
            findings.broken(f"{at} is {row['outcome']}: {row.get('error')}")
        if row["outcome"] == "SUBMITTED" and row["job_id"] not in jobs:
            findings.broken(f"{at} has no job", job=row["job_id"])
        if row["job_id"] is not None and owners[row["job_id"]] > 1:
            findings.broken(f"{at} shares its job with another instant", job=row["job_id"])
    for job_id, row in jobs.items():
        if (row.get("submitted_by") or "").startswith(PREFIX) and job_id not in owners:
            findings.broken(f"job {job_id} of {row['submitted_by']} has no instant", job=job_id)
    for event in of_kind(evidence, "schedule"):
        for why in _gaps(evidence, event):
            findings.broken(why)
    outcomes = Counter(row["outcome"] for row in evidence.instants)
    return findings.verdict(submitted=outcomes["SUBMITTED"], skipped=outcomes["SKIPPED"])


def _gaps(evidence: Evidence, event: Event) -> Iterator[str]:
    """The instants of a schedule that nothing was done about.

    Those that were too late even for the backfill period are counted, and may be missing.
    """
    name, first = event.value["name"], datetime.fromisoformat(event.value["first"])
    every = timedelta(minutes=event.value["every_min"])
    (schedule,) = (row for row in evidence.schedules if row["name"] == name)
    dealt = {row["instant"] for row in evidence.instants if row["schedule"] == name}
    count = (schedule["next_at"] - first) // every
    missing = [at for n in range(count) if (at := first + n * every) not in dealt]
    if len(missing) > schedule["missed_count"]:
        yield (
            f"{name} passed over {len(missing)} instants, of which {schedule['missed_count']} were "
            f"missed, the first {missing[0].isoformat()}"
        )
