"""Bulk operations for tests, and a pod's side of them without a database."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import trio
from attrs import define, field

from cortex.domain.bulk import (
    BulkChoice,
    BulkCounts,
    BulkOrder,
    BulkRequest,
    BulkSlice,
    BulkVerb,
)

BASE = datetime(2026, 1, 1, tzinfo=UTC)


def a_request(**fields: Any) -> BulkRequest:
    """A request to retry dead letters of the type that tests let fail."""
    defaults: dict[str, Any] = {"verb": BulkVerb.RETRY, "reason": "mended"}
    if not fields.keys() & {"jobs", "job_ids"}:
        defaults["jobs"] = "letter:unresolved type:work"
    return BulkRequest(**defaults | fields)


def an_order(request: BulkRequest, *, by: str = "ana", at: datetime = BASE) -> BulkOrder:
    """An operation whose ids are fixed."""
    return BulkOrder(id=UUID(int=7), by=by, at=at, request=request)


@define
class BulkList:
    """Changes ids in memory; `sizes` are how many of the first slices it can take."""

    job_ids: tuple[UUID, ...]
    sizes: list[int] = field(factory=list)
    is_awaited: bool = False
    changed: list[UUID] = field(factory=list)
    at_s: list[float] = field(factory=list)

    async def choose(self, job_id: UUID, request: BulkRequest) -> BulkChoice:  # noqa: ARG002
        return BulkChoice(
            id=job_id,
            by="ana",
            at=_now(),
            job_ids=self.job_ids,
            refused={},
            has_more=False,
            slice_max=200,
        )

    async def settle(self, order: BulkOrder, job_ids: Sequence[UUID]) -> BulkSlice:  # noqa: ARG002
        await trio.lowlevel.checkpoint()
        passed = job_ids[: self.sizes.pop(0) if self.sizes else None]
        self.changed += passed
        self.at_s.append(trio.current_time())
        return BulkSlice(
            passed=len(passed),
            counts=BulkCounts(changed=len(passed)),
            at=_now(),
            is_awaited=self.is_awaited,
        )


def _now() -> datetime:
    return BASE + timedelta(seconds=trio.current_time())
