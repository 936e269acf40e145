"""I30: a hand-back to other code costs a job nothing, and each code hands it back once.

Where all pods run the same code, every job fits it, except those whose program says otherwise.
"""

from collections.abc import Iterator

from chaos.checkers.timeline import grouped, may_diverge
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence, Row

MISFIT = "misfit"
UNFIT = "unfit"


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I30", "each code hands back what it cannot take once, uncounted")
    codes = {row["id"]: row["code_id"] for row in evidence.pods}
    attempts = grouped(evidence.attempts, "job_id")
    retried = {f["job_id"] for f in evidence.facts if f["subtype"] == "retried_now"}
    count = 0
    for job in evidence.jobs:
        misfits = [row for row in attempts.get(job["id"], []) if row["outcome"] == MISFIT]
        findings.count()
        count += len(misfits)
        wrong = [*_looks(misfits, codes)] if job["id"] not in retried else []
        if misfits and len(set(codes.values())) <= 1 and not may_diverge(job):
            wrong.append(f"it does not fit the only code: {misfits[-1]['error']}")
        wrong += _end(job, misfits, evidence.settings.code_wait_s)
        for why in wrong:
            findings.broken(f"job {job['id']}: {why}", job=job["id"])
    return findings.verdict(misfits=count)


def _looks(misfits: list[Row], codes: dict[object, object]) -> Iterator[str]:
    looked: set[object] = set()
    for row in misfits:
        code = codes.get(row["pod_id"])
        if code in looked:
            yield f"code {code} looked again, in attempt {row['attempt']}"
        looked.add(code)


def _end(job: Row, misfits: list[Row], code_wait_s: float) -> Iterator[str]:
    if job["status"] != "FAILED" or job["error_code"] != UNFIT:
        return
    if not misfits:
        yield "it failed as unfit, and no code has looked"
        return
    waited_s = (job["finished_at"] - misfits[0]["ended_at"]).total_seconds()
    if waited_s < code_wait_s:
        yield f"it failed as unfit after {waited_s:.1f} s, {code_wait_s:g} s are given"
