"""I28: people asked are notified at least once, under one id, and not reminded after the decision.

The sequence of a request's messages is their order, since each is written under the request's lock.
Notifications that jobs send by themselves are not in the outbox: they are judged by their jobs.
"""

from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final
from uuid import UUID, uuid5

from chaos.checkers.timeline import Timeline
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence, Row
from chaos.workloads.program import NOTE, Op

WATCHED: Final = "chaos"
"""Subscriptions whose receivers the run watches begin with this."""
REQUESTED: Final = "approval.requested"
REMINDER: Final = "approval.reminder"
ENDS: Final = ("approval.decided", "approval.expired")
BY_HAND: Final = "requested"
"""The stage of reminders that a job sends; the others come once for each stage."""


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I28", "people asked are notified, and not reminded after the decision")
    accepted = {(d.subscription, d.message) for d in evidence.deliveries if d.is_accepted}
    watched = [each for each in evidence.subscriptions if each["name"].startswith(WATCHED)]
    about = _by_request(evidence)
    by_jobs = {_message(job): job for job in evidence.jobs if job.get("type") == "approval_notify"}
    reminders = 0
    for approval in evidence.approvals:
        for subscription in watched:
            if fnmatchcase(REQUESTED, subscription["topic"]):
                findings.count()
                rows = about.get((str(approval["id"]), subscription["name"]), [])
                reminders += sum(row["topic"] == REMINDER for row in rows)
                for why in (*_asked(approval, rows, accepted), *_reminded(rows, by_jobs)):
                    who = f"{subscription['name']}: approval {approval['id']}"
                    findings.broken(f"{who} {why}", job=approval["job_id"])
    for why in _missing(by_jobs, about):
        findings.broken(why)
    _notes(evidence, accepted, findings)
    return findings.verdict(
        unknown=None if Timeline.of(evidence).is_at_rest else "the run never came to rest",
        reminders=reminders,
    )


def _by_request(evidence: Evidence) -> dict[tuple[str, str], list[Row]]:
    """Messages about requests, in their order, by request and subscription."""
    about: dict[tuple[str, str], list[Row]] = {}
    for row in evidence.messages:
        if row["topic"] in (REQUESTED, REMINDER, *ENDS):
            about.setdefault((row["payload"]["approval"], row["subscription"]), []).append(row)
    return about


def _message(job: Row) -> UUID:
    """The id of the message that a job sends."""
    return uuid5(job["id"], "message")


def _asked(approval: Row, rows: list[Row], accepted: set[tuple[str, str]]) -> Iterator[str]:
    requested = [row for row in rows if row["topic"] == REQUESTED]
    if len(requested) != 1:
        yield f"was requested by {len(requested)} messages"
    for row in requested:
        if row["status"] == "SENT" and (row["subscription"], str(row["id"])) not in accepted:
            yield "is recorded as sent, but nobody was asked"
    ends = [row for row in rows if row["topic"] in ENDS]
    is_over = approval["status"] != "PENDING"
    if len(ends) != is_over:
        yield f"is {approval['status']}, which {len(ends)} messages say"
    for end in ends:
        for row in rows:
            if row["topic"] == REMINDER and row["seq"] > end["seq"]:
                yield f"was reminded of, at {row['payload']['stage']}, after its end"


def _reminded(rows: list[Row], by_jobs: dict[UUID, Row]) -> Iterator[str]:
    reminders = [row for row in rows if row["topic"] == REMINDER]
    stages = Counter(row["payload"]["stage"] for row in reminders)
    for stage, count in stages.items():
        if stage != BY_HAND and count > 1:
            yield f"was reminded of {count} times at {stage}"
    by_hand = [row["id"] for row in reminders if row["payload"]["stage"] == BY_HAND]
    for message, count in Counter(by_hand).items():
        if message not in by_jobs:
            yield f"was reminded of by {message}, which no job sent"
        elif count > 1:
            yield f"was reminded of {count} times by job {by_jobs[message]['id']}"


def _missing(by_jobs: dict[UUID, Row], about: dict[tuple[str, str], list[Row]]) -> Iterator[str]:
    """Reminders that a job reports, and that nobody got."""
    sent = {(row["id"], row["subscription"]) for rows in about.values() for row in rows}
    for message, job in by_jobs.items():
        if job["status"] == "COMPLETED":
            for name in job["result"]["notified"]:
                if (message, name) not in sent:
                    yield f"job {job['id']} reports that it reminded {name}, which got nothing"


def _notes(evidence: Evidence, accepted: set[tuple[str, str]], findings: Findings) -> None:
    """Judge the notifications that jobs send by themselves."""
    jobs = {
        str(_message(job)): job
        for job in evidence.jobs
        if job.get("type") == "send_notification" and job["payload"].get("topic") == NOTE
    }
    findings.count(len(jobs))
    for delivery in evidence.deliveries:
        if delivery.topic == NOTE and delivery.message not in jobs:
            findings.broken(f"{delivery.subscription} got {delivery.message}, which no job sent")
    for message, job in jobs.items():
        if job["status"] != "COMPLETED":
            continue
        result = job["result"]
        if result["message_id"] != message:
            findings.broken(f"job {job['id']} sent it as {result['message_id']}", job=job["id"])
        for name in result["sent"]:
            if name.startswith(WATCHED) and (name, message) not in accepted:
                findings.broken(f"job {job['id']} sent nothing to {name}", job=job["id"])
        if result["is_degraded"] and not any(message in log for log in evidence.logs.values()):
            findings.broken(f"job {job['id']} lost what it could not send", job=job["id"])
    _calls(evidence, jobs, findings)


def _calls(evidence: Evidence, jobs: dict[str, Row], findings: Findings) -> None:
    """Each call that a program made has one job."""
    data = (job["payload"].get("data") or {} for job in jobs.values())
    places = Counter((one.get("key"), one.get("place")) for one in data if "key" in one)
    for (key, place), count in places.items():
        if count > 1:
            findings.broken(f"{count} jobs notify for {place} of {key}")
    known = {str(job["id"]) for job in jobs.values()}
    for step in evidence.steps:
        if step["key"].endswith(f":{Op.NOTIFY}") and step["output"]["job"] not in known:
            findings.broken(f"no job notifies for step {step['key']}", job=step["job_id"])
