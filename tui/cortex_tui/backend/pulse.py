"""How the cluster does, read from Postgres."""

from collections.abc import Sequence

from cortex.postgres.database import Database
from cortex.store import pulse
from cortex.store.operator import COUNT_MAX
from cortex.store.pulse import Figures, Recent, Trouble


class StorePulse:
    """The pulse, on a database."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def figures(self) -> Figures:
        return await pulse.figures(self._db, limit=COUNT_MAX)

    async def recent(self) -> Recent:
        return await pulse.recent(self._db)

    async def troubles(self) -> Sequence[Trouble]:
        return await pulse.troubles(self._db)
