"""I16: what is called is not run over when it comes back, and breakers move as they should."""

from bisect import bisect_left
from itertools import pairwise

from chaos.checkers.timeline import Timeline, grouped
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence

AFTER_HEAL_S = 10.0
HERD_MIN = 20
"""Fewer calls within a tenth of a second are no herd."""
HERD_SHARE = 0.8
MOVES = {
    "breaker_opened": {"breaker_half_opened", "breaker_forced_closed", "breaker_forced_open"},
    "breaker_half_opened": {
        "breaker_opened",
        "breaker_closed",
        "breaker_forced_closed",
        "breaker_forced_open",
    },
    "breaker_closed": {"breaker_opened", "breaker_forced_open", "breaker_forced_closed"},
    "breaker_forced_open": {
        "breaker_forced_closed",
        "breaker_forced_open",
        "breaker_half_opened",  # after a hold with an end
    },
    "breaker_forced_closed": {"breaker_opened", "breaker_forced_open", "breaker_forced_closed"},
}


def check(evidence: Evidence) -> Verdict:
    findings = Findings(
        "I16", "no herd of calls after an outage, breakers change state as they may"
    )
    changes = [fact for fact in evidence.facts if fact["subtype"] in MOVES]
    for name, path in grouped(changes, "source").items():
        findings.look(len(path))
        if path[0]["subtype"] not in MOVES["breaker_closed"]:
            findings.broken(f"breaker {name} began with {path[0]['subtype']}")
        for before, after in pairwise(path):
            if after["subtype"] not in MOVES[before["subtype"]]:
                told = f"{before['subtype']} → {after['subtype']}"
                findings.broken(f"breaker {name} went {told} at {after['at']}")
    calls = sorted(call.at_s for call in evidence.model_calls)
    for trouble in Timeline.of(evidence).troubles:
        since_s = trouble.ended_s
        herd = calls[bisect_left(calls, since_s) : bisect_left(calls, since_s + AFTER_HEAL_S)]
        findings.look(len(herd[:1]))
        burst = _peak(herd, 0.1)
        if len(herd) >= HERD_MIN and burst > HERD_SHARE * len(herd):
            findings.broken(
                f"{burst} of {len(herd)} model calls after {since_s:.1f} s came at once"
            )
    return findings.verdict(
        calls=len(calls), peak_per_s=_peak(calls, 1.0), breaker_changes=len(changes)
    )


def _peak(instants: list[float], within_s: float) -> int:
    """The most of them within so many seconds."""
    return max(
        (bisect_left(instants, at_s + within_s) - n for n, at_s in enumerate(instants)), default=0
    )
