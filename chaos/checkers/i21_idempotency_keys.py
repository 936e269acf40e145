"""I21: with one key, the same request creates one job, and a different request is refused."""

from collections import Counter

from attrs import define, field

from chaos.checkers.timeline import key_of, of_kind, operations_of
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence

REFUSED = "key_reused"


@define
class _Key:
    """The requests sent with one key, and which of them were accepted."""

    first: str
    jobs: set[str] = field(factory=set)
    accepted: list[str] = field(factory=list)
    refused: list[str] = field(factory=list)


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I21", "one key is one job, also for repeated requests")
    keys = _keys(evidence)
    for key, entry in keys.items():
        findings.count(len(entry.accepted) + len(entry.refused))
        if len(entry.jobs) > 1:
            job_ids = ", ".join(sorted(entry.jobs))
            findings.broken(f"key {key} was answered with {len(entry.jobs)} jobs: {job_ids}")
        if (count := len(set(entry.accepted))) > 1:
            findings.broken(f"key {key} was accepted for {count} different requests")
        if {entry.first, *entry.accepted}.intersection(entry.refused):
            findings.broken(f"key {key} was refused for its own request")
    # A job continued from a failed one has its payload, but not its key.
    own = (job for job in evidence.jobs if operations_of(job) and job["origin_id"] is None)
    for key, count in Counter(key_of(job) for job in own).items():
        if count > 1:
            ids_there = [job["id"] for job in evidence.jobs if key_of(job) == key]
            findings.broken(f"key {key} made {count} jobs", job=ids_there[-1])
    return findings.verdict(
        keys=sum(bool(entry.accepted) for entry in keys.values()),
        repeats=sum(max(0, len(entry.accepted) - 1) for entry in keys.values()),
        refused=sum(len(entry.refused) for entry in keys.values()),
    )


def _keys(evidence: Evidence) -> dict[str, _Key]:
    keys: dict[str, _Key] = {}
    bodies: dict[tuple[str, str], str] = {}
    for event in of_kind(evidence, "submit"):
        key, sender = event.value["key"], (event.process, event.value["key"])
        if event.type == "invoke":
            bodies[sender] = str(event.value.get("body", ""))
            keys.setdefault(key, _Key(bodies[sender]))
            continue
        entry, body = keys.setdefault(key, _Key("")), bodies.get(sender, "")
        if event.type == "ok":
            entry.jobs.add(str(event.value["job"]))
            entry.accepted.append(body)
        elif event.value.get("code") == REFUSED:
            entry.refused.append(body)
    return keys
