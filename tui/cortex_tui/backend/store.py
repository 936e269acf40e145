"""The real backend: reads and writes the cluster through `cortex.store`."""

from cortex.postgres.database import Database
from cortex.store import screen_head
from cortex.store.screen_head import Head
from cortex_tui.backend.approvals import StoreApprovals
from cortex_tui.backend.breakers import StoreBreakers
from cortex_tui.backend.dead import StoreDead
from cortex_tui.backend.effects import StoreEffects
from cortex_tui.backend.job import StoreJob
from cortex_tui.backend.jobs import StoreJobs
from cortex_tui.backend.logs import StoreLogs
from cortex_tui.backend.messages import StoreMessages
from cortex_tui.backend.pods import StorePods
from cortex_tui.backend.pulse import StorePulse
from cortex_tui.backend.queues import StoreQueues
from cortex_tui.backend.schedules import StoreSchedules


class StoreBackend:
    """Uses one small connection pool."""

    def __init__(self, db: Database, *, credential: str) -> None:
        self.approvals = StoreApprovals(db)
        self.breakers = StoreBreakers(db)
        self.dead = StoreDead(db, credential=credential)
        self.effects = StoreEffects(db)
        self.job = StoreJob(db)
        self.jobs = StoreJobs(db, credential=credential)
        self.logs = StoreLogs(db)
        self.messages = StoreMessages(db)
        self.pods = StorePods(db)
        self.pulse = StorePulse(db)
        self.queues = StoreQueues(db)
        self.schedules = StoreSchedules(db, credential=credential)
        self._db = db

    async def close(self) -> None:
        """Stop background work; the caller that opened the database closes it."""
        await self.job.listeners.close()

    async def head(self) -> Head:
        """Read the head of every screen."""
        return await screen_head.head(self._db)
