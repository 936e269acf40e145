"""I36: no pod ends unless the run ends it: whatever its jobs raise, and whatever it loses."""

from typing import Final

from chaos.checkers.timeline import Timeline
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence

KILLED: Final = -9
"""At a crash point, or by a poison job: nothing else kills this way."""


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I36", "no pod ends by itself or by a job")
    for life in Timeline.of(evidence).lives:
        if life.ready_s is None:
            continue
        findings.count()
        if life.code not in (None, KILLED) and not list(life.blows()):
            last_line = _last_line(evidence.logs.get(life.pod, ""))
            findings.broken(f"{life.title} ended by itself, with code {life.code}: {last_line}")
    return findings.verdict()


def _last_line(log: str) -> str:
    return next((line for line in reversed(log.splitlines()) if line.strip()), "it logged nothing")
