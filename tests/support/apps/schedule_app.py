"""The application of pods whose schedules are tested: one that its code declares, if it is told to.

`SCHEDULE` is its cron expression; without it the job type has none.
"""

import os
from datetime import datetime
from typing import Any

from cortex.durable.context import Context
from cortex.durable.registry import job

_TERMS: dict[str, Any] = (
    {"schedule": os.environ["SCHEDULE"], "backfill": "12h", "overlap": "queue"}
    if "SCHEDULE" in os.environ
    else {}
)


@job("digest", **_TERMS)
async def digest(ctx: Context, scheduled_at: datetime | None = None) -> str | None:
    """Return the instant that it is for."""
    return None if scheduled_at is None else scheduled_at.isoformat()
