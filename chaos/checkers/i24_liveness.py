"""I24: when the faults are over, all work continues without help and soon ends."""

from collections.abc import Iterator

from chaos.checkers.timeline import TERMINAL, Timeline, grouped, may_diverge, operations_of
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence

LAST_CLAIMS = 5
ENDED_WITHIN_S = 90.0
"""In addition to the sweeps: pauses before retries, a breaker that opens again, remaining work."""
WAITS = "WAITING_FOR_APPROVAL"
LOST = ("pod_died", "lease_expired")
MEANT = frozenset({"denied", "approval_expired", "poison", "not_messages_api"})
"""How a run makes jobs of its programs fail: the last one by web pages in place of answers."""
PASSES = frozenset({"TRANSIENT_INFRA", "TRANSIENT_APP"})
"""Repeated faults may use up all retries of a job."""


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I24", "after the last fault the pods work, and the backlog goes to zero")
    timeline = Timeline.of(evidence)
    healed_s = timeline.phases.get("heal")
    if healed_s is None or not timeline.is_at_rest:
        return findings.verdict(unknown="the run was cut short before it was healed and at rest")
    findings.count()
    if "stuck" in timeline.phases:
        findings.broken(f"the run was stuck at {timeline.phases['stuck']:.1f} s")
    rest_s = timeline.phases.get("quiet", timeline.phases.get("stuck", healed_s))
    drained_s = _backlog_s(evidence, timeline, healed_s, rest_s)
    bound_s = ENDED_WITHIN_S + 2 * (evidence.settings.zombie_s + evidence.settings.sweep_s)
    if drained_s > bound_s and not timeline.is_overloaded(healed_s, rest_s):
        findings.broken(f"the backlog took {drained_s:.0f} s to end, the limit is {bound_s:.0f} s")
    for task in evidence.tasks:
        findings.broken(
            f"job {task['job_id']} is still queued: {task['state']}", job=task["job_id"]
        )
    failed = _failures(evidence, findings)
    if timeline.has_clock:
        _last_claims(evidence, timeline, healed_s, findings)
    return findings.verdict(drained_s=drained_s, failed=failed)


def _backlog_s(evidence: Evidence, timeline: Timeline, healed_s: float, rest_s: float) -> float:
    """How long after healing a job was open that did not wait for a person.

    A person may take an hour, which is not the pods' fault. Without a clock that time cannot be
    measured, so if any approval was requested, all of it counts as the person's.
    """
    was_requested = any(row["new"] == WAITS for row in evidence.transitions)
    if not timeline.has_clock:
        worked_s = timeline.phases.get("worked", timeline.phases.get("calm", rest_s))
        return 0.0 if was_requested else worked_s - healed_s
    total_s, until_s = 0.0, healed_s
    for from_s, to_s in sorted(_open_spans(evidence, timeline, rest_s)):
        total_s += max(0.0, min(to_s, rest_s) - max(from_s, until_s))
        until_s = max(until_s, min(to_s, rest_s))
    return total_s


def _open_spans(
    evidence: Evidence, timeline: Timeline, rest_s: float
) -> Iterator[tuple[float, float]]:
    """When each job was in a state that ends without a person."""
    for path in grouped(evidence.transitions, "job_id").values():
        ends = [timeline.at_s(row["at"]) for row in path[1:]]
        for row, end_s in zip(path, [*ends, rest_s], strict=True):
            if row["new"] != WAITS and row["new"] not in TERMINAL:
                yield timeline.at_s(row["at"]), end_s


def _failures(evidence: Evidence, findings: Findings) -> int:
    """Count failed jobs of programs; only intended causes may make one fail."""
    failed = [job for job in evidence.jobs if job["status"] == "FAILED" and operations_of(job)]
    for job in failed:
        if job["error_code"] in ("diverged", "unfit") and may_diverge(job):
            continue
        if job["error_code"] not in MEANT and job["error_class"] not in PASSES:
            why = f"job {job['id']} failed for a reason that the run did not cause"
            findings.broken(f"{why}: {job['error_code']}: {job['error_message']}", job=job["id"])
    return len(failed)


def _last_claims(
    evidence: Evidence, timeline: Timeline, healed_s: float, findings: Findings
) -> None:
    """No living pod loses the job that it claimed last."""
    ends = {(r["job_id"], r["attempt"]): r for r in evidence.attempts if r["outcome"] in LOST}
    for pod_id, claims in grouped(evidence.claims, "pod_id").items():
        life = timeline.life_of(pod_id)
        if life is None or life.ended_s < timeline.phases.get("quiet", healed_s):
            continue
        findings.count()
        last = [c for c in claims if timeline.at_s(c["at"]) > healed_s][-LAST_CLAIMS:]
        for claim in last:
            end = ends.get((claim["job_id"], claim["attempt"]))
            if end is None or timeline.is_overloaded(
                timeline.at_s(claim["at"]), timeline.at_s(end["ended_at"])
            ):
                continue
            why = f"{life.title} lost job {claim['job_id']}, claimed after the last fault"
            findings.broken(f"{why}: {end['outcome']}", job=claim["job_id"])
