"""I19: each message is sent at least once, under one id, in the order of its key.

Messages of one key are compared where the order of their publications is certain: where the first
was acknowledged before the second was asked for, or where one job, approval or breaker made both.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import pairwise
from math import inf
from typing import Any, Final

from chaos.checkers.timeline import TERMINAL, Timeline, grouped, of_kind
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Delivery, Evidence, Row
from chaos.workloads.program import NOTE

WATCHED: Final = "chaos"
"""Subscriptions whose receivers the run watches begin with this."""
ATTEMPTS: Final = {"handler": 3, "log": 3}
ATTEMPTS_OUTSIDE: Final = 16
"""A message is given up after this many, unless its subscription says otherwise, or its receiver
will never take it: one that is away for hours misses nothing."""
LOST: Final = 10
"""It is given up, too, when so many pods have died, or lost their lease, while they sent it."""
BY_SQL: Final = "chaos.order"
OPEN: Final = ("PENDING", "PROCESSING")
ANNOUNCED: Final = {
    "COMPLETED": "job.completed",
    "FAILED": "job.failed",
    "CANCELLED": "job.cancelled",
}
SUBJECTS: Final = ("job", "approval")
"""Words that begin the topics of what happens once to a subject, and its field of the payload. A
pod may die twice: one that was stopped for long goes on."""

Sent = dict[tuple[str, str], list[Delivery]]
"""Deliveries by subscription and message."""


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I19", "each message is sent at least once, under one id, in order")
    watched = [each for each in evidence.subscriptions if each["name"].startswith(WATCHED)]
    names = {each["name"] for each in watched}
    rows = [row for row in evidence.messages if row["subscription"] in names]
    sent: Sent = {}
    for delivery in evidence.deliveries:
        sent.setdefault((delivery.subscription, delivery.message), []).append(delivery)
    findings.count(len(rows))
    is_at_rest = Timeline.of(evidence).is_at_rest
    for row in rows:
        attempts = _attempts(row, watched)
        for why in _delivered(row, sent, attempts=attempts, is_at_rest=is_at_rest):
            findings.broken(f"{_name(row)} {why}")
    committed = {(row["subscription"], str(row["id"])) for row in rows}
    for receiver, message in sent.keys() - committed:
        if sent[receiver, message][0].topic != NOTE:  # see I28
            findings.broken(f"message {message} reached {receiver}, but nobody published it")
    for row in evidence.reopened:
        findings.broken(
            f"message {row['message']} to {row['subscription']} was {row['previous']}, and then "
            f"written to again: {row['new']}"
        )
    for subscription in watched:
        own = [row for row in rows if row["subscription"] == subscription["name"]]
        _complete(subscription, own, evidence, findings)
    for why in _disorder(rows, sent, evidence):
        findings.broken(why)
    doubled = sum(len(each) - 1 for each in sent.values())
    return findings.verdict(messages=len(rows), deliveries=len(evidence.deliveries), again=doubled)


def _attempts(row: Row, subscriptions: Iterable[Row]) -> int:
    """How often a message is tried at least."""
    (subscription,) = (one for one in subscriptions if one["name"] == row["subscription"])
    default = ATTEMPTS.get(subscription.get("channel", "webhook"), ATTEMPTS_OUTSIDE)
    own: int | None = subscription.get("attempts")
    return default if own is None else own


def _delivered(row: Row, sent: Sent, *, attempts: int, is_at_rest: bool) -> Iterator[str]:
    deliveries = sent.get((row["subscription"], str(row["id"])), [])
    if row["status"] == "SENT" and not any(each.is_accepted for each in deliveries):
        yield "is recorded as sent, but never arrived"
    lost = row.get("lost_count", 0)
    if row["status"] == "FAILED" and row["attempts"] < attempts and lost < LOST:
        yield f"was given up after {row['attempts']} attempts: {row['last_error']}"
    if row["attempts"] + lost > row.get("claim", row["attempts"] + lost):
        yield (
            f"was claimed {row['claim']} times, which counts as {row['attempts']} attempts, "
            f"though {lost} of their pods did not survive"
        )
    if row["status"] in OPEN and is_at_rest:
        yield f"is still {row['status']}, after {row['attempts']} attempts: {row['last_error']}"
    for each in deliveries:
        # Its sender may add what people need to read, such as who may decide.
        is_whole = row["payload"].items() <= each.payload.items()
        if each.topic != row["topic"] or not is_whole:
            yield f"arrived as {each.topic} {each.payload}, but is {row['payload']}"


def _complete(subscription: Row, rows: list[Row], evidence: Evidence, findings: Findings) -> None:
    """Whatever took place has its message, once; what did not has none."""
    published = (row for row in rows if row.get("escalated_from") is None)
    subjects = ((row["topic"], _subject(row)) for row in published)
    about = Counter((topic, subject) for topic, subject in subjects if subject is not None)
    for (topic, subject), count in about.items():
        if count > 1:
            findings.broken(f"{topic} of {subject} was published {count} times")
    for topic, subject in _due(evidence):
        if fnmatchcase(topic, subscription["topic"]):
            findings.count()
            if (topic, subject) not in about:
                name = subscription["name"]
                findings.broken(f"{topic} of {subject} was never published to {name}")
    for event in of_kind(evidence, "publish", "fail"):
        if (BY_SQL, number := str(event.value["number"])) in about:
            findings.broken(f"{BY_SQL} {number} certainly was not published, but is there")


def _due(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """The topic and the subject of each message that must have been published."""
    # Those may have ended before a pod entered the subscriptions of its code.
    old = {event.value["job"] for event in of_kind(evidence, "old")}
    for job in evidence.jobs:
        if job["status"] in TERMINAL and str(job["id"]) not in old:
            yield ANNOUNCED[job["status"]], str(job["id"])
    for step in evidence.steps:
        if step["kind"] == "message" and step["output"]["topic"].startswith(WATCHED):
            yield step["output"]["topic"], _place(step["output"]["payload"])
    for event in of_kind(evidence, "publish", "ok"):
        yield BY_SQL, str(event.value["number"])


def _subject(row: Row) -> str | None:
    """What a message is about: its publication happens once. None for those that recur."""
    payload: dict[str, Any] = row["payload"]
    if row["topic"] == BY_SQL:
        return str(payload["number"])
    if row["topic"].startswith(WATCHED):
        return _place(payload)
    word = row["topic"].partition(".")[0]
    if word not in SUBJECTS:
        return None
    if row["topic"] == "approval.reminder":  # see I28
        return None
    return str(payload[word])


def _place(payload: dict[str, Any]) -> str:
    """The place in a program that published a message."""
    return f"{payload['key']}:{payload['place']}"


def _disorder(rows: Iterable[Row], sent: Sent, evidence: Evidence) -> Iterator[str]:
    """Messages that were sent before an earlier one of their key had arrived."""
    requested_s: dict[str, float] = {}
    acknowledged_s: dict[str, float] = {}
    for event in of_kind(evidence, "publish"):
        times = requested_s if event.type == "invoke" else acknowledged_s
        if event.type in ("invoke", "ok"):
            times[str(event.value["number"])] = event.at_s
    for name, line in grouped(rows, "subscription").items():
        for key, messages in grouped(line, "key").items():
            for one, next_ in pairwise(messages if key is not None else ()):
                if next_["topic"] == one["topic"] == BY_SQL:
                    first, second = (str(each["payload"]["number"]) for each in (one, next_))
                    if acknowledged_s.get(first, inf) > requested_s[second]:
                        continue
                first_s = _arrived_s(one, sent)
                before = [each for each in _of(next_, sent) if each.at_s < first_s]
                if before and one["status"] != "FAILED":
                    yield (
                        f"{_name(next_)} of key {key} reached {name} {before[0].at_s:.3f} s into "
                        f"the run, before {_name(one)} had arrived"
                    )


def _arrived_s(row: Row, sent: Sent) -> float:
    return min((each.at_s for each in _of(row, sent) if each.is_accepted), default=inf)


def _of(row: Row, sent: Sent) -> list[Delivery]:
    return sent.get((row["subscription"], str(row["id"])), [])


def _name(row: Row) -> str:
    return f"message {row['id']} ({row['topic']}) to {row['subscription']}"
