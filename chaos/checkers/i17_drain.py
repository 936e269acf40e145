"""I17: a draining pod claims nothing more, hands back its jobs, and ends in time.

Judged only where nothing else happened to the pod meanwhile. Its duration is always judged.
"""

from collections.abc import Iterator

from chaos.checkers.timeline import LOST, Life, Timeline, grouped, is_ended_by_plan, key_of
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence, Row

CLAIMS_END_S = 1.0
SLACK_S = 1.0
SIGNALS = frozenset({"drain", "second-term", "kill", "stop", "kill-worker", "stop-worker"})
"""Faults that consist only of signals."""


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I17", "a drain claims nothing, loses nothing and ends in time")
    timeline = Timeline.of(evidence)
    took = []
    for life in timeline.lives:
        term_s = life.first("SIGTERM")
        if term_s is None or life.ready_s is None or term_s < life.ready_s:
            continue
        if life.first("SIGKILL") is not None or any(to_s > term_s for _, to_s in life.paused()):
            continue
        findings.count()
        took.append(life.ended_s - term_s)
        for why in _wrong(life, term_s, timeline, evidence):
            findings.broken(f"{life.title}, sent SIGTERM at {term_s:.1f} s: {why}")
    return findings.verdict(drains=len(took), drain_max_s=max(took, default=None))


def _wrong(life: Life, term_s: float, timeline: Timeline, evidence: Evidence) -> Iterator[str]:
    settings = evidence.settings
    # The abort and the close each have their own time, and the last resort has both again.
    most_s = settings.drain_s + 2 * settings.close_s + SLACK_S
    took_s = life.ended_s - term_s
    if took_s > most_s and (timeline.is_at_rest or life.code is not None):
        yield f"it took {took_s:.1f} s, the limit is {most_s:.1f} s"
    if not timeline.has_clock or life.pod_id is None:
        return
    for claim in evidence.claims:
        late_s = timeline.at_s(claim["at"]) - term_s
        if claim["pod_id"] == life.pod_id and late_s > CLAIMS_END_S + SLACK_S:
            yield f"it claimed job {claim['job_id']} {late_s:.1f} s later"
    term_once = [name for _, name in life.signals].count("SIGTERM") == 1
    if _was_disturbed(life, term_s, timeline) or not term_once or life.code is None:
        return
    if life.code != 0 and not is_ended_by_plan(life, timeline, evidence):
        yield f"it ended with code {life.code}"
    for row in evidence.attempts:
        is_lost = row["pod_id"] == life.pod_id and row["outcome"] in LOST
        if is_lost and life.code == 0 and timeline.at_s(row["ended_at"]) >= term_s:
            yield f"it left without handing job {row['job_id']} back: {row['outcome']}"
    yield from _kept(life, term_s, timeline, evidence)
    yield from _paid_for_nothing(life, term_s, timeline, evidence)


def _kept(life: Life, term_s: float, timeline: Timeline, evidence: Evidence) -> Iterator[str]:
    """A claim that was in flight is handed back at once: the pod does not start it."""
    ends = {(row["job_id"], row["attempt"]): row["ended_at"] for row in evidence.attempts}
    for claim in evidence.claims:
        claimed_s = timeline.at_s(claim["at"])
        ended_at = ends.get((claim["job_id"], claim["attempt"]))
        if claim["pod_id"] != life.pod_id or claimed_s <= term_s or ended_at is None:
            continue
        kept_s = timeline.at_s(ended_at) - term_s
        if kept_s > CLAIMS_END_S + SLACK_S:
            yield f"it kept job {claim['job_id']} for {kept_s:.1f} s, claimed while draining"


def _was_disturbed(life: Life, term_s: float, timeline: Timeline) -> bool:
    """Whether anything but signals disturbed it."""
    return any(
        trouble.began_s <= life.ended_s
        and term_s - 1.0 <= trouble.ended_s
        and trouble.nemesis not in SIGNALS
        for trouble in timeline.troubles
        if not trouble.places or life.place in trouble.places
    )


def _paid_for_nothing(
    life: Life, term_s: float, timeline: Timeline, evidence: Evidence
) -> Iterator[str]:
    """Model calls that ended in time but whose answer the job paid for again."""
    jobs = {key_of(job): job for job in evidence.jobs}
    claims = grouped(evidence.claims, "job_id")
    steps = {(step["job_id"], step["key"]): step for step in evidence.steps}
    last_s = term_s + evidence.settings.drain_s - SLACK_S
    for call in evidence.model_calls:
        if call.outcome != "answered" or call.ended_s is None:
            continue
        key, _, name = call.conversation.partition("/")
        if not term_s <= call.ended_s <= min(last_s, life.ended_s) or key not in jobs:
            continue
        job: Row = jobs[key]
        owner = _owner(claims.get(job["id"], []), call.at_s, timeline)
        step = steps.get((job["id"], name))
        if owner is None or owner["pod_id"] != life.pod_id:
            continue
        if step is not None and step["attempt"] > owner["attempt"]:
            step_name = f"step {name} of job {job['id']}"
            yield f"{step_name} was answered at {call.ended_s:.1f} s, but is paid for again"


def _owner(claims: list[Row], at_s: float, timeline: Timeline) -> Row | None:
    before = [claim for claim in claims if timeline.at_s(claim["at"]) <= at_s]
    return before[-1] if before else None
