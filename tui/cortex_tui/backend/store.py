"""The cluster as `cortex.store` knows it: the real backend."""

from cortex.store import operator
from cortex.store.database import Database
from cortex.store.operator import Head
from cortex_tui.backend.approvals import StoreApprovals
from cortex_tui.backend.breakers import StoreBreakers
from cortex_tui.backend.dead import StoreDead
from cortex_tui.backend.job import StoreJob
from cortex_tui.backend.jobs import StoreJobs
from cortex_tui.backend.protocol import Pods, Queues
from cortex_tui.backend.pulse import StorePulse


class StoreBackend:
    """On one small pool of connections."""

    def __init__(self, db: Database) -> None:
        self.approvals = StoreApprovals(db)
        self.breakers = StoreBreakers(db)
        self.dead = StoreDead(db)
        self.job = StoreJob(db)
        self.jobs = StoreJobs(db)
        self.pulse = StorePulse(db)
        self._db = db

    @property
    def pods(self) -> Pods:
        from cortex_tui.backend.pods import StorePods  # noqa: PLC0415 -- until drains are merged

        return StorePods(self._db)

    @property
    def queues(self) -> Queues:
        from cortex_tui.backend.queues import StoreQueues  # noqa: PLC0415 -- as above

        return StoreQueues(self._db)

    async def head(self) -> Head:
        return await operator.head(self._db)
