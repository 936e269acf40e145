"""I6: tries are counted and bounded, their pauses are kept, and jittered."""

from collections.abc import Iterator

from chaos.checkers.timeline import grouped, instant, quantile
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence, Row

PAUSE_MAX_S = 300.0
"""The longest back-off, and what of a server's Retry-After is honoured."""
EARLY_S = 0.002
ALIKE_SHARE = 0.002
ALIKE_MIN = 3
"""Pauses of chance do not fall so close together, so many of them."""
RETRIED = ("retry", "lease_expired")
"""How attempts end that cost their job a retry."""


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I6", "retries are counted, within their limits, in time and jittered")
    attempts = grouped(evidence.attempts, "job_id")
    paths = grouped(evidence.transitions, "job_id")
    hurried = {f["job_id"] for f in evidence.facts if f["subtype"] == "retried_now"}
    failures = grouped((f for f in evidence.facts if f["type"] == "error"), "job_id")
    claims = grouped(evidence.claims, "job_id")
    for job in evidence.jobs:
        own, path = attempts.get(job["id"], []), paths.get(job["id"], [])
        findings.look(len(own))
        wrong = (
            *_counts(job, path, own),
            *_tries(own, failures.get(job["id"], [])),
            *_spent(own, claims.get(job["id"], [])),
            *_times(path, hurried=job["id"] in hurried),
        )
        for why in wrong:
            findings.broken(f"job {job['id']}: {why}", job=job["id"])
    pauses = _pauses(evidence)
    for (outcome, count), alike in pauses.items():
        spread = max(alike) - min(alike)
        if len(alike) >= ALIKE_MIN and spread <= ALIKE_SHARE * max(alike):
            findings.broken(
                f"{len(alike)} jobs paused {min(alike):.3f} to {max(alike):.3f} s before retry "
                f"{count}, after {outcome}: that is no jitter"
            )
    told = [pause for alike in pauses.values() for pause in alike]
    return findings.verdict(retries=len(told), pause_p50_s=quantile(told, 0.5))


def _counts(job: Row, path: list[Row], attempts: list[Row]) -> Iterator[str]:
    outcomes = {row["attempt"]: row["outcome"] for row in attempts}
    used = 0
    for row in path:
        if row["new"] != "RETRY":
            continue
        before, used = used, row["metadata"]["retry_count"]
        outcome = outcomes.get(row["attempt"])
        if used - before != (outcome in RETRIED):
            yield f"attempt {row['attempt']} was {outcome}, retries went from {before} to {used}"
    if job["retry_count"] != used:
        yield f"it counts {job['retry_count']} retries, its history tells {used}"
    if used > job["max_retries"]:
        yield f"{used} retries, {job['max_retries']} are allowed"
    spent = 0
    for row in attempts:
        spent = 0 if row["outcome"] in RETRIED else spent + (row["outcome"] == "failed")
        if spent >= job["worker_attempts"]:
            yield f"attempt {row['attempt']} was tried again, the last of {job['worker_attempts']}"


def _tries(attempts: list[Row], failures: list[Row]) -> Iterator[str]:
    """As which try of its task an attempt failed: only failures count, no deaths, no hand-backs."""
    for fact in failures:
        told = fact["data"].get("attempt")
        if told is None or "retry_count" not in fact["data"]:
            continue  # of a call inside an attempt
        failed = _failed_before(fact["attempt"], attempts)
        if told != failed + 1:
            yield f"attempt {fact['attempt']} counts as try {told}, {failed} failed before it"


def _spent(attempts: list[Row], claims: list[Row]) -> Iterator[str]:
    """The same of all claims: what the end of a pod has ended was no try of the job."""
    for claim in claims:
        failed = _failed_before(claim["attempt"], attempts)
        if claim["spent"] not in (None, failed + 1):
            told = f"attempt {claim['attempt']} is try {claim['spent']} of its task"
            yield f"{told}, {failed} failed before it"


def _failed_before(attempt: int, attempts: list[Row]) -> int:
    """How many of its task's tries had failed by then."""
    failed = 0
    for row in attempts:
        if row["attempt"] < attempt:
            failed = 0 if row["outcome"] in RETRIED else failed + (row["outcome"] == "failed")
    return failed


def _times(path: list[Row], *, hurried: bool) -> Iterator[str]:
    for row, following in zip(path, [*path[1:], None], strict=True):
        due = instant(row["metadata"].get("next_retry_at")) if row["new"] == "RETRY" else None
        if due is None:
            continue
        pause_s = (due - row["at"]).total_seconds()
        # What it waits for besides time lets it go early, or late.
        if row["metadata"].get("waiting_on") is not None or hurried:
            continue
        if not -EARLY_S <= pause_s <= PAUSE_MAX_S:
            yield f"attempt {row['attempt']} is to be tried again in {pause_s:.2f} s"
        early_s = 0.0 if following is None else (due - following["at"]).total_seconds()
        if following is not None and following["new"] == "RUNNING" and early_s > EARLY_S:
            yield f"attempt {following['attempt']} began {early_s:.2f} s before it was due"


def _pauses(evidence: Evidence) -> dict[tuple[str, int], list[float]]:
    """The pauses that chance alone decided, by why there was one, and how many before it."""
    outcomes = {(row["job_id"], row["attempt"]): row["outcome"] for row in evidence.attempts}
    asked = {
        (fact["job_id"], fact["attempt"])
        for fact in evidence.facts
        if fact["type"] == "error" and fact["data"].get("retry_after_s") is not None
    }
    pauses: dict[tuple[str, int], list[float]] = {}
    for row in evidence.transitions:
        told = row["metadata"]
        if row["new"] != "RETRY" or told.get("waiting_on") is not None:
            continue
        due = instant(told.get("next_retry_at"))
        if (row["job_id"], row["attempt"]) not in asked and due is not None:
            pause_s = (due - row["at"]).total_seconds()
            outcome = outcomes.get((row["job_id"], row["attempt"]), "nothing")
            pauses.setdefault((outcome, told["retry_count"]), []).append(pause_s)
    return pauses
