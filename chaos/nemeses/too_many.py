"""F19: the database is out of connections while some are lost: SQLSTATE 53300."""

import asyncio
import random
from typing import Any

import asyncpg

from chaos.cluster.stage import Stage
from chaos.nemeses.healing import sql_when_up, to_its_end
from chaos.nemeses.lines import torn_count
from chaos.nemeses.nemesis import Fault
from chaos.nemeses.server import DOWN
from chaos.nemeses.target import NO_TARGET, candidates, draw_place, hit
from chaos.windows import Window


class TooMany:
    name = "too-many-connections"
    fault = "F19"
    weight = 2

    def draw(self, dice: random.Random) -> tuple[float, dict[str, Any]]:
        return round(dice.uniform(0.5, 5.0), 2), {"place": draw_place(dice)}

    async def inject(self, stage: Stage, fault: Fault) -> dict[str, Any]:
        pods = candidates(stage, fault.detail, fits=lambda pod: not pod.line.is_taken)
        if not pods or stage.postgres.is_full:
            return NO_TARGET
        line = pods[0].line
        limit = f'ALTER DATABASE "{stage.postgres.database}" CONNECTION LIMIT'
        before, connections_before = torn_count([line]), line.connection_count
        stage.postgres.is_full = True
        try:
            await stage.postgres.sql(f"{limit} 1")
            line.reset()
            await asyncio.sleep(fault.for_s)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
            return DOWN
        finally:
            await to_its_end(sql_when_up(stage, f"{limit} -1"))
            stage.postgres.is_full = False
        return {
            **hit(stage, fault.detail, pods[0]),
            "refused": line.connection_count - connections_before,
            "windows": [Window.COMMIT] if torn_count([line]) > before else [],
        }
