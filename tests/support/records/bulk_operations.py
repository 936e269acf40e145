"""Bulk operations on dead letters, as a person requests them."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from cortex.domain.bulk_operation import BulkVerb
from cortex.store.bulk_operations import BulkOperation
from tests.support.records.rows import new_id


def an_act(
    job_ids: Sequence[UUID], verb: BulkVerb = BulkVerb.RETRY, **fields: Any
) -> BulkOperation:
    """One at a rate that holds nothing up; `fields` are those that matter."""
    known: dict[str, Any] = {
        "token": new_id(),
        "verb": verb,
        "job_ids": job_ids,
        "which": "--code x",
        "rate_per_s": 1e4,
        "by": "ana",
        "reason": "mended",
    }
    return BulkOperation(**known | fields)
