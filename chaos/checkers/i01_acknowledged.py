"""I1: every job promised to a client exists, and no work is left when the run is at rest."""

from uuid import UUID

from chaos.checkers.timeline import TERMINAL, Timeline, key_of, of_kind
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I1", "every acknowledged job exists, and all have ended at rest")
    existing = {job["id"] for job in evidence.jobs}
    for event in of_kind(evidence, "submit", "ok"):
        findings.count()
        job_id, key = UUID(str(event.value["job"])), event.value["key"]
        if job_id not in existing:
            findings.broken(
                f"submit {key} was acknowledged at {event.at_s:.2f} s as {job_id}, now missing",
                job=job_id,
            )
    timeline = Timeline.of(evidence)
    waiting = [job for job in evidence.jobs if job["status"] not in TERMINAL]
    if timeline.is_at_rest:
        for job in waiting:
            what = f" on {job['waiting_on']}" if job.get("waiting_on") else ""
            findings.broken(
                f"job {key_of(job)} is still {job['status']}{what}, at attempt {job['attempt']}",
                job=job["id"],
            )
    unknown = None
    if waiting and not timeline.is_at_rest:
        unknown = f"the run was cut short while {len(waiting)} jobs had not ended"
    return findings.verdict(unknown=unknown, jobs=len(evidence.jobs), unfinished=len(waiting))
