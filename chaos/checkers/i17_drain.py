"""I17: a pod that is asked to leave claims nothing more, hands back what it has, and goes in time.

Judged where nothing else happened to it meanwhile, but for its time: that holds always.
"""

from collections.abc import Iterator

from chaos.checkers.timeline import Life, Timeline, grouped, key_of
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence, Row

CLAIMS_END_S = 1.0
SLACK_S = 1.0
SIGNALS = frozenset({"drain", "second-term", "kill", "stop"})
"""Faults that are nothing but signals."""
KILLED = -9
"""By a job that it ran, since nobody else did: a poison one, which I14 judges."""
LOST = ("pod_died", "lease_expired")


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I17", "a drain claims nothing, loses nothing and ends in time")
    timeline = Timeline.of(evidence)
    took = []
    for life in timeline.lives:
        asked_s = life.first("SIGTERM")
        if asked_s is None or life.ready_s is None or asked_s < life.ready_s:
            continue
        if life.first("SIGKILL") is not None or any(to_s > asked_s for _, to_s in life.paused()):
            continue
        findings.look()
        took.append(life.ended_s - asked_s)
        for why in _wrong(life, asked_s, timeline, evidence):
            findings.broken(f"{life.title}, asked to leave at {asked_s:.1f} s: {why}")
    return findings.verdict(drains=len(took), drain_max_s=max(took, default=None))


def _wrong(life: Life, asked_s: float, timeline: Timeline, evidence: Evidence) -> Iterator[str]:
    settings = evidence.settings
    # The abort and the close each have their time, and the last resort as much again.
    most_s = settings.drain_s + 2 * settings.close_s + SLACK_S
    took_s = life.ended_s - asked_s
    if took_s > most_s and (timeline.is_at_rest or life.code is not None):
        yield f"it took {took_s:.1f} s, {most_s:.1f} s are the limit"
    if not timeline.has_clock or life.pod_id is None:
        return
    for claim in evidence.claims:
        late_s = timeline.at_s(claim["at"]) - asked_s
        if claim["pod_id"] == life.pod_id and late_s > CLAIMS_END_S + SLACK_S:
            yield f"it claimed job {claim['job_id']} {late_s:.1f} s later"
    asked_once = [name for _, name in life.signals].count("SIGTERM") == 1
    if _was_disturbed(life, asked_s, timeline) or not asked_once or life.code is None:
        return
    if life.code not in (0, KILLED):
        yield f"it ended with code {life.code}"
    for row in evidence.attempts:
        is_lost = row["pod_id"] == life.pod_id and row["outcome"] in LOST
        if is_lost and life.code == 0 and timeline.at_s(row["ended_at"]) >= asked_s:
            yield f"it left without handing job {row['job_id']} back: {row['outcome']}"
    yield from _kept(life, asked_s, timeline, evidence)
    yield from _paid_for_nothing(life, asked_s, timeline, evidence)


def _kept(life: Life, asked_s: float, timeline: Timeline, evidence: Evidence) -> Iterator[str]:
    """A claim that was on its way is handed back at once: nothing of it is to begin there."""
    ends = {(row["job_id"], row["attempt"]): row["ended_at"] for row in evidence.attempts}
    for claim in evidence.claims:
        claimed_s = timeline.at_s(claim["at"])
        ended_at = ends.get((claim["job_id"], claim["attempt"]))
        if claim["pod_id"] != life.pod_id or claimed_s <= asked_s or ended_at is None:
            continue
        kept_s = timeline.at_s(ended_at) - asked_s
        if kept_s > CLAIMS_END_S + SLACK_S:
            yield f"it kept job {claim['job_id']} for {kept_s:.1f} s, which it claimed as it left"


def _was_disturbed(life: Life, asked_s: float, timeline: Timeline) -> bool:
    """Whether anything but signals was done to it; of those its life tells."""
    return any(
        trouble.began_s <= life.ended_s
        and asked_s - 1.0 <= trouble.ended_s
        and trouble.nemesis not in SIGNALS
        for trouble in timeline.troubles
        if not trouble.places or life.place in trouble.places
    )


def _paid_for_nothing(
    life: Life, asked_s: float, timeline: Timeline, evidence: Evidence
) -> Iterator[str]:
    """Model calls that ended in time, and whose answer its job had to pay for again."""
    jobs = {key_of(job): job for job in evidence.jobs}
    claims = grouped(evidence.claims, "job_id")
    steps = {(step["job_id"], step["key"]): step for step in evidence.steps}
    last_s = asked_s + evidence.settings.drain_s - SLACK_S
    for call in evidence.model_calls:
        if call.outcome != "answered" or call.ended_s is None:
            continue
        key, _, name = call.conversation.partition("/")
        if not asked_s <= call.ended_s <= min(last_s, life.ended_s) or key not in jobs:
            continue
        job: Row = jobs[key]
        owner = _owner(claims.get(job["id"], []), call.at_s, timeline)
        step = steps.get((job["id"], name))
        if owner is None or owner["pod_id"] != life.pod_id:
            continue
        if step is not None and step["attempt"] > owner["attempt"]:
            told = f"step {name} of job {job['id']}"
            yield f"{told} was answered at {call.ended_s:.1f} s, and is paid for again"


def _owner(claims: list[Row], at_s: float, timeline: Timeline) -> Row | None:
    before = [claim for claim in claims if timeline.at_s(claim["at"]) <= at_s]
    return before[-1] if before else None
