"""I5: a job's steps are dense, unique, and in the order of its program."""

from typing import Any

from chaos.checkers.timeline import grouped, may_diverge, operations_of
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence, Row


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I5", "steps are numbered 1..n, each key once, and none is missing")
    steps = grouped(evidence.steps, "job_id")
    for job in evidence.jobs:
        own = steps.get(job["id"], [])
        findings.count(len(own))
        for why in (*_numbers(job, own), *_program(job, own)):
            findings.broken(f"job {job['id']}: {why}", job=job["id"])
    existing = {job["id"] for job in evidence.jobs}
    for job_id in steps.keys() - existing:
        findings.broken(f"job {job_id} has steps and does not exist", job=job_id)
    return findings.verdict(steps=len(evidence.steps))


def _numbers(job: Row, steps: list[Row]) -> list[str]:
    wrong = []
    seqs = [step["seq"] for step in steps]
    if seqs != list(range(1, len(seqs) + 1)):
        wrong.append(f"its steps are numbered {seqs}")
    keys = [step["key"] for step in steps]
    if twice := sorted({key for key in keys if keys.count(key) > 1}):
        wrong.append(f"steps {', '.join(twice)} are recorded twice")
    if (head := (job["checkpoint"] or {}).get("seq", 0)) != len(steps):
        wrong.append(f"its head says {head} steps, but there are {len(steps)}")
    is_unfit = bool(steps) and job.get("error_code") == "unfit"  # without steps nothing is replayed
    if (is_unfit or job.get("error_code") == "diverged") and not may_diverge(job):
        wrong.append(f"its replay diverged: {job['error_message']}")
    return wrong


def _program(job: Row, steps: list[Row]) -> list[str]:
    """The steps of a program follow its order; a completed program has one for each operation."""
    operations = operations_of(job)
    named = ((place, op["op"]) for place, op in enumerate(operations))
    expected = [f"{place}:{op}" for place, op in named if op != "publish"]
    own = [key for step in steps if (key := _name(step, expected)) is not None]
    wrong = []
    if own != expected[: len(own)]:
        wrong.append(f"its steps are {', '.join(own)}, its program is {', '.join(expected)}")
    elif job["status"] == "COMPLETED" and len(own) < len(expected):
        wrong.append(f"it is COMPLETED without {', '.join(expected[len(own) :])}")
    return wrong


def _name(step: dict[str, Any], expected: list[str]) -> str | None:
    return step["key"] if step["key"] in expected else None
