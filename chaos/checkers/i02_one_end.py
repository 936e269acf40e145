"""I2: a job ends once and stays ended."""

from itertools import dropwhile
from typing import Any

from chaos.checkers.timeline import TERMINAL, grouped
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I2", "each job has at most one terminal transition, and none after it")
    for rows in (evidence.transitions, evidence.moves):
        for job_id, path in grouped(rows, "job_id").items():
            after = list(dropwhile(_is_no_end, path))
            findings.count(len(after[:1]))
            if len(after) > 1:
                states = " → ".join(str(row["new"]) for row in after)
                findings.broken(f"job {job_id} went on after its end: {states}", job=job_id)
    ended = {row["job_id"] for row in evidence.transitions if row["new"] in TERMINAL}
    for job in evidence.jobs:
        if job["status"] in TERMINAL and job["id"] not in ended:
            findings.broken(
                f"job {job['id']} is {job['status']}, its history has no end", job=job["id"]
            )
    return findings.verdict(ended=len(ended))


def _is_no_end(row: dict[str, Any]) -> bool:
    return row["new"] not in TERMINAL
