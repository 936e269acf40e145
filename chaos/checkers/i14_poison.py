"""I14: a job that kills is stopped after a few deaths of its own process; no other job is.

The death of a pod condemns no job: its cause may be outside. Only a process that runs one job and
dies while its pod lives identifies the culprit. The faults of a run hit pods, never such a process:
a program without a poison operation is innocent, whatever the record says of its deaths.
"""

from chaos.checkers.timeline import TERMINAL, Timeline, grouped, operations_of
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence, Row

KEEPS = ("suspended", "lease_expired", "handed_back", "pod_died")
"""Outcomes that do not interrupt a run of process deaths: none shows that the job is harmless."""
SHARED = 2
"""Pods that may die of a poison job, as a multiple of the limit: some die of other causes."""


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I14", "a poison job kills few pods and becomes a dead letter")
    most = evidence.settings.deaths_max
    is_at_rest = Timeline.of(evidence).is_at_rest
    attempts = grouped(evidence.attempts, "job_id")
    steps = grouped(evidence.steps, "job_id")
    poison = deaths_max = 0
    for job in evidence.jobs:
        ended = attempts.get(job["id"], [])
        stepped = {step["attempt"] for step in steps.get(job["id"], [])}
        longest, last = _rows(ended, stepped, "process_died", KEEPS)
        if job["attempt"] in stepped:
            last = 0
        is_stopped = job["error_code"] == "poison"
        deaths_max = max(deaths_max, longest, last + is_stopped)
        if is_stopped and last + 1 < most:
            why = (
                f"job {job['id']} was stopped as poison after {last + 1} deaths of its own process"
            )
            findings.broken(f"{why} in a row, the limit is {most}", job=job["id"])
        if longest >= most:
            why = f"job {job['id']} was started again after {longest} deaths of its own process"
            findings.broken(f"{why} in a row, the limit is {most}", job=job["id"])
        operations = operations_of(job)
        if not any(op["op"] == "poison" for op in operations):
            if operations and is_stopped:
                why = f"innocent job {job['id']} was stopped as poison"
                findings.broken(f"{why}: {job['error_message']}", job=job["id"])
            continue
        poison += 1
        findings.count()
        if job["status"] == "COMPLETED" or (is_at_rest and job["status"] not in TERMINAL):
            findings.broken(
                f"job {job['id']} kills its pods, but is {job['status']}", job=job["id"]
            )
        pods, _ = _rows(ended, stepped, "pod_died", (*KEEPS, "process_died"))
        if pods >= SHARED * most:
            why = f"job {job['id']} was started again after {pods} pod deaths in a row"
            findings.broken(f"{why}, {most} make a suspect", job=job["id"])
    return findings.verdict(poison=poison, deaths_in_a_row_max=deaths_max)


def _rows(
    attempts: list[Row], stepped: set[int], counted: str, keeps: tuple[str, ...]
) -> tuple[int, int]:
    """The longest and the last run of consecutive deaths of one kind; a step ends a run."""
    longest = row = 0
    for attempt in attempts:
        if attempt["attempt"] in stepped:
            row = 0
        if attempt["outcome"] == counted:
            row += 1
        elif attempt["outcome"] not in keeps:
            row = 0
        longest = max(longest, row)
    return longest, row
