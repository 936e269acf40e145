"""I20: the states allow every transition, and the first transition creates the job."""

from chaos.checkers.timeline import grouped
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence

LEGAL = {
    None: {"PENDING"},
    "PENDING": {"RUNNING", "FAILED", "CANCELLED"},
    "RUNNING": {"COMPLETED", "FAILED", "WAITING_FOR_APPROVAL", "RETRY", "CANCELLED"},
    "RETRY": {"RUNNING", "FAILED", "CANCELLED"},
    "WAITING_FOR_APPROVAL": {"RUNNING", "FAILED", "CANCELLED"},
}


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I20", "every transition is legal")
    for rows in (evidence.transitions, evidence.moves):
        for job_id, path in grouped(rows, "job_id").items():
            findings.count(len(path))
            if path[0]["previous"] is not None:
                findings.broken(f"job {job_id} began as {path[0]['previous']}", job=job_id)
            for row in path:
                if row["new"] not in LEGAL.get(row["previous"], ()):
                    why = f"job {job_id} went from {row['previous']} to {row['new']}"
                    findings.broken(f"{why} in attempt {row['attempt']}", job=job_id)
    return findings.verdict()
