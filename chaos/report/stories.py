"""What happened to one job, from all sources, in the order of time."""

from collections.abc import Iterable, Iterator
from uuid import UUID

from attrs import frozen

from chaos.checkers.timeline import Timeline, key_of
from chaos.evidence import Evidence, Row


@frozen(kw_only=True, order=True)
class Line:
    """One event."""

    at_s: float
    who: str
    what: str


@frozen(kw_only=True)
class Story:
    """Everything that happened to a job."""

    job: Row
    key: str
    lines: tuple[Line, ...]


def stories(evidence: Evidence, jobs: Iterable[UUID]) -> list[Story]:
    """The stories of these jobs; jobs that are gone have none."""
    timeline = Timeline.of(evidence)
    result = []
    for job_id in dict.fromkeys(jobs):
        job = evidence.job(job_id)
        if job is None:
            continue
        lines = sorted((*_outside(evidence, job), *_record(evidence, job, timeline)))
        result.append(Story(job=job, key=key_of(job) or str(job_id), lines=tuple(lines)))
    return result


def _outside(evidence: Evidence, job: Row) -> Iterator[Line]:
    """What clients, people, the ledger and the model did."""
    key = key_of(job)
    own = {str(row["id"]) for row in (*evidence.effects, *evidence.approvals) if _is_of(row, job)}
    for event in evidence.events:
        value = event.value
        subject = value.get("approval", value.get("effect"))
        if (key and value.get("key") == key) or subject in own:
            rest = {n: v for n, v in value.items() if n not in ("key", "approval", "effect")}
            details = ", ".join(f"{name} {value}" for name, value in rest.items())
            yield Line(
                at_s=event.at_s, who=event.process, what=f"{event.kind} {event.type}: {details}"
            )
    for call in evidence.applications:
        if call.account.partition(":")[2].rpartition(":")[0] == key:
            what = f"applied {call.account} for attempt {call.attempt}, key {call.key}"
            yield Line(at_s=call.at_s, who="ledger", what=what)
    for model_call in evidence.model_calls:
        if key and model_call.conversation.partition("/")[0] == key:
            what = f"call {model_call.number} of {model_call.conversation}: {model_call.outcome}"
            yield Line(at_s=model_call.at_s, who="model", what=what)


def _record(evidence: Evidence, job: Row, timeline: Timeline) -> Iterator[Line]:
    """What the record contains; needs a clock that is comparable with the run's."""
    if not timeline.has_clock:
        return
    for row in _of(evidence.claims, job):
        life = timeline.life_of(row["pod_id"])
        who = str(row["pod_id"]) if life is None else life.title
        what = f"claimed it, attempt {row['attempt']}"
        yield Line(at_s=timeline.at_s(row["at"]), who=who, what=what)
    for row in _of(evidence.transitions, job):
        details = ", ".join(f"{k} {v}" for k, v in row["metadata"].items() if v is not None)
        what = f"{row['previous'] or 'nothing'} → {row['new']}, attempt {row['attempt']}. {details}"
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
