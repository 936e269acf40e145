"""I36: no pod ends unless the run ends it: whatever its jobs raise, and whatever it loses."""

from chaos.checkers.timeline import Timeline, is_ended_by_plan
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I36", "no pod ends by itself or by a job")
    timeline = Timeline.of(evidence)
    for life in timeline.lives:
        if life.ready_s is None:
            continue
        findings.count()
        if life.code is None or any(life.blows()) or is_ended_by_plan(life, timeline, evidence):
            continue
        last_line = _last_line(evidence.logs.get(life.pod, ""))
        findings.broken(f"{life.title} ended by itself, with code {life.code}: {last_line}")
    return findings.verdict()


def _last_line(log: str) -> str:
    return next((line for line in reversed(log.splitlines()) if line.strip()), "it logged nothing")
