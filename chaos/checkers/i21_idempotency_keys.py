"""I21: under one key the same request makes one job, and another request is refused."""

from collections import Counter

from attrs import define, field

from chaos.checkers.timeline import key_of, of_kind, operations_of
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence

REFUSED = "key_reused"


@define
class _Key:
    """What was asked for under one key, and what of it was taken."""

    first: str
    jobs: set[str] = field(factory=set)
    taken: list[str] = field(factory=list)
    refused: list[str] = field(factory=list)


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I21", "one key is one job, whoever asks again")
    keys = _keys(evidence)
    for key, asked in keys.items():
        findings.look(len(asked.taken) + len(asked.refused))
        if len(asked.jobs) > 1:
            told = ", ".join(sorted(asked.jobs))
            findings.broken(f"key {key} was answered with {len(asked.jobs)} jobs: {told}")
        if (count := len(set(asked.taken))) > 1:
            findings.broken(f"key {key} was taken for {count} different requests")
        if {asked.first, *asked.taken}.intersection(asked.refused):
            findings.broken(f"key {key} was refused for the request that it stands for")
    # A job that goes on from a failed one has its payload, not its key.
    own = (job for job in evidence.jobs if operations_of(job) and job["origin_id"] is None)
    for key, count in Counter(key_of(job) for job in own).items():
        if count > 1:
            ids_there = [job["id"] for job in evidence.jobs if key_of(job) == key]
            findings.broken(f"key {key} made {count} jobs", job=ids_there[-1])
    return findings.verdict(
        keys=sum(bool(asked.taken) for asked in keys.values()),
        repeats=sum(max(0, len(asked.taken) - 1) for asked in keys.values()),
        refused=sum(len(asked.refused) for asked in keys.values()),
    )


def _keys(evidence: Evidence) -> dict[str, _Key]:
    keys: dict[str, _Key] = {}
    bodies: dict[tuple[str, str], str] = {}
    for event in of_kind(evidence, "submit"):
        key, who = event.value["key"], (event.process, event.value["key"])
        if event.type == "invoke":
            bodies[who] = str(event.value.get("body", ""))
            keys.setdefault(key, _Key(bodies[who]))
            continue
        asked, body = keys.setdefault(key, _Key("")), bodies.get(who, "")
        if event.type == "ok":
            asked.jobs.add(str(event.value["job"]))
            asked.taken.append(body)
        elif event.value.get("code") == REFUSED:
            asked.refused.append(body)
    return keys
