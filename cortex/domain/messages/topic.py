"""Topics of messages: words with dots, and the patterns that subscribe to them."""

import difflib
import re
from fnmatch import fnmatchcase
from typing import Final

from cortex.domain.errors import UsageError

RUNTIME_TOPICS: Final = (
    "job.completed",
    "job.failed",
    "job.cancelled",
    "approval.requested",
    "approval.reminder",
    "approval.decided",
    "approval.expired",
    "breaker.opened",
    "breaker.closed",
    "breaker.escalated",
    "budget.spent",
    "dead_letter.created",
    "dead_letter.growing",
    "schedule.missed",
    "pod.died",
    "work.stranded",
    "recovery.blocked",
    "effect.unknown",
    "runner.late",
    "auth.failed",
)
"""What the runtime announces; all other topics are those of applications."""
RUNTIME_WORDS: Final = frozenset({*(each.partition(".")[0] for each in RUNTIME_TOPICS), "cortex"})
"""First words that applications may not use; the same as in `cortex.is_runtime_topic`."""
RISKLESS_WORDS: Final = RUNTIME_WORDS - {"approval"}
"""First words of topics whose messages name no risk."""
TOPIC_MAX: Final = 100
_TOPIC: Final = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*", re.ASCII)
_PATTERN: Final = re.compile(r"[a-z0-9_*-]+(\.[a-z0-9_*-]+)*", re.ASCII)
_RULE: Final = "words of lower-case letters, digits, _ and -, with dots between them"


def check_topic(topic: str) -> str:
    """Return a topic under which an application may publish. Raises `UsageError`."""
    if not _TOPIC.fullmatch(topic) or len(topic) > TOPIC_MAX:
        raise UsageError(f"topic {topic[:120]!r} is not valid", hint=f"{_RULE}, such as order.paid")
    if topic.partition(".")[0] in RUNTIME_WORDS:
        raise UsageError(
            f"topic {topic!r} is one of the runtime's own", hint="begin it with another word"
        )
    return topic


def check_pattern(pattern: str, *, source: str) -> str:
    """Return a pattern of topics. Raises `UsageError` if no topic of the runtime can match it."""
    if not _PATTERN.fullmatch(pattern) or len(pattern) > TOPIC_MAX:
        raise UsageError(
            f"{source}: topic {pattern[:120]!r} is not valid",
            hint=f"{_RULE}; * stands for any characters: order.*",
        )
    is_runtime = pattern.partition(".")[0] in RUNTIME_WORDS - {"cortex"}
    if is_runtime and not any(fnmatchcase(topic, pattern) for topic in RUNTIME_TOPICS):
        close = difflib.get_close_matches(pattern, RUNTIME_TOPICS, n=1)
        word = pattern.partition(".")[0]
        known = ", ".join(each for each in RUNTIME_TOPICS if each.partition(".")[0] == word)
        raise UsageError(
            f"{source}: no topic matches {pattern!r}",
            hint=f"did you mean {close[0]}?" if close else f"there are: {known}",
        )
    return pattern
