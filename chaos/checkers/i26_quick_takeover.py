"""I26: when a pod dies and nothing else is broken, its jobs run elsewhere within two seconds.

On an overloaded machine a takeover may be later, by how late the pods' loops and the probe were at
the same time; it is not judged if that is more than the two seconds.
"""

from collections.abc import Iterator
from typing import Final

from chaos.checkers.timeline import Life, Timeline, quantile
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence, Row

QUIET_KILL: Final = "quiet-kill"
"""Name of the fault that kills a pod while nothing else is broken."""
WITHIN_S: Final = 2.0
DELAYS: Final = 5
"""How often the machine can delay a takeover: two polls, a statement, a notice and a claim."""
KILLED: Final = -9
TAKEN_OVER: Final = frozenset({"pod_died", "lease_expired"})


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I26", "a dead pod's jobs run elsewhere within 2 s, all else being well")
    timeline = Timeline.of(evidence)
    if not timeline.has_clock:
        return findings.verdict(unknown="no sample of the probe has the database's clock")
    taken_s, late = [], [0.0]
    for row, life, took_s in takeovers(evidence, timeline):
        to_s = life.died_s + took_s
        if not is_quiet(timeline, life, to_s):
            continue
        late_s = _late_s(evidence, timeline, life.died_s, to_s)
        if late_s > WITHIN_S:
            continue
        findings.count()
        taken_s.append(took_s)
        late.append(late_s)
        if took_s - late_s > WITHIN_S:
            why = (
                f"job {row['job_id']} of {life.title} ran elsewhere {took_s:.2f} s after its death"
            )
            findings.broken(why, job=row["job_id"])
    kills = sum(trouble.nemesis == QUIET_KILL for trouble in timeline.troubles)
    unknown = None
    if kills and not taken_s:
        unknown = f"none of {kills} quiet kills was measured: the machine was overloaded"
    return findings.verdict(
        unknown=unknown,
        p50_s=quantile(taken_s, 0.5),
        p99_s=quantile(taken_s, 0.99),
        worst_s=max(taken_s, default=None),
        late_s=max(late),
    )


def takeovers(evidence: Evidence, timeline: Timeline) -> Iterator[tuple[Row, Life, float]]:
    """Each attempt that its pod's death ended, that pod, and the seconds until the next claim.

    Needs a clock. Only a SIGKILL is a death: a silent pod has not died.
    """
    claims = {(row["job_id"], row["attempt"]): row for row in evidence.claims}
    for attempt in evidence.attempts:
        life = timeline.life_of(attempt["pod_id"])
        after = claims.get((attempt["job_id"], attempt["attempt"] + 1))
        if attempt["outcome"] not in TAKEN_OVER or life is None or after is None:
            continue
        next_s = timeline.at_s(after["at"])
        if life.code == KILLED and next_s >= life.died_s:
            yield attempt, life, next_s - life.died_s


def is_quiet(timeline: Timeline, life: Life, to_s: float) -> bool:
    """Whether a quiet kill ended this pod, and nothing else was broken until then."""
    return any(
        trouble.nemesis == QUIET_KILL
        and trouble.places == {life.place}
        and abs(trouble.began_s - life.died_s) < 1.0
        for trouble in timeline.troubles
    ) and not timeline.troubled_besides(life, life.died_s, to_s)


def _late_s(evidence: Evidence, timeline: Timeline, from_s: float, to_s: float) -> float:
    """How much later the machine may have made a takeover; 0 if it was not overloaded."""
    if not timeline.is_overloaded(from_s, to_s):
        return 0.0
    until_s = to_s + evidence.settings.heartbeat_s  # a heartbeat reports the time before it
    lags = (b["lag_s"] for b in evidence.beats if from_s <= timeline.at_s(b["at"]) <= until_s)
    waits = (
        late_s
        for begin_s, end_s, late_s in timeline.late_samples()
        if begin_s <= to_s and from_s <= end_s
    )
    late_s: float = max(lags, default=0.0) + max(waits, default=0.0)
    return DELAYS * late_s
