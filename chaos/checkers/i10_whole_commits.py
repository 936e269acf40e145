"""I10: what is written together is stored together: state, history, attempts, task, dead letter.

A commit with an unknown outcome took place or did not; it is never half done.
"""

from collections.abc import Iterator
from math import inf
from typing import Final

from chaos.checkers.timeline import TERMINAL, Timeline, grouped, key_of, of_kind, operations_of
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence, Row

EARLY_S = 0.05
"""How far apart the two compared clocks may be; a client sends again later than that."""
OPEN_TASKS = {"PENDING": {1}, "RUNNING": {1}, "RETRY": {0, 1}, "WAITING_FOR_APPROVAL": {0, 1}}
DECISIONS: Final = frozenset({"denied", "approval_expired"})
"""Codes of jobs that a person ended: they are no dead letters."""


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I10", "state, history, attempts, task and dead letter of every job agree")
    history = grouped(evidence.transitions, "job_id")
    moves = grouped(evidence.moves, "job_id")
    attempts = grouped(evidence.attempts, "job_id")
    tasks = grouped(evidence.tasks, "job_id")
    dead_letter_jobs = {row["job_id"] for row in evidence.dead_letters}
    for job in evidence.jobs:
        findings.count()
        job_id = job["id"]
        faults = (
            *_path(job, history.get(job_id, [])),
            *_moves(history.get(job_id, []), moves.get(job_id, []) if moves else None),
            *_attempts(job, attempts.get(job_id, [])),
            *_rest(job, len(tasks.get(job_id, [])), has_dead_letter=job_id in dead_letter_jobs),
        )
        for why in faults:
            findings.broken(f"job {job_id}: {why}", job=job_id)
    existing = {job["id"] for job in evidence.jobs}
    for rows, what in ((history, "history"), (tasks, "a task"), (attempts, "attempts")):
        for job_id in rows.keys() - existing:
            findings.broken(f"job {job_id} has {what} and does not exist", job=job_id)
    _denied(evidence, findings)
    _cancelled(evidence, findings)
    return findings.verdict(transitions=len(evidence.transitions))


def _path(job: Row, path: list[Row]) -> Iterator[str]:
    states = [None, *(row["new"] for row in path)]
    if [row["previous"] for row in path] != states[:-1]:
        yield "its history has a gap: " + ", ".join(f"{r['previous']} → {r['new']}" for r in path)
    if states[-1] != job["status"]:
        yield f"it is {job['status']}, its history ends with {states[-1]}"


def _moves(path: list[Row], moves: list[Row] | None) -> Iterator[str]:
    """The observed state changes are those of the history."""
    if moves is None:
        return
    recorded, observed = ([(row["previous"], row["new"]) for row in rows] for rows in (path, moves))
    if recorded != observed:
        yield f"it went through {_states(observed)}, its history says {_states(recorded)}"


def _states(path: list[tuple[str | None, str]]) -> str:
    return " → ".join(new for _, new in path) or "nothing"


def _attempts(job: Row, attempts: list[Row]) -> Iterator[str]:
    """Each attempt but the last ended before the job did, and its outcome is recorded."""
    recorded = {row["attempt"] for row in attempts}
    if missing := sorted(set(range(1, job["attempt"])) - recorded):
        yield f"it is at attempt {job['attempt']}, no record shows how {missing} ended"
    if beyond := sorted(n for n in recorded if n > job["attempt"]):
        yield f"it is at attempt {job['attempt']}, attempts {beyond} ended"


def _rest(job: Row, task_count: int, *, has_dead_letter: bool) -> Iterator[str]:
    status = job["status"]
    if task_count not in OPEN_TASKS.get(status, {0}):
        yield f"it is {status} and has {task_count} tasks"
    is_dead = status == "FAILED" and job["error_code"] not in DECISIONS
    if has_dead_letter != is_dead:
        yield f"it is {status} and has {'a' if has_dead_letter else 'no'} dead letter"
    if status in TERMINAL and job["finished_at"] is None:
        yield f"it is {status} without an end time"


def _denied(evidence: Evidence, findings: Findings) -> None:
    """No job is older than the first request that may have created it; earlier ones failed."""
    timeline = Timeline.of(evidence)
    requested_s: dict[str, float] = {}
    made_s: dict[str, float] = {}
    for event in of_kind(evidence, "submit"):
        key = event.value["key"]
        if event.type == "invoke":
            requested_s[key] = event.at_s
        else:
            made_s.setdefault(key, inf)
        if event.type in ("ok", "info"):
            made_s[key] = min(made_s[key], requested_s.get(key, event.at_s))
    for job in evidence.jobs:
        if job["origin_id"] is not None or key_of(job) not in made_s:
            continue
        since_s = made_s[key_of(job)]
        is_older = timeline.has_clock and timeline.at_s(job["created_at"]) < since_s - EARLY_S
        if since_s == inf or is_older:
            why = f"submit {key_of(job)} certainly failed, but job {job['id']} exists"
            findings.broken(why, job=job["id"])


def _cancelled(evidence: Evidence, findings: Findings) -> None:
    """A job ends as cancelled exactly when a person cancelled it."""
    jobs = {str(job["id"]): job for job in evidence.jobs}
    requested: dict[str, set[str]] = {}
    for event in of_kind(evidence, "cancel"):
        job_id = event.value["job"]
        if event.type == "invoke":
            requested.setdefault(job_id, set()).add(event.value["by"])
        if event.type != "ok" or event.value["after"] != "CANCELLED" or job_id not in jobs:
            continue
        if (status := jobs[job_id]["status"]) != "CANCELLED":
            why = f"job {job_id} was confirmed as cancelled, but is {status}"
            findings.broken(why, job=jobs[job_id]["id"])
    for job_id, job in jobs.items():
        if job["status"] != "CANCELLED" or not operations_of(job):
            continue
        if job["cancelled_by"] not in requested.get(job_id, ()):
            why = f"job {job_id} was cancelled by {job['cancelled_by']}, who never requested it"
            findings.broken(why, job=job["id"])
