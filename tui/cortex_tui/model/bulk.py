"""The effect of a bulk operation on jobs, counted before the operator confirms it."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from cortex.domain.job_filter import HEIRS, Refusal
from cortex.store.job_choice import JobChoice

ACT_MAX: Final = 10_000
"""The newest jobs of one operation, as `cortex jobs cancel --limit` has it."""
MANY: Final = 100
"""For more than that the operator types the number."""


class JobsVerb(StrEnum):
    """The operation; also the name of the command."""

    CANCEL = "cancel"
    RETRY = "retry"


DONE: Final = {JobsVerb.CANCEL: "cancelled", JobsVerb.RETRY: "try again now"}


def wanted(choice: JobChoice) -> str:
    """Return the text that the operator has to type to confirm."""
    count = len(choice.job_ids)
    return str(count) if count > MANY else "y"


def question(verb: JobsVerb, choice: JobChoice) -> str:
    """Describe the operation in one line: `cancel 1,204 jobs, 3 had ended`."""
    count = len(choice.job_ids)
    jobs = "1 job" if count == 1 else f"{count:,} jobs"
    now = " now" if verb is JobsVerb.RETRY else ""
    newest = "the newest " if choice.has_more else ""
    more = ", more fit" if choice.has_more else ""
    return f"{verb}{now} {newest}{jobs}{_failed(choice)}{refused_words(choice.refused)}{more}"


def _failed(choice: JobChoice) -> str:
    """Describe what happens to failed jobs; "" if there are none."""
    if not choice.failed:
        return ""
    of = "" if choice.failed == len(choice.job_ids) else f"{choice.failed:,} failed: "
    return f" ({of}{HEIRS})"


def nothing(verb: JobsVerb, choice: JobChoice) -> str:
    """Explain why there is nothing to confirm."""
    if not choice.refused:
        return f"no job fits that a {verb} would change"
    return f"nothing to {verb}: {refused_words(choice.refused).removeprefix(', ')}"


def refused_words(refused: Mapping[Refusal, int]) -> str:
    """Describe how many jobs would stay unchanged, and why; "" if there are none."""
    return "".join(f", {count:,} {why_not.value}" for why_not, count in refused.items())
