"""Why a job does not run, in the few words of a list: the reasoning of `why`, without commands."""

from typing import Final

from cortex.domain.job import JobStatus
from cortex.domain.phrases import short_id
from cortex.domain.queue_name import queue_shown
from cortex.domain.why import Cause, why
from cortex.domain.why_facts import WhyFacts

EXPLAINED: Final = (JobStatus.PENDING, JobStatus.RETRY)
"""Jobs in these states wait for something that their own records do not tell."""


def brief(facts: WhyFacts) -> str:
    """Return what keeps a job from running, without the time; "": nothing but its turn.

    Holds text of jobs and users: to be made safe.
    """
    found = why(facts)
    match found.cause:
        case Cause.APP_RETRY | Cause.WORKER_BACKOFF:
            return _failure(facts) or _sentence(found.sentence)
        case Cause.QUEUE if facts.queue is not None and facts.queue.head_id is not None:
            return f"behind job {short_id(facts.queue.head_id)} in queue {facts.queue.name}"
        case Cause.QUEUE if facts.queue is not None:
            return f"behind others in queue {facts.queue.name}"
        case Cause.PAUSED if facts.pause is not None:
            name = queue_shown(facts.pause.queue)
            return f"queue {name} paused by {facts.pause.by}: {facts.pause.reason}"
        case Cause.CAPACITY:
            return f"all {facts.fleet.slots} slots are taken"
        case Cause.SCHEDULED | Cause.READY:
            return ""
        case _:
            return _sentence(found.sentence)


def _failure(facts: WhyFacts) -> str:
    """Say what the last attempt failed with: `rate_limit from llm:claude: 429 Too Many …`."""
    last = facts.last
    if last is None or not (last.code or last.error):
        return ""
    source = f" from {last.source}" if last.source else ""
    head = f"{last.code or last.error_class or 'error'}{source}"
    return f"{head}: {' '.join(last.error.split())}" if last.error else head


def _sentence(text: str) -> str:
    return text.removeprefix("it ").removeprefix("is being ")
