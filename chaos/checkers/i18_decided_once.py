"""I18: a request is decided once, in time, by a permitted person; only what was approved runs."""

from collections.abc import Iterator

from chaos.checkers.timeline import TERMINAL, Timeline, grouped, of_kind, operations_of
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence, Row
from chaos.history import Event

FINAL = ("approval_approved", "approval_denied", "approval_expired")
TAKEN = ("approved", "denied")


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I18", "each request has one decision, and only approved calls run")
    final = [fact for fact in evidence.facts if fact["subtype"] in FINAL]
    facts = grouped(final, "source")
    votes = grouped(evidence.votes, "approval_id")
    answers: dict[str, list[Event]] = {}
    for event in of_kind(evidence, "decide"):
        answers.setdefault(str(event.value["approval"]), []).append(event)
    is_at_rest = Timeline.of(evidence).is_at_rest
    for approval in evidence.approvals:
        findings.count()
        own = answers.get(str(approval["id"]), [])
        wrong = (
            *_record(approval, facts.get(f"approval:{approval['id']}", [])),
            *_people(approval, own),
            *_credentials(approval, votes.get(approval["id"], [])),
            *(_open(approval, evidence) if is_at_rest else ()),
        )
        for why in wrong:
            findings.broken(f"approval {approval['id']}: {why}", job=approval["job_id"])
    _executed(evidence, findings)
    _passed(evidence, findings)
    races = sum(
        len({e.value.get("by") for e in own if e.type == "invoke"}) > 1 for own in answers.values()
    )
    return findings.verdict(requests=len(evidence.approvals), raced=races)


def _record(approval: Row, facts: list[Row]) -> Iterator[str]:
    if len(facts) > 1:
        decisions = ", ".join(f"{f['subtype']} at {f['at']}" for f in facts)
        yield f"it was decided {len(facts)} times: {decisions}"
    expected = f"approval_{approval['status'].lower()}"
    if facts and facts[-1]["subtype"] != expected:
        yield f"it is {approval['status']}, the facts say {facts[-1]['subtype']}"
    at, expires_at = approval["decided_at"], approval["expires_at"]
    if approval["status"] in ("APPROVED", "DENIED") and at >= expires_at:
        yield f"it was decided at {at}, it had expired at {expires_at}"
    if approval["status"] == "EXPIRED" and at < expires_at:
        yield f"it expired at {at}, there was time until {expires_at}"


def _people(approval: Row, answers: list[Event]) -> Iterator[str]:
    """What people were answered, compared with the record."""
    taken = [e for e in answers if e.type == "ok" and e.value.get("outcome") in TAKEN]
    if len(taken) > 1:
        listed = ", ".join(f"{e.value.get('by')}: {e.value['outcome']}" for e in taken)
        yield f"{len(taken)} people were answered that they decided: {listed}"
    for event in taken[:1]:
        if approval["status"] != event.value["outcome"].upper():
            answer = f"{event.value.get('by')} was answered {event.value['outcome']}"
            yield f"{answer}, but it is {approval['status']}"
        elif approval["decided_by"] != event.value.get("by"):
            yield f"{event.value.get('by')} decided it, but {approval['decided_by']} is recorded"
    requesters = {event.value.get("by") for event in answers if event.type == "invoke"}
    if approval["decided_by"] is not None and answers and approval["decided_by"] not in requesters:
        yield f"{approval['decided_by']} decided it without a request"


def _credentials(approval: Row, votes: list[Row]) -> Iterator[str]:
    """Two people are two credentials, and neither is the one that submitted the job."""
    if approval["status"] != "APPROVED" or approval["people"] == 1:
        return
    counted = {v["credential"] for v in votes if v["digest"] == approval["digest"]}
    if len(counted) < approval["people"]:
        yield f"{approval['people']} people had to agree, but only {len(counted)} credentials did"
    if approval["risk"] == "CRITICAL" and approval["requested_with"] in counted:
        yield f"{approval['requested_with']} requested it and approved it"


def _open(approval: Row, evidence: Evidence) -> Iterator[str]:
    job = evidence.job(approval["job_id"])
    if approval["status"] == "PENDING" and (job is None or job["status"] in TERMINAL):
        yield f"it is PENDING, but its job is {'gone' if job is None else job['status']}"


def _executed(evidence: Evidence, findings: Findings) -> None:
    approvals = {approval["id"]: approval for approval in evidence.approvals}
    for effect in evidence.effects:
        if effect["approval_id"] is None:
            continue
        findings.count()
        approval = approvals.get(effect["approval_id"])
        if approval is None or approval["status"] != "APPROVED":
            state = "missing" if approval is None else approval["status"]
            why = f"effect {effect['id']} ran by an approval that is {state}"
        elif approval["digest"] != effect["digest"]:
            why = f"effect {effect['id']} ran with arguments that were not approved"
        elif effect["created_at"] < approval["decided_at"]:
            why = f"effect {effect['id']} was intended before its approval"
        else:
            continue
        findings.broken(why, job=effect["job_id"])


def _passed(evidence: Evidence, findings: Findings) -> None:
    """A program passes a gate only when it is open."""
    approvals = grouped(evidence.approvals, "job_id")
    steps = grouped(evidence.steps, "job_id")
    for job in evidence.jobs:
        gates = [n for n, op in enumerate(operations_of(job)) if op["op"] == "approval"]
        if not gates or job["origin_id"] is not None:
            continue
        opened = {a["key"] for a in approvals.get(job["id"], []) if a["status"] == "APPROVED"}
        done = [
            int(place)
            for s in steps.get(job["id"], [])
            if (place := s["key"].partition(":")[0]).isdecimal()
        ]
        for gate in gates:
            if f"{gate}:approval" not in opened and (
                job["status"] == "COMPLETED" or any(place > gate for place in done)
            ):
                findings.broken(
                    f"job {job['id']} passed gate {gate}, which was not opened",
                    job=job["id"],
                )
