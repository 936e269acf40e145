"""I27: each instant of a schedule submits one job, and no job of a schedule lacks its instant."""

from collections import Counter

from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence

PREFIX = "schedule:"


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I27", "each instant of a schedule submits one job")
    findings.count(len(evidence.instants))
    jobs = {row["id"]: row for row in evidence.jobs}
    owners = Counter(row["job_id"] for row in evidence.instants if row["job_id"] is not None)
    for row in evidence.instants:
        at = f"{row['schedule']} at {row['instant'].isoformat()}"
        if row["outcome"] == "SUBMITTED" and row["job_id"] not in jobs:
            findings.broken(f"{at} has no job", job=row["job_id"])
        if row["job_id"] is not None and owners[row["job_id"]] > 1:
            findings.broken(f"{at} shares its job with another instant", job=row["job_id"])
    for job_id, row in jobs.items():
        if (row["submitted_by"] or "").startswith(PREFIX) and job_id not in owners:
            findings.broken(f"job {job_id} of {row['submitted_by']} has no instant", job=job_id)
    return findings.verdict()
