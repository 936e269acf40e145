"""I8: pods find runnable work within one poll, with or without a notification.

Each wait is judged by its longest part in which no fault was active and pods had free slots. What
happened before or after that part excuses nothing.
"""

from collections import Counter

from chaos.checkers.calm import Calm
from chaos.checkers.timeline import Timeline, quantile
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence, Row

SLACK_S = 3.0
"""Allowance for a busy machine."""
ROUNDED_S = 0.001


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I8", "a job that can run is claimed within a poll while all is calm")
    timeline = Timeline.of(evidence)
    if not (evidence.claims and timeline.has_clock):
        return findings.verdict(unknown="claims were not observed")
    jobs = {job["id"]: job for job in evidence.jobs}
    ended = {(row["job_id"], row["attempt"]): row["ended_at"] for row in evidence.attempts}
    deaths = Counter(row["job_id"] for row in evidence.attempts if row["outcome"] == "pod_died")
    # A suspect job waits for a process of its own.
    suspects = {job for job, count in deaths.items() if count + 1 >= evidence.settings.deaths_max}
    calm = Calm.of(timeline)
    bound_s = evidence.settings.poll_s + SLACK_S
    took = []
    for claim in evidence.claims:
        job = jobs.get(claim["job_id"])
        if job is None or job["queue_name"] is not None or claim["run_at"] is None:
            continue
        if job["id"] in suspects:
            continue
        freed = ended.get((claim["job_id"], claim["previous"]))
        due = max(at for at in (claim["run_at"], job["created_at"], freed) if at is not None)
        latency_s = (claim["at"] - due).total_seconds()
        due_s = timeline.at_s(due)
        calm_s = calm.longest_s(due_s, due_s + latency_s)
        if calm_s > bound_s:
            findings.broken(_late(claim, latency_s, calm_s), job=claim["job_id"])
        elif calm_s < latency_s - ROUNDED_S:
            continue  # too short, or interrupted
        findings.count()
        took.append(latency_s)
    return findings.verdict(p50_s=quantile(took, 0.5), p99_s=quantile(took, 0.99))


def _late(claim: Row, latency_s: float, calm_s: float) -> str:
    return (
        f"job {claim['job_id']}: attempt {claim['attempt']} was due for {latency_s:.2f} s, "
        f"of which {calm_s:.2f} s in a row were calm"
    )
