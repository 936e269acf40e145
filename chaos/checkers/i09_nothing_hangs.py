"""I9: nothing hangs in the database: no silent job, no idle transaction, no long lock wait.

A stopped pod that holds a row lock hides its job from every sweep. Locks taken in different orders
deadlock.
"""

from typing import Any

from chaos.checkers.timeline import Timeline
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence

IDLE_IN_TRANSACTION_S = 10.0
LOCK_S = 2.0
SLACK_S = 2.5


def check(evidence: Evidence) -> Verdict:
    findings = Findings(
        "I9", "no job is silent, no transaction idle, no lock waited for beyond bounds"
    )
    timeline = Timeline.of(evidence)
    settings = evidence.settings
    silent_max_s = settings.zombie_s + 2 * settings.sweep_s + SLACK_S
    bounds = {"idle in transaction": IDLE_IN_TRANSACTION_S, "waits for a lock": LOCK_S}
    longest = dict.fromkeys((*bounds, "silent"), 0.0)
    for sample in timeline.samples:
        findings.count()
        for slow in sample.value["slow"]:
            what, for_s = slow["what"], slow["for_s"]
            if what not in bounds:
                continue
            longest[what] = max(longest[what], for_s)
            if for_s > bounds[what] + SLACK_S:
                findings.broken(
                    f"at {sample.at_s:.1f} s backend {slow['pid']} {what} for {for_s:.1f} s: "
                    f"{slow['query']}"
                )
        # After an outage, no sweep happens for a whole threshold.
        since_s = sample.at_s - silent_max_s - settings.zombie_s
        if not timeline.troubled(since_s, sample.at_s, after_s=0.0):
            for silent in sample.value["silent"]:
                longest["silent"] = max(longest["silent"], silent["for_s"])
                if silent["for_s"] > silent_max_s:
                    findings.broken(
                        f"at {sample.at_s:.1f} s job {silent['job']} had been silent for "
                        f"{silent['for_s']:.1f} s"
                    )
    deadlocks = _deadlocks(timeline)
    if deadlocks:
        findings.broken(f"{deadlocks} deadlocks: locks are not always taken in the same order")
    figures: dict[str, Any] = {
        f"{what.replace(' ', '_')}_max_s": for_s for what, for_s in longest.items()
    }
    return findings.verdict(deadlocks=deadlocks, **figures)


def _deadlocks(timeline: Timeline) -> int:
    """The server's count; its counter restarts at zero after a crash."""
    counts = [sample.value["deadlocks"] for sample in timeline.samples]
    pairs = zip([0, *counts], counts, strict=False)
    return sum(after - before if after >= before else after for before, after in pairs)
