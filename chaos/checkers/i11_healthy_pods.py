"""I11: a pod that beats is left alone; one that does not lets go by itself.

The database saw each heartbeat. No job is taken from a pod for the silence of another, or for a
blink: its lock must have been free at two looks. And a pod that could not say that it lives for
three fifths of the threshold has stopped its jobs, before others may take them. After the server's
start nobody is swept for a whole threshold: until then nobody could say that he lives.
"""

import math
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from uuid import UUID

from chaos.checkers.timeline import CALM_AFTER_S, Timeline, grouped, quantile
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence, Row

LOOKS_APART = timedelta(seconds=0.5)
FENCE_SHARE = 0.6
"""Of the threshold: 180 s of 300 s."""
FENCE_SLACK_S = 0.5
"""What the pod's own loop may be late."""
IN_FLIGHT_S = 0.1
"""So much later than its pod has died may the server write a heartbeat that was on its way."""
GAP_PERIODS_MAX = 2.0
GAPS_MIN = 100
"""Of fewer, one per cent is less than one: a single late heartbeat would be judged."""
LAG_SHARE = 0.5
"""A loop that was late for that much of a gap is why there was one."""
EARLY_S = 0.05
START_SLACK_S = 0.2
"""The start is reckoned from what the probe saw."""
IN_FLIGHT = 1
"""Writes of a job that were on their way when its pod let go."""
LOST = ("pod_died", "lease_expired")


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I11", "healthy pods keep their jobs, silent ones let go of them")
    timeline = Timeline.of(evidence)
    if not (evidence.beats and timeline.has_clock):
        return findings.verdict(unknown="heartbeats were not observed")
    # That it is dead, somebody else has written.
    beats = grouped((beat for beat in evidence.beats if beat["state"] != "DEAD"), "pod_id")
    for row in evidence.attempts:
        if row["outcome"] in LOST:
            findings.look()
            for why in _reclaim(row, beats.get(row["pod_id"], []), timeline, evidence):
                findings.broken(f"job {row['job_id']}: {why}", job=row["job_id"])
    _sweeps(evidence, timeline, findings)
    gaps = [gap for pod_id, rows in beats.items() for gap in _healthy_gaps(pod_id, rows, timeline)]
    findings.look(len(gaps))
    p99_s = quantile(gaps, 0.99)
    settings = evidence.settings
    bound_s = GAP_PERIODS_MAX * settings.heartbeat_s + settings.clock_step_s
    if p99_s is not None and p99_s > bound_s and len(gaps) >= GAPS_MIN:
        findings.broken(
            f"1 % of the heartbeats of healthy pods came {p99_s:.2f} s or more after the one before"
        )
    fences = _fences(evidence, beats, findings)
    return findings.verdict(beats=len(evidence.beats), gap_p99_s=p99_s, fences=fences)


def _reclaim(row: Row, beats: list[Row], timeline: Timeline, evidence: Evidence) -> Iterator[str]:
    """Whether this attempt was taken from a pod that had it, and why that was wrong."""
    at: datetime = row["ended_at"]
    before = [beat for beat in beats if beat["at"] <= at]
    if row["outcome"] == "pod_died" and before and before[-1]["state"] != "STOPPED":
        silent = at - before[-1]["at"]
        if silent < LOOKS_APART - timedelta(seconds=IN_FLIGHT_S):
            yield (
                f"attempt {row['attempt']} was taken from pod {row['pod_id']} "
                f"{silent.total_seconds():.3f} s after its heartbeat: nobody looked twice"
            )
    renewed = _renewed(row, evidence) if row["outcome"] == "lease_expired" else None
    if (
        renewed is not None
        and (at - renewed).total_seconds() < evidence.settings.zombie_s - EARLY_S
    ):
        yield (
            f"attempt {row['attempt']} was swept {(at - renewed).total_seconds():.2f} s after its "
            f"last heartbeat, the threshold is {evidence.settings.zombie_s:g} s"
        )
    life = timeline.life_of(row["pod_id"])
    if life is None:
        return
    at_s = timeline.at_s(at)
    since_s = at_s - evidence.settings.zombie_s - evidence.settings.sweep_s - CALM_AFTER_S
    if life.died_s > at_s and not timeline.troubled(since_s, at_s, place=life.place, after_s=0.0):
        yield f"attempt {row['attempt']} was taken from {life.title}, which was well"


def _sweeps(evidence: Evidence, timeline: Timeline, findings: Findings) -> None:
    """Sweeps too soon after a start of the server."""
    starts = {round(s.value["now"] - s.value["started_s"], 1) for s in timeline.samples}
    for row in evidence.attempts:
        if row["outcome"] != "lease_expired":
            continue
        after = [up_s for at in starts if (up_s := row["ended_at"].timestamp() - at) >= 0]
        up_s = min(after, default=math.inf)
        if up_s < evidence.settings.zombie_s - START_SLACK_S:
            findings.broken(
                f"job {row['job_id']}: attempt {row['attempt']} was swept {up_s:.2f} s after the "
                f"server's start, {evidence.settings.zombie_s:g} s are to pass",
                job=row["job_id"],
            )


def _renewed(row: Row, evidence: Evidence) -> datetime | None:
    """When this attempt was last said to run."""
    key = (row["job_id"], row["attempt"])
    seen = (*evidence.claims, *evidence.renewals)
    return max((s["at"] for s in seen if (s["job_id"], s["attempt"]) == key), default=None)


def _healthy_gaps(pod_id: UUID, beats: list[Row], timeline: Timeline) -> Iterator[float]:
    """Seconds between heartbeats of a pod to which nothing was done, and that was not starved.

    Without those that its loop was late, and those that the probe was, which waits for the same
    machine and the same server.
    """
    life = timeline.life_of(pod_id)
    late = list(_late_looks(timeline))
    for one, next_ in pairwise(beats):
        from_s, to_s = timeline.at_s(one["at"]), timeline.at_s(next_["at"])
        is_starved = next_["lag_s"] > LAG_SHARE * (to_s - from_s)
        if life is None or is_starved or timeline.troubled(from_s, to_s, place=life.place):
            continue
        looks = (late_s for begin_s, end_s, late_s in late if begin_s <= to_s and from_s <= end_s)
        yield to_s - from_s - next_["lag_s"] - max(looks, default=0.0)


def _late_looks(timeline: Timeline) -> Iterator[tuple[float, float, float]]:
    """From when to when the probe waited for a look, and how much longer than it does mostly."""
    spans = [(one.at_s, next_.at_s) for one, next_ in pairwise(timeline.samples)]
    usual_s = quantile([end_s - begin_s for begin_s, end_s in spans], 0.5) or 0.0
    for begin_s, end_s in spans:
        yield begin_s, end_s, max(0.0, end_s - begin_s - usual_s)


def _fences(evidence: Evidence, beats: dict[UUID, list[Row]], findings: Findings) -> int:
    """Silences in which a pod had to let go of its jobs; what they wrote afterwards."""
    fence = timedelta(seconds=FENCE_SHARE * evidence.settings.zombie_s + FENCE_SLACK_S)
    claims = grouped(evidence.claims, "pod_id")
    writes: dict[tuple[UUID, int], list[datetime]] = {}
    for step in evidence.steps:
        writes.setdefault((step["job_id"], step["attempt"]), []).append(step["finished_at"])
    for row in evidence.transitions:
        if row["new"] == "COMPLETED":
            writes.setdefault((row["job_id"], row["attempt"]), []).append(row["at"])
    count = 0
    for pod_id, rows in beats.items():
        for one, next_ in pairwise(rows):
            if next_["at"] - one["at"] <= fence:
                continue
            count += 1
            findings.look()
            for claim in claims.get(pod_id, []):
                if claim["at"] > one["at"]:
                    continue
                key = (claim["job_id"], claim["attempt"])
                late = [at for at in writes.get(key, ()) if at > one["at"] + fence]
                if len(late) > IN_FLIGHT:
                    gap_s = (next_["at"] - one["at"]).total_seconds()
                    findings.broken(
                        f"job {key[0]}: attempt {key[1]} wrote {len(late)} times more after pod "
                        f"{pod_id} had been silent for {gap_s:.1f} s: it did not fence itself",
                        job=key[0],
                    )
    return count
