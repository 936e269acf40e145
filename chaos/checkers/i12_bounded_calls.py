"""I12: every database call ends within its bound, for clients and inside the server."""

from chaos.checkers.timeline import Timeline, quantile
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence

CALL_MAX_S = 15.0
"""For clients: their own bound of 5 s, a reconnect, and a busy machine."""
STATEMENT_MAX_S = 8.0
"""In the server: the statement timeout of 5 s, and the time to notice it."""
OPERATIONS = ("submit", "decide", "resolve", "cancel")


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I12", "every call of the database ends within its bound")
    timeline = Timeline.of(evidence)
    took = _clients(evidence, findings, is_whole=timeline.is_at_rest)
    for sample in timeline.samples:
        findings.count()
        for slow in sample.value["slow"]:
            if slow["what"] == "runs" and slow["for_s"] > STATEMENT_MAX_S:
                findings.broken(
                    f"at {sample.at_s:.1f} s backend {slow['pid']} runs for {slow['for_s']:.1f} s: "
                    f"{slow['query']}"
                )
    return findings.verdict(call_p99_s=quantile(took, 0.99), call_max_s=max(took, default=None))


def _clients(evidence: Evidence, findings: Findings, *, is_whole: bool) -> list[float]:
    """How long each operation took; in a whole history, one without an end is reported."""
    open_: dict[tuple[str, str, str], float] = {}
    took = []
    for event in evidence.events:
        name = (event.process, event.kind, str(next(iter(event.value.values()), "")))
        if event.kind in OPERATIONS and event.type == "invoke":
            open_[name] = event.at_s
            findings.count()
        elif event.kind in OPERATIONS and name in open_:
            took.append(event.at_s - open_.pop(name))
            if took[-1] > CALL_MAX_S:
                findings.broken(
                    f"{event.kind} of {event.process} at {event.at_s:.1f} s took {took[-1]:.1f} s"
                )
    for (process, kind, _), at_s in open_.items() if is_whole else ():
        findings.broken(f"{kind} of {process} at {at_s:.1f} s was never answered")
    return took
