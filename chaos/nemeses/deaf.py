"""F14: the sessions on which a pod listens end, or fall silent."""

import asyncio
import random
from typing import Any, Final

import asyncpg

from chaos.cluster.pods import Pod
from chaos.cluster.relay import Relay
from chaos.cluster.stage import Stage
from chaos.nemeses.end_session import end
from chaos.nemeses.nemesis import Fault
from chaos.nemeses.target import NO_TARGET, candidates, draw_place, hit

_LISTENING = "SELECT pid FROM pg_stat_activity WHERE pid = ANY ($1) AND query ILIKE 'listen %'"
SILENT_S: Final = (2.0, 18.0)
"""The longest are those that a pod has to notice by itself."""


class Deaf:
    name = "deaf"
    fault = "F14"
    weight = 3

    def draw(self, dice: random.Random) -> tuple[float, dict[str, Any]]:
        detail = {"place": draw_place(dice), "how": dice.choice(["end", "blackhole"])}
        silent_s = round(dice.uniform(*SILENT_S), 2)
        return (silent_s if detail["how"] == "blackhole" else 0.0), detail

    async def inject(self, stage: Stage, fault: Fault) -> dict[str, Any]:
        pods = candidates(stage, fault.detail, fits=lambda pod: pod.record is not None)
        if not pods:
            return NO_TARGET
        for pod in pods:
            if sessions := await _listening(stage, pod):
                break
        else:
            return {"missed": "no session listens right now", "windows": []}
        answer = {**hit(stage, fault.detail, pod), "windows": []}
        if fault.detail["how"] == "end":
            ended = [end(stage, session) for session in sessions]
            return {**answer, "sessions": sum(ended)}
        try:
            for session in sessions:
                session.is_held = True
            await asyncio.sleep(fault.for_s)
        finally:
            left = [session for session in sessions if session in pod.line.relays]
            for session in sessions:
                session.is_held = False
                session.flush()
        return {**answer, "sessions": len(sessions), "left_by_pod": len(sessions) - len(left)}


async def _listening(stage: Stage, pod: Pod) -> list[Relay]:
    by_pid = {relay.statements.backend_pid: relay for relay in pod.line.relays}
    try:
        rows = await stage.postgres.sql(_LISTENING, [pid for pid in by_pid if pid is not None])
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
        return []
    return [by_pid[row["pid"]] for row in rows]
