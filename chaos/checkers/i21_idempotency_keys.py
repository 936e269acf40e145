"""I21: under one key the same request makes one job, and another request is refused."""

from collections import Counter

from chaos.checkers.timeline import key_of, of_kind, operations_of
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I21", "one key is one job, whoever asks again")
    jobs: dict[str, set[str]] = {}
    bodies: dict[str, set[str]] = {}
    repeats = 0
    bodies_asked: dict[tuple[str, str], str] = {}
    for event in of_kind(evidence, "submit"):
        key, who = event.value["key"], (event.process, event.value["key"])
        if event.type == "invoke":
            bodies_asked[who] = str(event.value.get("body", ""))
        elif event.type == "ok":
            findings.look()
            repeats += key in jobs
            jobs.setdefault(key, set()).add(str(event.value["job"]))
            bodies.setdefault(key, set()).add(bodies_asked.get(who, ""))
    for key, ids in jobs.items():
        if len(ids) > 1:
            findings.broken(
                f"key {key} was answered with {len(ids)} jobs: {', '.join(sorted(ids))}"
            )
        if len(bodies[key]) > 1:
            findings.broken(f"key {key} was taken for {len(bodies[key])} different requests")
    # A job that goes on from a failed one has its payload, not its key.
    own = (job for job in evidence.jobs if operations_of(job) and job["origin_id"] is None)
    for key, count in Counter(key_of(job) for job in own).items():
        if count > 1:
            ids_there = [job["id"] for job in evidence.jobs if key_of(job) == key]
            findings.broken(f"key {key} made {count} jobs", job=ids_there[-1])
    return findings.verdict(keys=len(jobs), repeats=repeats)
