"""The cluster as `cortex.store` knows it: the real backend."""

from cortex.store import operator
from cortex.store.database import Database
from cortex.store.operator import Head
from cortex_tui.backend.approvals import StoreApprovals
from cortex_tui.backend.job import StoreJob
from cortex_tui.backend.jobs import StoreJobs


class StoreBackend:
    """On one small pool of connections."""

    def __init__(self, db: Database) -> None:
        self.approvals = StoreApprovals(db)
        self.job = StoreJob(db)
        self.jobs = StoreJobs(db)
        self._db = db

    async def head(self) -> Head:
        return await operator.head(self._db)
