"""A bulk operation on jobs: the selected jobs, and its effect, counted before it is confirmed."""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

import attrs

from cortex.domain.bulk import LIMIT_MAX, BulkRequest, BulkVerb
from cortex.domain.job_filter import HEIRS, STATE_WORDS, UNFINISHED, JobFilter, Refusal
from cortex.store.job_choice import JobChoice

MANY: Final = 100
"""For more than that the operator types the number."""
_UNFINISHED: Final = f"status:{','.join(STATE_WORDS[status] for status in UNFINISHED)}"


@attrs.frozen(kw_only=True)
class Selection:
    """The selected jobs: the marked ones, or all that match a filter if none is marked by hand."""

    job_ids: tuple[UUID, ...]
    which: JobFilter
    text: str
    """The filter as typed."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments for the command line."""
        if self.job_ids:
            return tuple(map(str, self.job_ids))
        return ("--filter", self.text or _UNFINISHED, "--limit", str(LIMIT_MAX))

    def request(self, verb: BulkVerb, choice: JobChoice, *, reason: str) -> BulkRequest:
        """Return what changes those that were counted, and no others."""
        if self.job_ids:
            return BulkRequest(verb=verb, reason=reason, job_ids=tuple(choice.job_ids))
        return BulkRequest.counted(
            verb, choice.job_ids, jobs=self.text, at=choice.at, reason=reason
        )


def wanted(choice: JobChoice) -> str:
    """Return the text that the operator has to type to confirm."""
    count = len(choice.job_ids)
    return str(count) if count > MANY else "y"


def question(verb: BulkVerb, choice: JobChoice) -> str:
    """Describe the operation in one line: `cancel 1,204 jobs, 3 had ended`."""
    count = len(choice.job_ids)
    jobs = "1 job" if count == 1 else f"{count:,} jobs"
    now = " now" if verb is BulkVerb.RETRY else ""
    newest = "the newest " if choice.has_more else ""
    more = ", more fit" if choice.has_more else ""
    return f"{verb}{now} {newest}{jobs}{_failed(choice)}{refused_words(choice.refused)}{more}"


def letters_question(verb: BulkVerb, choice: JobChoice, *, how: str) -> str:
    """Describe an operation on dead letters in one line; `how` follows their number."""
    more = " of more, the oldest first," if choice.has_more else ""
    return f"{verb} {len(choice.job_ids):,}{more}{how}"


def _failed(choice: JobChoice) -> str:
    """Describe what happens to failed jobs; "" if there are none."""
    if not choice.failed:
        return ""
    of = "" if choice.failed == len(choice.job_ids) else f"{choice.failed:,} failed: "
    return f" ({of}{HEIRS})"


def nothing(verb: BulkVerb, choice: JobChoice) -> str:
    """Explain why there is nothing to confirm."""
    if not choice.refused:
        return f"no job fits that a {verb} would change"
    return f"nothing to {verb}: {refused_words(choice.refused).removeprefix(', ')}"


def refused_words(refused: Mapping[Refusal, int]) -> str:
    """Describe how many jobs would stay unchanged, and why; "" if there are none."""
    return "".join(f", {count:,} {why_not.value}" for why_not, count in refused.items())
