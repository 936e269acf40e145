"""Callback URLs: opened by steps of jobs, found by the digest of their token."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import attrs

from cortex.domain.job import Lease
from cortex.postgres.database import Database
from cortex.store.rows import row_of


class Fate(StrEnum):
    """Whether a lineage of jobs may still receive something."""

    OPEN = "OPEN"
    FAILED = "FAILED"
    """It has failed, and may be retried."""
    OVER = "OVER"


@attrs.frozen(kw_only=True)
class OpenCallback:
    """A callback whose token was shown."""

    id: UUID
    lineage_id: UUID
    """The first job of the lineage that receives what is posted."""
    name: str
    """Of the signals."""
    schema: Mapping[str, Any] | None
    expires_at: datetime
    is_expired: bool
    tenant: str


async def open_one(
    db: Database,
    callback_id: UUID,
    *,
    lease: Lease,
    pod_id: UUID,
    lineage_id: UUID,
    digest: bytes,
    step: str,
    name: str,
    schema: str | None,
    expires_s: float,
) -> datetime | None:
    """Open the callback of a step, again: the same one; return when it expires.

    None: another attempt owns the job.
    """
    row = await db.fetch_one(
        "callbacks.open_one",
        callback_id,
        lease.job_id,
        lease.attempt,
        pod_id,
        lineage_id,
        digest,
        step,
        name,
        schema,
        expires_s,
    )
    expires_at: datetime | None = None if row is None else row["expires_at"]
    return expires_at


async def find(db: Database, callback_id: UUID, digest: bytes) -> OpenCallback | None:
    """Return a callback by its id and the digest of its token.

    The digests are compared: how long that takes reveals nothing of a token.
    """
    row = await db.fetch_one("callbacks.find", callback_id, digest)
    return None if row is None else row_of(OpenCallback, row)


async def fate(db: Database, lineage_id: UUID) -> Fate:
    """Return whether a lineage of jobs may still receive something."""
    row = await db.fetch_one("callbacks.fate", lineage_id)
    return Fate.OVER if row is None else Fate(row["fate"])
