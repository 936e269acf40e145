"""I13: nothing grows without bound.

No session keeps old rows alive, dead rows are vacuumed, tables are as large as their jobs need, and
no task waits on while slots are free. The bounds depend on the number of jobs and heartbeats.
"""

from chaos.checkers.calm import Calm
from chaos.checkers.timeline import Timeline
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence

SNAPSHOT_MAX_S = 20.0
"""Statements end after 5 s, idle transactions after 10 s."""
DEAD_LEAST = 2_000
DEAD_PER_JOB = 150
"""Measured: 31 per job, with 60 jobs, many faults and no vacuum."""
UNCLEARED_S = 120.0
"""Autovacuum checks tables once a minute; until then each heartbeat leaves a dead row."""
GROWN_LEAST = 8_000_000
GROWN_PER_JOB = 200_000
"""In bytes. Measured: 34,000 per job with 60 jobs, including indexes and dead rows."""
SLACK_S = 5.0
"""Allowance for a busy machine, added to a poll."""


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I13", "old rows are cleared away, tables and waits stay bounded")
    timeline = Timeline.of(evidence)
    calm = Calm.of(timeline)
    jobs, settings = len(evidence.jobs), evidence.settings
    pods = len({life.place for life in timeline.lives})
    dead_bound = DEAD_LEAST + DEAD_PER_JOB * jobs + pods * UNCLEARED_S / settings.heartbeat_s
    grown_bound = GROWN_LEAST + GROWN_PER_JOB * jobs
    due_bound_s = settings.poll_s + SLACK_S
    oldest_s, dead_max, grown_max, due_max_s = 0.0, 0, 0, 0.0
    for sample in timeline.samples:
        findings.count()
        held_s, dead = sample.value["snapshot_s"], sum(sample.value["dead_rows"].values())
        grown = sample.value["size_bytes"] - timeline.samples[0].value["size_bytes"]
        due_s = sample.value["oldest_due_s"]
        calm_s = calm.longest_s(sample.at_s - due_s, sample.at_s)
        oldest_s, dead_max = max(oldest_s, held_s), max(dead_max, dead)
        grown_max, due_max_s = max(grown_max, grown), max(due_max_s, due_s)
        if held_s > SNAPSHOT_MAX_S:
            findings.broken(f"at {sample.at_s:.1f} s a session kept a snapshot for {held_s:.0f} s")
        if dead > dead_bound:
            findings.broken(f"at {sample.at_s:.1f} s there were {dead} dead rows of {jobs} jobs")
        if grown > grown_bound:
            findings.broken(
                f"at {sample.at_s:.1f} s the tables had grown by {grown / 1e6:.0f} MB for {jobs} "
                "jobs"
            )
        if calm_s > due_bound_s:
            findings.broken(
                f"at {sample.at_s:.1f} s a task had been due for {due_s:.1f} s, of which "
                f"{calm_s:.1f} s in a row were calm"
            )
    return findings.verdict(
        snapshot_max_s=oldest_s,
        dead_rows_max=dead_max,
        grown_bytes_max=grown_max,
        due_max_s=due_max_s,
    )
