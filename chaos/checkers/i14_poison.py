"""I14: a job that kills its pods is stopped after so many deaths in a row, and no other one is."""

from chaos.checkers.timeline import TERMINAL, Timeline, grouped, operations_of
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence, Row

KEEPS = ("suspended", "lease_expired")
"""To wait neither counts nor ends a row; nor does a silence, which may have been a death."""
SHARED = 2
"""A death is one job's fault: while others are blamed, a poison job may kill so many times more."""


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I14", "a poison job kills few pods and becomes a dead letter")
    most = evidence.settings.deaths_max
    is_at_rest = Timeline.of(evidence).is_at_rest
    attempts = grouped(evidence.attempts, "job_id")
    steps = grouped(evidence.steps, "job_id")
    poison = condemned = deaths_max = 0
    for job in evidence.jobs:
        deaths = _in_a_row(attempts.get(job["id"], []), steps.get(job["id"], []))
        is_stopped = job["error_code"] == "poison"
        deaths_max = max(deaths_max, deaths + is_stopped)
        if is_stopped and deaths + 1 < most:
            why = f"job {job['id']} was called poison after {deaths + 1} pod deaths in a row"
            findings.broken(f"{why}, {most} are the limit", job=job["id"])
        if not any(op["op"] == "poison" for op in operations_of(job)):
            condemned += is_stopped
            continue
        poison += 1
        findings.look()
        if job["status"] == "COMPLETED" or (is_at_rest and job["status"] not in TERMINAL):
            findings.broken(f"job {job['id']} kills its pods and is {job['status']}", job=job["id"])
        if deaths >= SHARED * most:
            why = f"job {job['id']} was begun again after {deaths} pod deaths in a row"
            findings.broken(f"{why}, {most} are the limit", job=job["id"])
    return findings.verdict(poison=poison, condemned=condemned, deaths_in_a_row_max=deaths_max)


def _in_a_row(attempts: list[Row], steps: list[Row]) -> int:
    """The longest row of deaths after which the job was begun again; a step ends a row."""
    stepped = {step["attempt"] for step in steps}
    longest = row = 0
    for attempt in attempts:
        if attempt["attempt"] in stepped:
            row = 0
        if attempt["outcome"] == "pod_died":
            row += 1
        elif attempt["outcome"] not in KEEPS:
            row = 0
        longest = max(longest, row)
    return longest
