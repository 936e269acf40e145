"""I35: jobs whose code changes while they run complete, by steps of one release, and act once."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final
from uuid import UUID

from chaos.checkers.timeline import TERMINAL, Timeline, key_of
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence, Row

PREFIX: Final = "deploy_"
RIVALS: Final = ({"pay", "charge"}, {"load", "fetch"})
"""Steps of which a job makes one: the releases name them differently."""


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I35", "no job fails, or acts twice, because its code changed")
    jobs = {row["id"]: row for row in evidence.jobs if row["type"].startswith(PREFIX)}
    findings.count(len(jobs))
    steps: defaultdict[UUID, set[str]] = defaultdict(set)
    for row in evidence.steps:
        steps[row["job_id"]].add(row["key"])
    paid = Counter(each.account.split(":")[1] for each in evidence.applications)
    must_have_ended = Timeline.of(evidence).is_at_rest
    for job_id, row in jobs.items():
        for why in _problems(
            row, steps[job_id], times=paid[key_of(row)], must_have_ended=must_have_ended
        ):
            findings.broken(f"{row['type']} {key_of(row)} {why}", job=job_id)
    for row in evidence.dead_letters:
        if row["job_id"] in jobs:
            findings.broken(f"{key_of(jobs[row['job_id']])} has a dead letter", job=row["job_id"])
    completed = sum(row["status"] == "COMPLETED" for row in jobs.values())
    return findings.verdict(completed=completed)


def _problems(job: Row, steps: set[str], *, times: int, must_have_ended: bool) -> Iterator[str]:
    status = job["status"]
    if status != "COMPLETED" and (must_have_ended or status in TERMINAL):
        yield f"is {status}: {job['error_message']}"
    if status == "COMPLETED" and times != 1:
        yield f"has acted {times} times"
    for rivals in RIVALS:
        if rivals <= steps:
            yield f"has made both {' and '.join(sorted(rivals))}"
