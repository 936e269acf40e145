"""F5: a pod is killed while one of its statements waits in the server, which has to notice."""

import asyncio
import random
from typing import Any, Final

import asyncpg

from chaos.cluster.pods import Pod
from chaos.cluster.stage import Stage
from chaos.nemeses.healing import until
from chaos.nemeses.nemesis import Fault
from chaos.nemeses.target import NO_TARGET, candidates, draw_place, hit
from chaos.windows import Window, inspect

WAITS_WITHIN_S: Final = 3.0
GONE_WITHIN_S: Final = 5.0
CONNECT_WITHIN_S: Final = 5.0

_BUSY = """
SELECT p.name FROM cortex.pod p JOIN cortex.job j ON j.pod_id = p.id AND j.status = 'RUNNING'
GROUP BY p.name
"""
_LOCK = """
SELECT FROM cortex_worker.task WHERE state = 'LOCKED' AND locked_by IN (
    SELECT id FROM cortex.pod WHERE name = $1) ORDER BY job_id FOR UPDATE
"""
_WAITING = "SELECT pid FROM pg_stat_activity WHERE pid = ANY ($1) AND wait_event_type = 'Lock'"
_ALIVE = "SELECT FROM pg_stat_activity WHERE pid = ANY ($1)"


class KillMidQuery:
    name = "kill-mid-query"
    fault = "F5"
    weight = 2

    def draw(self, dice: random.Random) -> tuple[float, dict[str, Any]]:
        return 0.0, {"place": draw_place(dice)}

    async def inject(self, stage: Stage, fault: Fault) -> dict[str, Any]:
        busy = {row["name"] for row in await stage.postgres.sql(_BUSY)}
        pods = candidates(stage, fault.detail, fits=_can_query)
        pod = next((each for each in pods if each.record in busy), None)
        if pod is None:
            return NO_TARGET
        target = hit(stage, fault.detail, pod)
        try:
            holder = await asyncpg.connect(stage.postgres.dsn, timeout=CONNECT_WITHIN_S)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
            return {**target, "missed": "the server did not answer", "windows": []}
        try:
            return {**target, **await _kill_waiting(stage, pod, holder)}
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError) as error:
            return {**target, "missed": f"the server went away: {error!r}", "windows": []}
        finally:
            holder.terminate()


def _can_query(pod: Pod) -> bool:
    return pod.record is not None and not pod.is_stopped and not pod.line.is_taken


async def _kill_waiting(
    stage: Stage, pod: Pod, holder: "asyncpg.Connection[asyncpg.Record]"
) -> dict[str, Any]:
    """Hold row locks until statements of the pod wait for them, then kill it and keep holding."""
    await holder.execute("BEGIN")
    await holder.execute("SET LOCAL lock_timeout = '2s'")
    await holder.fetch(_LOCK, pod.record)
    waiting: set[int] = set()
    give_up_at = asyncio.get_running_loop().time() + WAITS_WITHIN_S
    while not waiting and asyncio.get_running_loop().time() < give_up_at:
        pids = [each.statements.backend_pid for each in pod.line.relays]
        rows = await stage.postgres.sql(_WAITING, [pid for pid in pids if pid is not None])
        waiting = {row["pid"] for row in rows}
        await asyncio.sleep(0.01)
    if not waiting:
        return {"missed": "none of its statements came to wait", "windows": []}
    windows = (await inspect(stage, pod))[pod.name] | {Window.COMMIT}
    pod.kill()
    await until(lambda: not pod.is_alive, within_s=GONE_WITHIN_S)
    began = asyncio.get_running_loop().time()
    while await stage.postgres.sql(_ALIVE, list(waiting)):
        if asyncio.get_running_loop().time() > began + GONE_WITHIN_S:
            return {"missed": "its sessions remain", "windows": sorted(windows)}
        await asyncio.sleep(0.02)
    gone_s = round(asyncio.get_running_loop().time() - began, 3)
    return {"gone_s": gone_s, "windows": sorted(windows)}
