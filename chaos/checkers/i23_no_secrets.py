"""I23: the pods' secrets appear nowhere: not in the record, not in a log."""

from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence

TABLES = (
    "jobs",
    "transitions",
    "attempts",
    "steps",
    "effects",
    "approvals",
    "facts",
    "dead_letters",
)


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I23", "no secret of a pod is in the record or in a log")
    if not evidence.canaries:
        return findings.verdict(unknown="the run gave its pods no secret to look for")
    for name in TABLES:
        for row in getattr(evidence, name):
            findings.count()
            text = str(row)
            if any(canary in text for canary in evidence.canaries):
                where = ", ".join(
                    column
                    for column, value in row.items()
                    if any(canary in str(value) for canary in evidence.canaries)
                )
                job = row["id"] if name == "jobs" else row.get("job_id")
                findings.broken(f"a secret appears in {name}, column {where}", job=job)
    for pod, log in evidence.logs.items():
        findings.count()
        for number, line in enumerate(log.splitlines(), 1):
            if any(canary in line for canary in evidence.canaries):
                findings.broken(f"a secret appears in the log of {pod}, line {number}")
    return findings.verdict()
