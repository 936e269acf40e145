"""I29: retention deletes only what nothing refers to, and with an archive only what is in it."""

from collections.abc import Iterator

from chaos.checkers.timeline import of_kind
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence
from chaos.history import Event


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I29", "only old jobs that nothing needs are deleted, once archived")
    there = {str(job["id"]) for job in evidence.jobs}
    deleted = 0
    for event in of_kind(evidence, "old"):
        findings.count()
        deleted += event.value["job"] not in there
        for why in _wrong(event, there, evidence.archived):
            findings.broken(f"old job {event.value['job']} {why}")
    return findings.verdict(deleted=deleted)


def _wrong(event: Event, there: set[str], archived: frozenset[str]) -> Iterator[str]:
    job = event.value["job"]
    if job in there:
        return
    if event.value["is_needed"]:
        yield "was deleted, but a budget refers to it"
    if job not in archived:
        yield "was deleted, but is not in the archive"
