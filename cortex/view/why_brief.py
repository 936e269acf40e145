"""Why a job does not run, in a few words for lists: the finding of `why` without its commands."""

from typing import Final

from cortex.domain.job import JobStatus
from cortex.domain.phrases import short_id
from cortex.domain.queueing.submit_rules import is_queue_of_key
from cortex.domain.why_facts import BreakerFacts, WhyFacts
from cortex.view.why import Cause, misfit_text, why

EXPLAINED: Final = (JobStatus.PENDING, JobStatus.RETRY)
"""Jobs in these states wait for something that their own records do not show."""
MODEL: Final = "llm:"
"""Prefix of the names of model breakers."""
_SHORT: Final = {"rate_limit": "429"}
"""Codes that people know by another name."""


def brief(facts: WhyFacts) -> str:  # noqa: PLR0911 -- a table
    """Return what keeps a job from running, without the time; "" if only its turn.

    Contains text of jobs and users: pass it through `safe`.
    """
    found = why(facts)
    match found.cause:
        case Cause.CODE if facts.misfits:
            return misfit_text(facts.misfits).removeprefix("it ")
        case Cause.SLEEP | Cause.SIGNAL | Cause.CHILD | Cause.BATCH:
            return "" if facts.last is None else facts.last.error or ""
        case Cause.APP_RETRY | Cause.WORKER_BACKOFF:
            return _failure(facts) or _sentence(found.sentence)
        case Cause.BREAKER if facts.breaker is not None:
            return _outage(facts.breaker) or _sentence(found.sentence)
        case Cause.QUEUE if facts.queue is not None:
            head_id = facts.queue.head_id
            head = "others" if head_id is None else f"job {short_id(head_id)}"
            if is_queue_of_key(facts.queue.name):
                return f"behind {head} of its singleton key"
            return f"behind {head} in queue {facts.queue.name}"
        case Cause.PAUSED if facts.pause is not None:
            return f"{facts.pause.target.words} paused by {facts.pause.by}: {facts.pause.reason}"
        case Cause.CAPACITY:
            return f"all {facts.fleet.slots} slots are taken"
        case Cause.SCHEDULED | Cause.READY:
            return ""
        case _:
            return _sentence(found.sentence)


def _outage(breaker: BreakerFacts) -> str:
    """Describe the last failure behind an open breaker; "" if unknown or held open by a person."""
    if breaker.last_error is None or breaker.forced_by is not None or breaker.is_probed:
        return ""
    code, _, message = " ".join(breaker.last_error.split()).partition(": ")
    head = f"{_SHORT.get(code, code)} from {breaker.name.removeprefix(MODEL)}"
    return f"{head}: {message}" if message else head


def _failure(facts: WhyFacts) -> str:
    """Describe the last attempt's failure: `429 from claude-…: Number of requests …`."""
    last = facts.last
    if last is None or not (last.code or last.error):
        return ""
    source = f" from {last.source.removeprefix(MODEL)}" if last.source else ""
    what = _SHORT.get(last.code or "", last.code) or last.error_class or "error"
    head = f"{what}{source}"
    return f"{head}: {' '.join(last.error.split())}" if last.error else head


def _sentence(text: str) -> str:
    return text.removeprefix("it ").removeprefix("is being ")
