"""I39: what is paused starts nothing, from the commit of the pause until it is resumed.

A claim that came before that commit may still take jobs, however late it ends; one that comes after
it must not. The observer notes a pause as its transaction commits, and the grace is the time that
this commit takes.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from attrs import frozen

from chaos.checkers.timeline import Timeline, of_kind
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence, Row

GRACE = timedelta(seconds=1.0)
DEFAULT = "queue:default"


@frozen
class Held:
    """A pause from its commit to its end; None: there was none."""

    kind: str
    name: str
    since: datetime
    until: datetime | None

    @property
    def target(self) -> str:
        """What people call it."""
        if (self.kind, self.name) == ("queue", ""):
            return DEFAULT
        return f"{self.kind}:{self.name}" if self.name else self.kind

    def covers(self, job: Row) -> bool:
        return self.kind == "all" or self.name == {
            "type": job["type"],
            "tenant": job.get("tenant"),
            "queue": job["queue_name"] or "",
            "job": str(job["id"]),
        }.get(self.kind)

    def forbids(self, claim: Row) -> bool:
        """Whether a claim of a covered job saw the pause."""
        is_over = self.until is not None and claim["at"] >= self.until
        return claim["began"] > self.since + GRACE and not is_over


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I39", "what is paused starts nothing until it is resumed")
    pauses = [*_pauses(evidence)]
    jobs = {job["id"]: job for job in evidence.jobs}
    is_at_rest = Timeline.of(evidence).is_at_rest
    for held in pauses:
        findings.count()
        if held.until is None and is_at_rest:
            findings.broken(f"{held.target} is paused for ever")
        for claim in evidence.claims:
            job = jobs.get(claim["job_id"])
            if job is not None and held.forbids(claim) and held.covers(job):
                late_s = (claim["began"] - held.since).total_seconds()
                findings.broken(
                    f"attempt {claim['attempt']} of job {job['id']} began {late_s:.2f} s after "
                    f"{held.target} was paused",
                    job=job["id"],
                )
    there = {held.target for held in pauses}
    for event in of_kind(evidence, "pause", "ok"):
        if event.value["target"] not in there:
            findings.broken(f"the pause of {event.value['target']} was acknowledged and is lost")
    return findings.verdict(pauses=len(pauses))


def _pauses(evidence: Evidence) -> Iterator[Held]:
    """Each pause with its end: the next one that was noted of the same target."""
    begun: dict[tuple[str, str], datetime] = {}
    for row in evidence.pauses:
        named = (row["kind"], row["name"])
        if not row["is_over"]:
            begun[named] = row["at"]
        elif named in begun:
            yield Held(*named, since=begun.pop(named), until=row["at"])
    for (kind, name), since in begun.items():
        yield Held(kind, name, since, None)
