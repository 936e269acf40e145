"""I22: pods hold no more connections than they need after the run; no worker outlives its pod."""

from chaos.checkers.timeline import Timeline, of_kind
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence

PER_POD = 7
"""The pool's four, the heartbeat's, and the two that listen."""
OTHERS = 8
"""Those of the clients and of the approver."""
SETTLED_S = 5.0
"""How long a dead client's session may remain."""


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I22", "no connection is leaked: at rest there are as many as pods need")
    timeline = Timeline.of(evidence)
    for event in of_kind(evidence, "outlived"):
        count = len(event.value["workers"])
        findings.broken(f"{event.process}.{event.value['life']} was outlived by {count} workers")
    rest_s = timeline.phases.get("quiet")
    if rest_s is None:
        return findings.verdict(unknown="the run never came to rest")
    until_s = timeline.phases.get("end", timeline.samples[-1].at_s if timeline.samples else 0.0)
    most = 0
    for sample in timeline.samples:
        if not rest_s - 1.0 <= sample.at_s <= until_s or _has_news(timeline, sample.at_s):
            continue
        alive = sum(life.began_s <= sample.at_s < life.ended_s for life in timeline.lives)
        findings.count()
        count, bound = sample.value["sessions"], PER_POD * alive + OTHERS
        most = max(most, count)
        if count > bound:
            findings.broken(
                f"at {sample.at_s:.1f} s, at rest, {alive} pods held {count} connections, "
                f"the limit is {bound}"
            )
        for slow in sample.value["slow"]:
            if slow["what"] == "idle in transaction":
                findings.broken(
                    f"at {sample.at_s:.1f} s, at rest, backend {slow['pid']} was idle in a "
                    f"transaction for {slow['for_s']:.1f} s: {slow['query']}"
                )
    return findings.verdict(sessions_at_rest=most)


def _has_news(timeline: Timeline, at_s: float) -> bool:
    """Whether a pod started or ended shortly before."""
    return any(
        0 <= at_s - changed_s <= SETTLED_S
        for life in timeline.lives
        for changed_s in (life.began_s, life.ended_s)
    )
