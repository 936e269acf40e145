"""An application whose pods are broken, which the judge must notice.

It forgets before each pass whose turn it was: the first keys are always served first.
"""

from chaos.limits.app import limited
from cortex.postgres.database import Connection, Database
from cortex.store import limits
from cortex.store.passes import DuePass

__all__ = ["limited"]

_admit = limits.admit


async def _broken(db: Database, *, limit: int = limits.ADMIT_BATCH) -> DuePass:
    async def forget(connection: Connection) -> None:
        await connection.execute("DELETE FROM cortex_worker.limit_cursor")

    await db.transact(forget)
    return await _admit(db, limit=limit)


limits.admit = _broken
