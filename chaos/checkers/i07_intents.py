"""I7: the intent comes first, the outcome last: no call without an intent, no intent left open."""

from chaos.checkers.timeline import TERMINAL, Timeline, key_of, operations_of
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence, Row

EARLY_S = 0.5
"""How far apart the two compared clocks may be."""


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I7", "every call had an intent before it, every intent is closed")
    timeline = Timeline.of(evidence)
    effects = {str(effect["id"]): effect for effect in evidence.effects}
    _calls(evidence, effects, timeline, findings)
    _ends(evidence, timeline, findings)
    _steps(evidence, findings)
    unknown_now = sum(effect["status"] == "UNKNOWN" for effect in evidence.effects)
    return findings.verdict(
        intents=len(effects),
        unknown_effects=unknown_now,
        resolved=sum(effect["resolution"] is not None for effect in evidence.effects),
    )


def _calls(
    evidence: Evidence, effects: dict[str, Row], timeline: Timeline, findings: Findings
) -> None:
    jobs = {key_of(job): job["id"] for job in evidence.jobs if operations_of(job)}
    for call in evidence.applications:
        findings.count()
        job_id = jobs.get(call.account.partition(":")[2].rpartition(":")[0])
        effect = effects.get(call.key)
        if effect is None:
            why = f"{call.account} was applied under key {call.key}, which belongs to no intent"
        elif effect["arguments"].get("account") != call.account:
            why = f"{call.account} was applied under the key of {effect['arguments']}"
        elif timeline.has_clock and call.at_s < timeline.at_s(effect["created_at"]) - EARLY_S:
            why = f"{call.account} was applied before its intent was recorded"
        else:
            continue
        findings.broken(why, job=job_id)


def _ends(evidence: Evidence, timeline: Timeline, findings: Findings) -> None:
    jobs = {job["id"]: job for job in evidence.jobs}
    for effect in evidence.effects:
        findings.count()
        job = jobs.get(effect["job_id"])
        what = f"effect {effect['id']} ({effect['key']} of {effect['tool']})"
        if job is None:
            findings.broken(f"{what} belongs to job {effect['job_id']}, which does not exist")
        elif effect["status"] == "PENDING" and (job["status"] in TERMINAL or timeline.is_at_rest):
            findings.broken(f"{what} is PENDING, its job is {job['status']}", job=job["id"])
        elif effect["status"] == "UNKNOWN" and job["status"] == "COMPLETED":
            findings.broken(f"{what} is UNKNOWN, its job went on as if it were not", job=job["id"])
        elif effect["status"] in ("UNKNOWN", "FAILED") and not effect["why"]:
            findings.broken(f"{what} is {effect['status']} without a reason", job=job["id"])


def _steps(evidence: Evidence, findings: Findings) -> None:
    """A step that records an effect's outcome has its effect, closed with it."""
    effects = {(effect["lineage_id"], effect["key"]): effect for effect in evidence.effects}
    lines = {job["id"]: job["lineage_id"] or job["id"] for job in evidence.jobs}
    kinds = {
        (job["id"], f"{place}:{op['op']}"): op["op"]
        for job in evidence.jobs
        for place, op in enumerate(operations_of(job))
    }
    for step in evidence.steps:
        if kinds.get((step["job_id"], step["key"])) not in ("idempotent", "reconcilable", "unsafe"):
            continue
        findings.count()
        effect = effects.get((lines[step["job_id"]], step["key"]))
        if effect is None:
            why = f"step {step['key']} of job {step['job_id']} is done, there is no intent of it"
        elif effect["status"] in ("PENDING", "UNKNOWN"):
            why = (
                f"step {step['key']} of job {step['job_id']} is done, its effect {effect['status']}"
            )
        else:
            continue
        findings.broken(why, job=step["job_id"])
