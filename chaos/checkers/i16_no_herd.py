"""I16: a recovered service is not flooded with calls, and breakers change state correctly."""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise

from chaos.checkers.timeline import Timeline, grouped
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence, ModelCall, Row
from chaos.workloads.program import Op, model_of

AFTER_HEAL_S = 10.0
HERD_MIN = 20
"""Fewer calls within a tenth of a second are no herd."""
HERD_SHARE = 0.8
IDLE_S = 60.0
"""A model's answer that has lasted this long proves as much as a complete one."""
SLACK_S = 0.5
"""How far the clocks of the record and of the scripted model may differ."""
EARLY_END = "early_end"
"""A fault of the model, as in `cortex.demo.fault_file`."""
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
        "breaker_half_opened",  # after an override that ends
    },
    "breaker_forced_closed": {"breaker_opened", "breaker_forced_open", "breaker_forced_closed"},
}


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I16", "no herd of calls after an outage, breakers change state correctly")
    changes = [fact for fact in evidence.facts if fact["subtype"] in MOVES]
    for name, path in grouped(changes, "source").items():
        findings.count(len(path))
        if path[0]["subtype"] not in MOVES["breaker_closed"]:
            findings.broken(f"breaker {name} began with {path[0]['subtype']}")
        for before, after in pairwise(path):
            if after["subtype"] not in MOVES[before["subtype"]]:
                change = f"{before['subtype']} → {after['subtype']}"
                findings.broken(f"breaker {name} went {change} at {after['at']}")
    calls = sorted(call.at_s for call in evidence.model_calls)
    timeline = Timeline.of(evidence)
    if timeline.has_clock:
        for name, path in grouped(changes, "source").items():
            for unproven in _unproven(name, path, evidence.model_calls, timeline):
                findings.broken(unproven)
    for trouble in timeline.troubles:
        since_s = trouble.ended_s
        herd = calls[bisect_left(calls, since_s) : bisect_left(calls, since_s + AFTER_HEAL_S)]
        findings.count(len(herd[:1]))
        burst = _peak(herd, 0.1)
        if len(herd) >= HERD_MIN and burst > HERD_SHARE * len(herd):
            findings.broken(
                f"{burst} of {len(herd)} model calls after {since_s:.1f} s came at once"
            )
    return findings.verdict(
        calls=len(calls), peak_per_s=_peak(calls, 1.0), breaker_changes=len(changes)
    )


def _unproven(
    name: str, path: list[Row], calls: tuple[ModelCall, ...], timeline: Timeline
) -> Iterator[str]:
    """When a model's breaker closed by itself although no probe had a complete answer."""
    if not name.startswith("llm:"):
        return
    whole = [call for call in calls if _may_be_whole(call) and _breaker_of(call) == name]
    for before, after in pairwise(path):
        if (before["subtype"], after["subtype"]) != ("breaker_half_opened", "breaker_closed"):
            continue
        since_s, until_s = timeline.at_s(before["at"]), timeline.at_s(after["at"])
        is_proven = any(
            since_s - SLACK_S <= call.at_s and (call.ended_s or call.at_s) <= until_s + SLACK_S
            for call in whole
        )
        if not is_proven and until_s - since_s < IDLE_S:
            yield f"breaker {name} closed at {until_s:.1f} s, but no probe had a complete answer"


def _may_be_whole(call: ModelCall) -> bool:
    """Whether its answer was complete. One without its end is, if it ended after a block."""
    return call.outcome == "answered" or (call.rule or "").endswith(EARLY_END)


def _breaker_of(call: ModelCall) -> str:
    """The breaker of the model that a program's step called."""
    key, _, step = call.conversation.rpartition("/")
    return f"llm:{model_of(Op.RETRY if step.endswith(f':{Op.RETRY}') else Op.MODEL, key)}"


def _peak(instants: list[float], within_s: float) -> int:
    """The most instants within a window of this length."""
    return max(
        (bisect_left(instants, at_s + within_s) - n for n, at_s in enumerate(instants)), default=0
    )
