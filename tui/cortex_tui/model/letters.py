"""What a bulk act on dead letters would do, counted before anybody agrees to it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import attrs

from cortex.domain.dead_letter import Cause

MANY: Final = 100
"""More than that and the number has to be typed."""
DIVERGED: Final = "diverged"


@attrs.frozen(kw_only=True)
class DryRun:
    """The letters that will be acted on, and how many will not, and why."""

    job_ids: tuple[UUID, ...]
    left_out: Mapping[str, int]
    has_more: bool = False
    """More letters have this error than one act takes; these are the oldest."""

    @property
    def left_out_count(self) -> int:
        """How many will not be acted on."""
        return sum(self.left_out.values())

    @property
    def wanted(self) -> str:
        """What has to be typed to agree."""
        return str(len(self.job_ids)) if len(self.job_ids) > MANY else "y"

    def words(self, verb: str, *, how: str) -> str:
        """Say it in one line; `how` stands after the number."""
        more = " of more, the oldest first," if self.has_more else ""
        told = f"{verb} {len(self.job_ids):,}{more}{how}"
        return told + "".join(f", {count:,} not ({why})" for why, count in self.left_out.items())


def why_no_retry(row: Mapping[str, Any]) -> str:
    """Return in a word why another try from the last step could only fail; "": it may succeed."""
    cause = Cause.of(row)
    if cause.is_unreadable:
        return "undecodable"
    return DIVERGED if cause.code == DIVERGED else ""


def retries_of(rows: Sequence[Mapping[str, Any]], *, has_more: bool) -> DryRun:
    """Return which of these letters a retry may help."""
    whys = [(row["job_id"], why_no_retry(row)) for row in rows]
    return DryRun(
        job_ids=tuple(job_id for job_id, why in whys if not why),
        left_out=Counter(why for _, why in whys if why),
        has_more=has_more,
    )
