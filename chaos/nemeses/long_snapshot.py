"""F16: a session leaves a transaction open, so that dead rows cannot be vacuumed."""

import asyncio
import random
from typing import Any, Final

import asyncpg

from chaos.cluster.stage import Stage
from chaos.nemeses.nemesis import Fault
from chaos.nemeses.server import DOWN

CONNECT_WITHIN_S: Final = 5.0
_PINNED = "SELECT age(backend_xmin) FROM pg_stat_activity WHERE pid = pg_backend_pid()"


class LongSnapshot:
    name = "long-snapshot"
    fault = "F16"
    weight = 1

    def draw(self, dice: random.Random) -> tuple[float, dict[str, Any]]:
        return round(dice.uniform(5.0, 20.0), 2), {}

    async def inject(self, stage: Stage, fault: Fault) -> dict[str, Any]:
        try:
            holder = await asyncpg.connect(stage.postgres.dsn, timeout=CONNECT_WITHIN_S)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
            return DOWN
        try:
            await holder.execute("SET idle_in_transaction_session_timeout = 0")
            await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            await holder.fetch("SELECT FROM cortex.job LIMIT 1")
            await asyncio.sleep(fault.for_s)
            age = await holder.fetchval(_PINNED)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError) as error:
            return {"cut_short": f"the server ended it: {error!r}", "windows": []}
        finally:
            holder.terminate()
        return {"transactions_pinned": age, "windows": []}
