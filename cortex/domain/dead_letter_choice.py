"""Which dead letters an act on many takes, and which it leaves out: told before it begins."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import attrs

from cortex.domain.dead_letter import FailureCause

MANY: Final = 100
"""More than that and the number has to be typed."""
DIVERGED: Final = "diverged"
UNREADABLE: Final = "undecodable"


@attrs.frozen(kw_only=True)
class DryRun:
    """The letters that will be acted on, and how many will not, and why."""

    job_ids: tuple[UUID, ...]
    left_out: Mapping[str, int]
    has_more: bool = False
    """More letters fit than one act takes; these are the oldest."""

    @property
    def looked_count(self) -> int:
        """How many were looked at."""
        return len(self.job_ids) + sum(self.left_out.values())

    @property
    def wanted(self) -> str:
        """What has to be typed to agree."""
        return str(len(self.job_ids)) if len(self.job_ids) > MANY else "y"

    def words(self, verb: str, *, how: str) -> str:
        """Say it in one line; `how` stands after the number."""
        more = " of more, the oldest first," if self.has_more else ""
        return f"{verb} {len(self.job_ids):,}{more}{how}{self.left_out_words}"

    @property
    def left_out_words(self) -> str:
        """Say how many will not be acted on, and why: `, 3 not (undecodable)`."""
        return "".join(f", {count:,} not ({why})" for why, count in self.left_out.items())


def why_no_retry(row: Mapping[str, Any], *, from_start: bool = False) -> str:
    """Return in a word why another try could only fail; "": it may succeed.

    `from_start`: it would be given no steps.
    """
    cause = FailureCause.of(row)
    if cause.is_unreadable:
        return UNREADABLE
    return DIVERGED if cause.code == DIVERGED and not from_start else ""


def retries_of(
    rows: Sequence[Mapping[str, Any]], *, has_more: bool, from_start: bool = False
) -> DryRun:
    """Return which of these letters a retry may help."""
    whys = [(row["job_id"], why_no_retry(row, from_start=from_start)) for row in rows]
    return DryRun(
        job_ids=tuple(job_id for job_id, why in whys if not why),
        left_out=Counter(why for _, why in whys if why),
        has_more=has_more,
    )
