"""I26: when a pod dies and nothing else is broken, its jobs run elsewhere within two seconds."""

from collections.abc import Iterator
from typing import Final

from chaos.checkers.timeline import Life, Timeline, quantile
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence, Row

QUIET_KILL: Final = "quiet-kill"
"""Name of the fault that kills a pod while nothing else is broken."""
WITHIN_S: Final = 2.0
KILLED: Final = -9
TAKEN_OVER: Final = frozenset({"pod_died", "lease_expired"})


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I26", "a dead pod's jobs run elsewhere within 2 s, all else being well")
    timeline = Timeline.of(evidence)
    if not timeline.has_clock:
        return findings.verdict(unknown="no sample of the probe has the database's clock")
    taken_s = []
    for row, life, took_s in takeovers(evidence, timeline):
        if not is_quiet(timeline, life, life.died_s + took_s):
            continue
        findings.count()
        taken_s.append(took_s)
        if took_s > WITHIN_S:
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
