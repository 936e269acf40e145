"""I6: attempts are counted and bounded; their pauses are kept and jittered."""

from collections.abc import Iterator

from chaos.checkers.timeline import grouped, instant, quantile
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence, Row

PAUSE_MAX_S = 300.0
"""The longest backoff, and the most that is honoured of a server's Retry-After."""
EARLY_S = 0.002
ALIKE_SHARE = 0.002
ALIKE_MIN = 3
"""This many random pauses do not fall so close together."""
RETRIED = ("retry", "lease_expired")
"""Outcomes of attempts that cost their job a retry."""


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I6", "retries are counted, within their limits, in time and jittered")
    attempts = grouped(evidence.attempts, "job_id")
    paths = grouped(evidence.transitions, "job_id")
    hurried = {f["job_id"] for f in evidence.facts if f["subtype"] == "retried_now"}
    failures = grouped((f for f in evidence.facts if f["type"] == "error"), "job_id")
    claims = grouped(evidence.claims, "job_id")
    for job in evidence.jobs:
        own, path = attempts.get(job["id"], []), paths.get(job["id"], [])
        findings.count(len(own))
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
    all_pauses = [pause for alike in pauses.values() for pause in alike]
    return findings.verdict(retries=len(all_pauses), pause_p50_s=quantile(all_pauses, 0.5))


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
        yield f"it counts {job['retry_count']} retries, its history shows {used}"
    if used > job["max_retries"]:
        yield f"{used} retries, the limit is {job['max_retries']}"
    spent = 0
    for row in attempts:
        spent = 0 if row["outcome"] in RETRIED else spent + (row["outcome"] == "failed")
        if spent >= job["worker_attempts"]:
            yield f"attempt {row['attempt']} was tried again, the last of {job['worker_attempts']}"


def _tries(attempts: list[Row], failures: list[Row]) -> Iterator[str]:
    """Which try of its task each failed attempt was; deaths and hand-backs do not count."""
    for fact in failures:
        counted = fact["data"].get("attempt")
        if counted is None or "retry_count" not in fact["data"]:
            continue  # a call inside an attempt
        failed = _failed_before(fact["attempt"], attempts)
        if counted != failed + 1:
            yield f"attempt {fact['attempt']} counts as try {counted}, {failed} failed before it"


def _spent(attempts: list[Row], claims: list[Row]) -> Iterator[str]:
    """The same for all claims: an attempt that ended with its pod does not count as a try."""
    for claim in claims:
        failed = _failed_before(claim["attempt"], attempts)
        if claim["spent"] not in (None, failed + 1):
            counted = f"attempt {claim['attempt']} is try {claim['spent']} of its task"
            yield f"{counted}, {failed} failed before it"


def _failed_before(attempt: int, attempts: list[Row]) -> int:
    """How many tries of its task had failed before it."""
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
        # What it waits for besides time can make it start early or late.
        if row["metadata"].get("waiting_on") is not None or hurried:
            continue
        if not -EARLY_S <= pause_s <= PAUSE_MAX_S:
            yield f"attempt {row['attempt']} is to be tried again in {pause_s:.2f} s"
        early_s = 0.0 if following is None else (due - following["at"]).total_seconds()
        if following is not None and following["new"] == "RUNNING" and early_s > EARLY_S:
            yield f"attempt {following['attempt']} began {early_s:.2f} s before it was due"


def _pauses(evidence: Evidence) -> dict[tuple[str, int], list[float]]:
    """The random pauses, by the outcome before them and the number of earlier retries."""
    outcomes = {(row["job_id"], row["attempt"]): row["outcome"] for row in evidence.attempts}
    server_paused = {
        (fact["job_id"], fact["attempt"])
        for fact in evidence.facts
        if fact["type"] == "error" and fact["data"].get("retry_after_s") is not None
    }
    pauses: dict[tuple[str, int], list[float]] = {}
    for row in evidence.transitions:
        metadata = row["metadata"]
        if row["new"] != "RETRY" or metadata.get("waiting_on") is not None:
            continue
        due = instant(metadata.get("next_retry_at"))
        if (row["job_id"], row["attempt"]) not in server_paused and due is not None:
            pause_s = (due - row["at"]).total_seconds()
            outcome = outcomes.get((row["job_id"], row["attempt"]), "nothing")
            pauses.setdefault((outcome, metadata["retry_count"]), []).append(pause_s)
    return pauses
