"""I37: log lines are those of their attempt, each once and in order, and missing ones are counted.

Programs number the lines of each operation that logs. A pod that is killed may lose the last ones.
"""

import json
from collections.abc import Iterator, Sequence

from chaos.checkers.timeline import Timeline, grouped, operations_of
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence, Row
from chaos.workloads.program import LINES, Op

LOST = "log lines lost"
"""What a pod logs that could not store all lines before it had to end."""
HARMLESS = frozenset({"drain", "second-term"})
"""Faults that cost no line."""
LEAVES_S = 15.0
"""Before its end; it tries for two seconds to store the last lines."""


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I37", "log lines are true, each once, and missing ones are counted")
    timeline = Timeline.of(evidence)
    lines = grouped(evidence.log_lines, "job_id")
    steps = grouped(evidence.steps, "job_id")
    dropped = 0
    for job in evidence.jobs:
        logging = _logging(job)
        if not logging:
            continue
        findings.count()
        attempts = grouped(lines.get(job["id"], ()), "attempt")
        for attempt, rows in attempts.items():
            dropped += _dropped(rows)
            for why in _wrong(job, attempt, rows):
                findings.broken(f"job {job['id']}, attempt {attempt}: {why}")
        for step in steps.get(job["id"], ()):
            of_place = step["key"].partition(":")[0]
            place = int(of_place) if of_place.isdecimal() else None  # a message's, for example
            if place in logging and _must_be_whole(step, timeline, evidence):
                rows = attempts.get(step["attempt"], [])
                missing = logging[place] - len(_numbers(rows, place)) - _dropped(rows)
                if missing > 0:
                    findings.broken(f"job {job['id']}: the last {missing} lines of {place}")
    return findings.verdict(lines=len(evidence.log_lines), dropped=dropped)


def _logging(job: Row) -> dict[int, int]:
    """Return how many lines each place of a program writes."""
    operations = enumerate(operations_of(job))
    return {place: LINES[Op(each["op"])] for place, each in operations if Op(each["op"]) in LINES}


def _wrong(job: Row, attempt: int, rows: Sequence[Row]) -> Iterator[str]:
    if not 1 <= attempt <= job["attempt"]:
        yield f"the job has had {job['attempt']} attempts"
    lost = 0
    for place in _logging(job):
        numbers = _numbers(rows, place)
        if len(set(numbers)) < len(numbers):
            yield f"lines of {place} are stored twice"
        elif numbers != sorted(numbers):
            yield f"the lines of {place} are not in their order"
        lost += max(numbers, default=-1) + 1 - len(set(numbers))
    if lost > _dropped(rows):
        yield f"{lost} lines are missing between others, and {_dropped(rows)} are counted"


def _numbers(rows: Sequence[Row], place: int) -> list[int]:
    own = (row["fields"] for row in rows if row["fields"] and row["fields"].get("place") == place)
    return [fields["n"] for fields in own]


def _dropped(rows: Sequence[Row]) -> int:
    return sum(row["dropped"] or 0 for row in rows)


def _must_be_whole(step: Row, timeline: Timeline, evidence: Evidence) -> bool:
    """Whether all lines of a step must be there: its pod was not killed, and could store them.

    A pod that leaves stores what it has; whatever else broke meanwhile, it tries again.
    """
    own = (step["job_id"], step["attempt"])
    claims = (row for row in evidence.claims if (row["job_id"], row["attempt"]) == own)
    life = timeline.life_of(next((row["pod_id"] for row in claims), None))
    if life is None or life.code not in (0, None) or life.first("SIGKILL") is not None:
        return False
    from_s, to_s = life.ended_s - LEAVES_S, life.ended_s
    is_hit = any(
        trouble.nemesis not in HARMLESS
        and trouble.began_s <= to_s
        and from_s <= trouble.ended_s
        and (not trouble.places or life.place in trouble.places)
        for trouble in timeline.troubles
    )
    losses = _losses(evidence.logs.get(life.pod, ""))
    if is_hit:
        return not losses
    # On an overloaded machine a pod may fail to store them, but it must have tried.
    has_tried = any(loss["timed_out"] or loss["failures"] for loss in losses)
    return not (timeline.is_overloaded(from_s, to_s) and has_tried)


def _losses(log: str) -> list[Row]:
    return [json.loads(line) for line in log.splitlines() if f'"event": "{LOST}"' in line]
