"""What happened to one job, from everywhere that tells of it, in the order of time."""

from collections.abc import Iterable, Iterator
from uuid import UUID

from attrs import frozen

from chaos.checkers.timeline import Timeline, key_of
from chaos.evidence import Evidence, Row


@frozen(kw_only=True, order=True)
class Line:
    """One thing that happened."""

    at_s: float
    who: str
    what: str


@frozen(kw_only=True)
class Story:
    """All that happened to a job."""

    job: Row
    key: str
    lines: tuple[Line, ...]


def stories(evidence: Evidence, jobs: Iterable[UUID]) -> list[Story]:
    """Those of these jobs; of some that are gone there is nothing to tell."""
    timeline = Timeline.of(evidence)
    told = []
    for job_id in dict.fromkeys(jobs):
        job = evidence.job(job_id)
        if job is None:
            continue
        lines = sorted((*_outside(evidence, job), *_record(evidence, job, timeline)))
        told.append(Story(job=job, key=key_of(job) or str(job_id), lines=tuple(lines)))
    return told


def _outside(evidence: Evidence, job: Row) -> Iterator[Line]:
    """What clients, people, the ledger and the model tell."""
    key = key_of(job)
    own = {str(row["id"]) for row in (*evidence.effects, *evidence.approvals) if _is_of(row, job)}
    for event in evidence.events:
        value = event.value
        subject = value.get("approval", value.get("effect"))
        if (key and value.get("key") == key) or subject in own:
            rest = {n: v for n, v in value.items() if n not in ("key", "approval", "effect")}
            told = ", ".join(f"{name} {value}" for name, value in rest.items())
            yield Line(
                at_s=event.at_s, who=event.process, what=f"{event.kind} {event.type}: {told}"
            )
    for call in evidence.applications:
        if call.account.partition(":")[2].rpartition(":")[0] == key:
            what = f"applied {call.account} for attempt {call.attempt}, key {call.key}"
            yield Line(at_s=call.at_s, who="ledger", what=what)
    for asked in evidence.model_calls:
        if key and asked.conversation.partition("/")[0] == key:
            what = f"call {asked.number} of {asked.conversation}: {asked.outcome}"
            yield Line(at_s=asked.at_s, who="model", what=what)


def _record(evidence: Evidence, job: Row, timeline: Timeline) -> Iterator[Line]:
    """What the record tells, once its clock can be put beside the run's."""
    if not timeline.has_clock:
        return
    for row in _of(evidence.claims, job):
        life = timeline.life_of(row["pod_id"])
        who = str(row["pod_id"]) if life is None else life.title
        what = f"claimed it, attempt {row['attempt']}"
        yield Line(at_s=timeline.at_s(row["at"]), who=who, what=what)
    for row in _of(evidence.transitions, job):
        told = ", ".join(f"{k} {v}" for k, v in row["metadata"].items() if v is not None)
        what = f"{row['previous'] or 'nothing'} → {row['new']}, attempt {row['attempt']}. {told}"
        yield Line(at_s=timeline.at_s(row["at"]), who="history", what=what)
    for row in _of(evidence.attempts, job):
        life = timeline.life_of(row["pod_id"])
        who = "record" if life is None else life.title
        why = f": {row['error']}" if row.get("error") else ""
        what = f"attempt {row['attempt']} ended, {row['outcome']}{why}"
        yield Line(at_s=timeline.at_s(row["ended_at"]), who=who, what=what)
    for row in _of(evidence.steps, job):
        what = f"step {row['seq']}, {row['key']}, by attempt {row['attempt']}"
        yield Line(at_s=timeline.at_s(row["finished_at"]), who="step", what=what)
    for row in _of(evidence.effects, job):
        what = f"intent of {row['key']}, now {row['status']}: {row['id']}"
        yield Line(at_s=timeline.at_s(row["created_at"]), who="effect", what=what)


def _of(rows: tuple[Row, ...], job: Row) -> Iterator[Row]:
    return (row for row in rows if row["job_id"] == job["id"])


def _is_of(row: Row, job: Row) -> bool:
    return bool(row["job_id"] == job["id"])
