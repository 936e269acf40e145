"""I4: a job has one owner at a time; a pod that lost a job writes nothing more of it."""

from collections import Counter
from typing import Any

from chaos.checkers.timeline import effects_in_ledger, grouped
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence, Row


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I4", "each attempt has one owner, and no older attempt writes after it")
    _claims_grow(evidence, findings)
    _claims_fit(evidence, findings)
    stale = _stale_writes(evidence, findings)
    for back in evidence.setbacks:
        why = f"its head went from {back['previous']} steps to {back['seq']}, by an older one"
        findings.broken(f"job {back['job_id']}: {why}", job=back["job_id"])
    stale += len(evidence.setbacks)
    for stranger in evidence.strangers:
        whose = f"which pod {stranger['pod_id']} runs"
        why = f"pod {stranger['beaten_by']} kept job {stranger['job_id']} alive, {whose}"
        findings.broken(why, job=stranger["job_id"])
    _attempts_outside(evidence, findings)
    unknown = None if evidence.claims else "claims were not observed"
    return findings.verdict(unknown=unknown, claims=len(evidence.claims), stale_writes=stale)


def _claims_grow(evidence: Evidence, findings: Findings) -> None:
    last: dict[Any, Row] = {}
    for claim in evidence.claims:
        findings.count()
        before = last.get(claim["job_id"])
        floor = claim["previous"] if before is None else before["attempt"]
        if claim["attempt"] <= floor:
            owners = f"{before['pod_id'] if before else '?'} and {claim['pod_id']}"
            findings.broken(
                f"job {claim['job_id']}: attempt {claim['attempt']} was claimed after {floor}, "
                f"by {owners}",
                job=claim["job_id"],
            )
        last[claim["job_id"]] = claim


def _claims_fit(evidence: Evidence, findings: Findings) -> None:
    """One statement gives a pod no more jobs than it has slots."""
    slots = {pod["id"]: pod["slots"] for pod in evidence.pods}
    sizes = Counter((claim["statement"], claim["pod_id"]) for claim in evidence.claims)
    for (_, pod_id), count in sizes.items():
        if count > slots.get(pod_id, count):
            findings.broken(
                f"one claim gave pod {pod_id} {count} jobs, but it has {slots[pod_id]} slots"
            )


def _attempts_outside(evidence: Evidence, findings: Findings) -> None:
    """Each attempt that recorded an outcome sent its own number to the ledger.

    That number is how the other side distinguishes a new owner from one that was paused.
    """
    if not evidence.requests:  # a run without the ledger
        return
    requests: dict[str, set[int]] = {}
    for ask in evidence.requests:
        requests.setdefault(ask.key, set()).add(ask.attempt)
    steps = {(step["job_id"], step["key"]): step["attempt"] for step in evidence.steps}
    for effect in effects_in_ledger(evidence):
        attempt = steps.get((effect["job_id"], effect["key"]))
        if attempt is None:
            continue
        findings.count()
        attempts = requests.get(str(effect["id"]), set())
        if attempt not in attempts:
            listed = ", ".join(map(str, sorted(attempts))) or "none"
            why = f"attempt {attempt} of job {effect['job_id']} recorded {effect['key']!r}"
            findings.broken(f"{why}, the ledger got requests of {listed}", job=effect["job_id"])


def _stale_writes(evidence: Evidence, findings: Findings) -> int:
    """Steps that an attempt wrote after a newer one began, or after the job's end."""
    claims = grouped(evidence.claims, "job_id")
    ended = {job["id"]: job["finished_at"] for job in evidence.jobs if job["finished_at"]}
    stale = 0
    for job_id, steps in grouped(evidence.steps, "job_id").items():
        newest = 0
        begun = claims.get(job_id, [])
        for step in steps:
            findings.count()
            attempt, at = step["attempt"], step["finished_at"]
            later = next((c for c in begun if c["attempt"] > attempt and c["at"] <= at), None)
            if later is not None or attempt < newest:
                by = newest if later is None else later["attempt"]
                why = f"attempt {attempt} wrote step {step['key']!r} after {by} had begun"
            elif job_id in ended and at > ended[job_id]:
                why = f"attempt {attempt} wrote step {step['key']!r} after the job's end"
            else:
                newest = attempt
                continue
            stale += 1
            findings.broken(f"job {job_id}: {why}", job=job_id)
    for job_id, path in grouped(evidence.transitions, "job_id").items():
        findings.count()
        numbers = [row["attempt"] for row in path]
        if numbers != sorted(numbers):
            stale += 1
            findings.broken(f"job {job_id}: attempts go back in its history: {numbers}", job=job_id)
    return stale
