"""The head of every screen: what waits for people, and the state of the cluster.

One statement, however many jobs there are: counts end at a cap.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import attrs
import orjson

from cortex.postgres.database import Database

COUNT_MAX: Final = 1_000
"""Larger counts are "1,000+" on a screen; this many index entries are read for each count."""


@attrs.frozen(kw_only=True)
class Head:
    """What waits for people, and the state of the cluster; counts end at `COUNT_MAX`."""

    now: datetime
    """By the database's clock."""
    approvals: int
    """Of each risk up to the cap."""
    first_expiry: datetime | None
    breakers: int
    """Not closed."""
    effects: int
    """Of unknown outcome."""
    budgets: int
    """Jobs that wait for a spent budget or quota."""
    persons: int
    """Jobs that continue once a person has fixed what they name, such as an account without
    credit."""
    is_frozen: bool
    """No effect may begin."""
    dead: int
    pods_ready: int
    pods_living: int
    pods_lost: int
    """Living pods whose session ended: no other pod has marked them dead yet."""
    jobs_about: int
    """The server's estimate when it last analysed the table; 0: it never did."""
    stranded: int = 0
    """Jobs that wait for code that no living pod has."""
    is_unsafe: bool = False
    """A pod lets the programs of agents run unconfined: its operator set `unsafe_run_command`."""
    pauses: int = 0
    """What people have paused: see `cortex pauses`."""
    is_paused: bool = False
    """Everything is: no job starts."""

    @property
    def waits(self) -> int:
        """How much waits for a person."""
        return self.approvals + self.effects + self.budgets + self.persons + self.dead


async def head(db: Database) -> Head:
    """Read the head of every screen."""
    (row,) = await db.fetch("screen_head.head", COUNT_MAX)
    return _head(dict(row))


def head_of(document: str) -> Head:
    """Parse a head that came with another query, as JSON."""
    row = orjson.loads(document)
    at = row["first_expiry"]
    return _head(
        row
        | {
            "now": datetime.fromisoformat(row["now"]),
            "first_expiry": None if at is None else datetime.fromisoformat(at),
        }
    )


def _head(row: Mapping[str, Any]) -> Head:
    return Head(
        now=row["now"],
        approvals=row["approvals"],
        first_expiry=row["first_expiry"],
        breakers=row["breakers"],
        effects=row["effects"],
        budgets=row["budgets"],
        persons=row["persons"],
        is_frozen=row["is_frozen"],
        dead=row["dead"],
        pods_ready=row["ready"],
        pods_living=row["living"],
        pods_lost=row["lost"],
        jobs_about=row["jobs_about"],
        stranded=row["stranded"],
        is_unsafe=row["is_unsafe"],
        pauses=row["pauses"],
        is_paused=row["is_paused"],
    )
