"""The database's clock, by which all pods agree on instants."""

from datetime import datetime

from cortex.postgres.database import Database


async def now(db: Database) -> datetime:
    """Return the present by the database's clock."""
    (row,) = await db.fetch("clock.now")
    instant: datetime = row["now"]
    return instant
