"""I11: a pod with heartbeats keeps its jobs; a pod without lets them go by itself.

The observer recorded each heartbeat. No job is taken from a pod because another pod is silent, or
for a moment's silence: two polls must have found its lock free, and so must the statement that
takes its jobs, on however busy a machine. A pod that could not send a
heartbeat for three fifths of the threshold stops its jobs before others may take them. After the
server starts, no sweep happens for a whole threshold, since no pod could send a heartbeat earlier.
"""

import math
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from uuid import UUID

from chaos.checkers.timeline import CALM_AFTER_S, Timeline, grouped, quantile
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence, Row

POLLS_APART = timedelta(seconds=0.5)
FENCE_SHARE = 0.6
"""Part of the threshold: 180 s of 300 s."""
FENCE_SLACK_S = 0.5
"""How late the pod's own loop may be."""
SIGNALS = frozenset(
    {
        *("kill", "stop", "drain", "second-term", "point", "quiet-kill"),
        *("kill-worker", "stop-worker"),
    }
)
"""Faults that leave a pod's connections alone until it dies."""
BEATS_APART = 4
"""With so many heartbeats missing, a pod may have lost its connection, and with it its lock."""
IN_FLIGHT_S = 0.1
"""After its pod has died, the server may still write a heartbeat that was in flight this long."""
GAP_PERIODS_MAX = 2.0
GAPS_MIN = 100
"""With fewer, one per cent is less than one, and a single late heartbeat would be judged."""
LAG_SHARE = 0.5
"""A loop that was late for this share of a gap explains the gap."""
EARLY_S = 0.05
START_SLACK_S = 0.2
"""The server's start is estimated from the probe's samples."""
IN_FLIGHT = 1
"""Writes of a job that were in flight when its pod let go."""
LOST = ("pod_died", "lease_expired")


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I11", "healthy pods keep their jobs, silent ones let go of them")
    timeline = Timeline.of(evidence)
    if not (evidence.beats and timeline.has_clock):
        return findings.verdict(unknown="heartbeats were not observed")
    # Another pod wrote that it is dead.
    beats = grouped((beat for beat in evidence.beats if beat["state"] != "DEAD"), "pod_id")
    for row in evidence.attempts:
        if row["outcome"] in LOST:
            findings.count()
            for why in _reclaim(row, beats.get(row["pod_id"], []), timeline, evidence):
                findings.broken(f"job {row['job_id']}: {why}", job=row["job_id"])
    for row in evidence.wrong_deaths:
        why = f"attempt {row['attempt']} was taken from pod {row['pod_id']}, which held its lock"
        findings.broken(f"job {row['job_id']}: {why}", job=row["job_id"])
    _sweeps(evidence, timeline, findings)
    gaps = [gap for pod_id, rows in beats.items() for gap in _healthy_gaps(pod_id, rows, timeline)]
    findings.count(len(gaps))
    p99_s = quantile(gaps, 0.99)
    settings = evidence.settings
    bound_s = GAP_PERIODS_MAX * settings.heartbeat_s + settings.clock_step_s
    if p99_s is not None and p99_s > bound_s and len(gaps) >= GAPS_MIN:
        findings.broken(
            f"1 % of the heartbeats of healthy pods came {p99_s:.2f} s or more after the one before"
        )
    fences = _fences(evidence, beats, timeline, findings)
    return findings.verdict(beats=len(evidence.beats), gap_p99_s=p99_s, fences=fences)


def _reclaim(row: Row, beats: list[Row], timeline: Timeline, evidence: Evidence) -> Iterator[str]:
    """Why it was wrong to take this attempt from its pod, if it was."""
    at: datetime = row["ended_at"]
    before = [beat for beat in beats if beat["at"] <= at]
    if row["outcome"] == "pod_died" and before and before[-1]["state"] != "STOPPED":
        silent = at - before[-1]["at"]
        if silent < POLLS_APART - timedelta(seconds=IN_FLIGHT_S):
            yield (
                f"attempt {row['attempt']} was taken from pod {row['pod_id']} "
                f"{silent.total_seconds():.3f} s after its heartbeat: there were no two polls"
            )
    if row["outcome"] == "pod_died" and before:
        yield from _hasty(row, before[-1], timeline, evidence)
    renewed = _renewed(row, evidence) if row["outcome"] == "lease_expired" else None
    if (
        renewed is not None
        and (at - renewed).total_seconds() < evidence.settings.zombie_s - EARLY_S
    ):
        yield (
            f"attempt {row['attempt']} was swept {(at - renewed).total_seconds():.2f} s after its "
            f"last heartbeat, but the threshold is {evidence.settings.zombie_s:g} s"
        )
    life = timeline.life_of(row["pod_id"])
    if life is None:
        return
    at_s = timeline.at_s(at)
    since_s = at_s - evidence.settings.zombie_s - evidence.settings.sweep_s - CALM_AFTER_S
    if life.died_s > at_s and not timeline.troubled(since_s, at_s, place=life.place, after_s=0.0):
        yield f"attempt {row['attempt']} was taken from {life.title}, which was healthy"


def _hasty(row: Row, beat: Row, timeline: Timeline, evidence: Evidence) -> Iterator[str]:
    """Why it was wrong to take this attempt so soon after its pod was killed, if it was.

    The pod held its lock until then, unless it had lost its connection before.
    """
    life = timeline.life_of(row["pod_id"])
    killed_s = None if life is None else life.first("SIGKILL")
    if life is None or killed_s is None:
        return
    stopped_s = [from_s for from_s, to_s in life.paused() if to_s == killed_s]
    beat_s, at_s = timeline.at_s(beat["at"]), timeline.at_s(row["ended_at"])
    silent_s = min([killed_s, *stopped_s]) - beat_s
    is_connected = silent_s <= BEATS_APART * evidence.settings.heartbeat_s
    is_cut = any(
        trouble.began_s <= at_s and beat_s <= trouble.ended_s and trouble.nemesis not in SIGNALS
        for trouble in timeline.troubles
    )
    dead_s = at_s - killed_s
    if is_connected and not is_cut and 0 <= dead_s < POLLS_APART.total_seconds() - IN_FLIGHT_S:
        yield (
            f"attempt {row['attempt']} was taken from {life.title} {dead_s:.3f} s after its death: "
            "there were no two polls"
        )


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
                f"server's start, but {evidence.settings.zombie_s:g} s must pass",
                job=row["job_id"],
            )


def _renewed(row: Row, evidence: Evidence) -> datetime | None:
    """When this attempt's heartbeat was last written."""
    key = (row["job_id"], row["attempt"])
    heartbeats = (*evidence.claims, *evidence.renewals)
    return max((s["at"] for s in heartbeats if (s["job_id"], s["attempt"]) == key), default=None)


def _healthy_gaps(pod_id: UUID, beats: list[Row], timeline: Timeline) -> Iterator[float]:
    """Seconds between heartbeats of a pod that was neither disturbed nor starved.

    Subtracts the delay of the pod's own loop, and that of the probe, which waits for the same
    machine and server.
    """
    life = timeline.life_of(pod_id)
    late = list(timeline.late_samples())
    for one, next_ in pairwise(beats):
        from_s, to_s = timeline.at_s(one["at"]), timeline.at_s(next_["at"])
        is_starved = next_["lag_s"] > LAG_SHARE * (to_s - from_s)
        if life is None or is_starved or timeline.troubled(from_s, to_s, place=life.place):
            continue
        delays = (late_s for begin_s, end_s, late_s in late if begin_s <= to_s and from_s <= end_s)
        yield to_s - from_s - next_["lag_s"] - max(delays, default=0.0)


def _fences(
    evidence: Evidence, beats: dict[UUID, list[Row]], timeline: Timeline, findings: Findings
) -> int:
    """Count silences in which a pod had to let go of its jobs; report what it wrote afterwards."""
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
            findings.count()
            for claim in claims.get(pod_id, []):
                if claim["at"] > one["at"]:
                    continue
                key = (claim["job_id"], claim["attempt"])
                late = [
                    at
                    for at in writes.get(key, ())
                    if at > one["at"] + fence and not _has_just_resumed(pod_id, at, timeline)
                ]
                if len(late) > IN_FLIGHT:
                    gap_s = (next_["at"] - one["at"]).total_seconds()
                    findings.broken(
                        f"job {key[0]}: attempt {key[1]} wrote {len(late)} more times after pod "
                        f"{pod_id} had been silent for {gap_s:.1f} s: it did not fence itself",
                        job=key[0],
                    )
    return count


def _has_just_resumed(pod_id: UUID, at: datetime, timeline: Timeline) -> bool:
    """Whether a stopped process had just been continued: its fence needs a turn of the loop."""
    life = timeline.life_of(pod_id)
    paused = () if life is None else life.paused()
    return any(0 <= timeline.at_s(at) - to_s <= FENCE_SLACK_S for _, to_s in paused)
