"""The state of the cluster, read from Postgres."""

from cortex.postgres.database import Database
from cortex.store import pulse
from cortex.store.pulse import Attention, Figures, Recent
from cortex.store.screen_head import COUNT_MAX


class StorePulse:
    """The pulse, backed by the database."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def figures(self) -> Figures:
        """Count unfinished work, up to a cap."""
        return await pulse.figures(self._db, limit=COUNT_MAX)

    async def recent(self) -> Recent:
        """Read the last quarter of an hour; costs more than the others."""
        return await pulse.recent(self._db)

    async def attention(self) -> Attention:
        """Read what needs a person, and what fails."""
        return await pulse.attention(self._db)
