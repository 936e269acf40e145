"""I13: nothing grows without bound: no session keeps old rows alive, dead ones are cleared away."""

from chaos.checkers.timeline import Timeline
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence

SNAPSHOT_MAX_S = 20.0
"""Statements end after 5 s, idle transactions after 10 s."""
DEAD_MAX = 200_000


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I13", "no session of a pod keeps a snapshot, dead rows stay bounded")
    oldest_s, dead_max = 0.0, 0
    for sample in Timeline.of(evidence).samples:
        findings.look()
        held_s, dead = sample.value["snapshot_s"], sum(sample.value["dead_rows"].values())
        oldest_s, dead_max = max(oldest_s, held_s), max(dead_max, dead)
        if held_s > SNAPSHOT_MAX_S:
            findings.broken(f"at {sample.at_s:.1f} s a session kept a snapshot for {held_s:.0f} s")
        if dead > DEAD_MAX:
            findings.broken(f"at {sample.at_s:.1f} s there were {dead} dead rows")
    return findings.verdict(snapshot_max_s=oldest_s, dead_rows_max=dead_max)
