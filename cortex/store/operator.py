"""What operators look at all the time: the head of every screen, jobs and breakers.

One statement for each, however many jobs there are: counts end at a cap.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import attrs

from cortex.store.database import Database
from cortex.store.jobs import plain

COUNT_MAX: Final = 1_000
"""More than that is "1,000+" on a screen; so many index entries are read for each count."""


@attrs.frozen(kw_only=True)
class Head:
    """What waits for people and how the cluster stands; counts end at `COUNT_MAX`."""

    now: datetime
    """By the database's clock."""
    approvals: int
    """Of each risk as far as the cap."""
    first_expiry: datetime | None
    breakers: int
    """Not closed."""
    is_frozen: bool
    """No effect may begin."""
    dead: int
    pods_ready: int
    pods_living: int
    jobs_about: int
    """As the server guessed when it last analysed the table; 0: it never did."""


async def head(db: Database) -> Head:
    """Look at what stands above every screen."""
    (row,) = await db.fetch("operator.head", COUNT_MAX)
    return Head(
        now=row["now"],
        approvals=row["approvals"],
        first_expiry=row["first_expiry"],
        breakers=row["breakers"],
        is_frozen=row["is_frozen"],
        dead=row["dead"],
        pods_ready=row["ready"],
        pods_living=row["living"],
        jobs_about=row["jobs_about"],
    )


async def jobs_seen(db: Database, ids: Sequence[UUID]) -> list[dict[str, Any]]:
    """Return jobs as a list shows them, in no order; those that are gone are left out."""
    return [plain(row) for row in await db.fetch("operator.jobs", list(ids))]


async def breakers_seen(db: Database, *, limit: int) -> list[dict[str, Any]]:
    """Return breakers, those that are not closed first; `waiting` ends at `COUNT_MAX`."""
    return [plain(row) for row in await db.fetch("operator.breakers", limit, COUNT_MAX)]
