"""The keys of what the runtime announces, by topic: what templates of subscriptions may name.

The database makes these payloads. A key may be missing from a message, such as the agent of a job
that has none; a template gives a default for that.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from cortex.domain.messages.topic import RUNTIME_WORDS

_ERROR: Final = ("error.code", "error.class", "error.source", "error.message")
_JOB: Final = ("job", "type", "agent", "tenant", "queue", "status", "attempt", "finished_at")
_APPROVAL: Final = (
    *("approval", "job", "agent", "tenant", "tool", "step", "call", "risk", "people", "effect"),
    *("reversible", "policy", "requested_by", "status", "created_at", "expires_at", "who", "link"),
)
_DECISION: Final = (*_APPROVAL, "decided_at", "decided_by", "channel", "reason")
_BREAKER: Final = (
    *("breaker", "state", "failures", "opened_at", "open_until", "by", "reason", "error", "tenant"),
)

PAYLOAD_KEYS: Final[Mapping[str, frozenset[str]]] = {
    topic: frozenset(keys)
    for topic, keys in {
        "job.completed": _JOB,
        "job.failed": (*_JOB, *_ERROR),
        "job.cancelled": (*_JOB, "by", "reason"),
        "approval.requested": _APPROVAL,
        "approval.reminder": (*_APPROVAL, "stage"),
        "approval.decided": _DECISION,
        "approval.expired": _DECISION,
        "breaker.opened": _BREAKER,
        "breaker.closed": _BREAKER,
        "breaker.escalated": _BREAKER,
        "budget.spent": (
            *("budget", "scope", "subject", "unit", "period", "window", "spent", "limit"),
            "tenant",
        ),
        "dead_letter.created": (
            *("job", "type", "agent", "tenant", "fingerprint", "retries"),
            *_ERROR,
        ),
        "dead_letter.growing": ("unresolved", "tenant"),
        "schedule.missed": (
            *("schedule", "type", "first", "last", "count", "is_more", "backfill_s"),
        ),
        "pod.died": ("pod", "name", "version", "heartbeat_at", "phase", "tenant"),
        "work.stranded": ("type", "tools", "jobs", "since", "tenant"),
        "recovery.blocked": (
            *("jobs", "count", "for_s", "heartbeat_at", "holder", "held_by", "tenant"),
        ),
        "effect.unknown": ("effect", "job", "agent", "tenant", "tool", "step", "why"),
        "runner.late": ("runner", "interval_s", "since", "error", "skipped", "tenant"),
        "auth.failed": ("source", "code", "job", "agent", "tenant", "error"),
    }.items()
}


def topics_of(pattern: str) -> list[str]:
    """Return the topics of the runtime that a pattern matches; none if others may match, too."""
    if pattern.partition(".")[0] not in RUNTIME_WORDS:
        return []
    return [topic for topic in PAYLOAD_KEYS if fnmatchcase(topic, pattern)]


def topics_after(topics: Sequence[str]) -> list[str]:
    """Return the other topics of which a subscription to these topics also gets messages.

    A subscription that got a request for approval gets its reminders and its end.
    """
    if not {"approval.requested", "approval.reminder"} & set(topics):
        return []
    return [each for each in PAYLOAD_KEYS if each.startswith("approval.") and each not in topics]


def topics_without(key: str, topics: Sequence[str]) -> list[str]:
    """Return those of the topics whose payloads never have this key, written with dots."""
    return [topic for topic in topics if not _has(PAYLOAD_KEYS[topic], key)]


def _has(keys: frozenset[str], key: str) -> bool:
    holder = key.partition(".")[0]
    if holder in _OPEN:
        return holder in keys
    return key in keys or any(each.startswith(f"{key}.") for each in keys)


_OPEN: Final = frozenset({"holder"})
"""Objects whose own keys depend on the server."""
