"""I40: jobs of one key obey the rule of their type, however they were submitted.

Two jobs of a singleton's key never run at once: from its first claim to its end a job has begun,
and meanwhile none of the others begins, also while it waits for another attempt. Where the rule
says so, one job has not ended (return, refuse), one waits for its first claim (replace, debounce),
or two are a period apart (throttle). A job exists from the commit of its submit, which the observer
notes: until then, a submit may wait for the transaction that begins or ends the job before.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final
from uuid import UUID

from attrs import frozen

from chaos.checkers.timeline import TERMINAL, Timeline, of_kind
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence, Row
from chaos.workloads.rules import PERIOD_S, RULES, SINGLETONS, Rule

ONE_OPEN: Final = frozenset({Rule.RETURN, Rule.REFUSE})
ONE_WAITS: Final = frozenset({Rule.REPLACE, Rule.DEBOUNCE})
PERIOD: Final = timedelta(seconds=PERIOD_S)
CLOCKS_S: Final = 0.5
"""How far the clocks of the history and of the record may seem to be apart."""

Key = tuple[Rule, str, int]
"""The rule, the tenant and the customer."""


@frozen(kw_only=True)
class Life:
    """A job, from its submit to its end."""

    job: Row
    born: datetime
    begun: datetime | None
    ended: datetime | None


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I40", "jobs of one key run one after another, and wait as their rule says")
    lives = _lives(evidence)
    groups: dict[Key, list[Life]] = {}
    for life in lives.values():
        groups.setdefault(_key(life.job), []).append(life)
    for key, group in groups.items():
        findings.count(len(group))
        for why, job in _broken(key[0], group):
            findings.broken(f"{key[0].job_type} of customer {key[2]}: {why}", job=job)
    answers = [*of_kind(evidence, "ruled", "ok")]
    for why in _answered(evidence, lives):
        findings.broken(why)
    return findings.verdict(keys=len(groups), submits=sum(len(e.value["jobs"]) for e in answers))


def _key(job: Row) -> Key:
    return RULES[job["type"]], job["tenant"], job["payload"]["customer"]


def _lives(evidence: Evidence) -> dict[UUID, Life]:
    begun: dict[UUID, datetime] = {}
    for claim in evidence.claims:
        begun.setdefault(claim["job_id"], claim["at"])
    ended = {row["job_id"]: row["at"] for row in evidence.moves if row["new"] in TERMINAL}
    born = {row["job_id"]: row["at"] for row in evidence.births}
    jobs = {job["id"]: job for job in evidence.jobs}
    return {
        job_id: Life(job=jobs[job_id], born=at, begun=begun.get(job_id), ended=ended.get(job_id))
        for job_id, at in born.items()
        if job_id in jobs
    }


def _broken(rule: Rule, group: list[Life]) -> Iterator[tuple[str, UUID]]:
    if rule in SINGLETONS:
        spans = ((life.begun, life.ended, life) for life in group)
        yield from _overlaps(spans, "began before {other} had ended")
    if rule in ONE_OPEN:
        spans = ((life.born, life.ended, life) for life in group)
        yield from _overlaps(spans, "was submitted before {other} had ended")
    if rule in ONE_WAITS:
        spans = ((life.born, _first(life.begun, life.ended), life) for life in group)
        yield from _overlaps(spans, "was submitted while {other} waited")
    if rule is Rule.THROTTLE:
        for one, next_ in pairwise(sorted(group, key=lambda life: life.job["created_at"])):
            apart = next_.job["created_at"] - one.job["created_at"]
            if apart < PERIOD:
                why = f"came {apart.total_seconds():.3f} s after {one.job['id']}"
                yield f"job {next_.job['id']} {why}", next_.job["id"]


def _first(*instants: datetime | None) -> datetime | None:
    return min((each for each in instants if each is not None), default=None)


def _overlaps(
    spans: Iterable[tuple[datetime | None, datetime | None, Life]], why: str
) -> Iterator[tuple[str, UUID]]:
    """Yield the jobs whose time begins within that of another one; None: it never did.

    What one of its own batch has replaced was over before it was there.
    """
    begun = (
        (since, until, life)
        for since, until, life in spans
        if since is not None and (until is None or since < until)
    )
    ordered = sorted(begun, key=lambda span: span[0])
    for (_, until, before), (since, _, life) in pairwise(ordered):
        if until is None or since < until:
            yield f"job {life.job['id']} {why.format(other=before.job['id'])}", life.job["id"]


def _answered(evidence: Evidence, lives: dict[UUID, Life]) -> Iterator[str]:
    """What a submit got is a job of its key; it had not ended before that was asked for."""
    timeline = Timeline.of(evidence)
    asked_s: dict[int, float] = {}
    for event in of_kind(evidence, "ruled"):
        value = event.value
        number = value["number"]
        asked_s.setdefault(number, event.at_s)
        for job_id in map(UUID, value["jobs"]) if event.type == "ok" else ():
            life = lives.get(job_id)
            what = f"submit {number} of {value['type']} for customer {value['customer']}"
            if life is None or (life.job["type"], life.job["payload"]["customer"]) != (
                value["type"],
                value["customer"],
            ):
                yield f"{what} got job {job_id}, which is not one of its key"
                continue
            rule = RULES[value["type"]]
            if (
                rule is not Rule.THROTTLE
                and timeline.has_clock
                and life.ended is not None
                and timeline.at_s(life.ended) < asked_s[number] - CLOCKS_S
            ):
                yield f"{what} got job {job_id}, which had ended before"
