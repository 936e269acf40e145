"""What a run measured beside its verdicts: how quickly, how often, how much for nothing."""

from collections import Counter

from attrs import frozen

from chaos.checkers.timeline import Life, Timeline, grouped, quantile
from chaos.evidence import Evidence

ANSWERED = "answered"


@frozen(kw_only=True)
class Spread:
    """Several durations, in seconds; None when there were none."""

    count: int
    p50_s: float | None
    p99_s: float | None
    max_s: float | None


@frozen(kw_only=True)
class Figures:
    """Those of one run."""

    takeovers: Spread
    """From a pod's death to the next attempt of each of its jobs, where nothing else was about."""
    takeovers_in_trouble: Spread
    """The others: the database was away, or the next pod was hit as well."""
    drains: Spread
    """From SIGTERM to the end of the process."""
    handovers: Spread
    """From the handing back of a job to its next attempt, where no other fault was about."""
    paid_twice: int
    """Model calls that were answered, but not for the first time."""
    model_calls: int
    unsafe_doubled: int
    """Effects that were applied again where nothing helps."""
    late_calls: int
    """Effects applied by an attempt that had lost its job by then."""
    deaths: int
    """Pods that ended by a signal that cannot be caught."""


def figures_of(evidence: Evidence) -> Figures:
    """Measure."""
    timeline = Timeline.of(evidence)
    calm, troubled, handovers = _restarts(evidence, timeline)
    answered = Counter(c.conversation for c in evidence.model_calls if c.outcome == ANSWERED)
    return Figures(
        takeovers=_spread(calm),
        takeovers_in_trouble=_spread(troubled),
        drains=_spread(_drains(timeline)),
        handovers=_spread(handovers),
        paid_twice=sum(answered.values()) - len(answered),
        model_calls=len(evidence.model_calls),
        unsafe_doubled=_doubled(evidence),
        late_calls=_late(evidence, timeline),
        deaths=sum(life.code is not None and life.code < 0 for life in timeline.lives),
    )


def _spread(spans: list[float]) -> Spread:
    return Spread(
        count=len(spans),
        p50_s=quantile(spans, 0.5),
        p99_s=quantile(spans, 0.99),
        max_s=max(spans, default=None),
    )


def _restarts(
    evidence: Evidence, timeline: Timeline
) -> tuple[list[float], list[float], list[float]]:
    """How long jobs were without a pod, by why: killed in calm, killed in trouble, handed back."""
    calm: list[float] = []
    troubled: list[float] = []
    handovers: list[float] = []
    if not timeline.has_clock:
        return calm, troubled, handovers
    begun = {(c["job_id"], c["attempt"]): timeline.at_s(c["at"]) for c in evidence.claims}
    for row in evidence.attempts:
        life = timeline.life_of(row["pod_id"])
        next_s = begun.get((row["job_id"], row["attempt"] + 1))
        if life is None or next_s is None:
            continue
        if row["outcome"] == "pod_died" and life.died_s <= next_s:
            own = _is_calm(timeline, life, life.died_s, next_s)
            (calm if own else troubled).append(next_s - life.died_s)
        elif row["outcome"] == "handed_back":
            ended_s = timeline.at_s(row["ended_at"])
            if _is_calm(timeline, life, ended_s, next_s):
                handovers.append(next_s - ended_s)
    return calm, troubled, handovers


def _is_calm(timeline: Timeline, life: Life, from_s: float, to_s: float) -> bool:
    """Whether nothing but what ended this pod's work was about."""
    others = [
        trouble
        for trouble in timeline.troubles
        if trouble.began_s <= to_s and from_s <= trouble.ended_s and trouble.places != {life.place}
    ]
    signalled = any(
        from_s < at_s <= to_s
        for other in timeline.lives
        if other is not life
        for at_s, _ in other.signals
    )
    return not others and not signalled


def _drains(timeline: Timeline) -> list[float]:
    """Of pods that were asked to leave when they were ready, and neither killed nor paused."""
    return [
        life.ended_s - asked_s
        for life in timeline.lives
        if (asked_s := life.first("SIGTERM")) is not None
        and life.ready_s is not None
        and life.ready_s < asked_s
        and life.code is not None
        and life.code >= 0
        and not any(to_s > asked_s for _, to_s in life.paused())
    ]


def _doubled(evidence: Evidence) -> int:
    accounts = Counter(a.account for a in evidence.applications if a.account.startswith("unsafe:"))
    return sum(accounts.values()) - len(accounts)


def _late(evidence: Evidence, timeline: Timeline) -> int:
    """Calls by an attempt although a newer one had begun: no fence of ours reaches these."""
    if not timeline.has_clock:
        return 0
    jobs = {str(effect["id"]): effect["job_id"] for effect in evidence.effects}
    claims = grouped(evidence.claims, "job_id")
    late = 0
    for call in evidence.applications:
        begun = claims.get(jobs.get(call.key), [])
        late += any(
            c["attempt"] > call.attempt and timeline.at_s(c["at"]) < call.at_s for c in begun
        )
    return late
