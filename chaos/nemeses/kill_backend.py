"""F7: SIGKILL ends a process of the server, which then ends all sessions and recovers."""

import random
from signal import SIGKILL
from typing import Any, Final

from chaos.cluster.stage import Stage
from chaos.nemeses.healing import until
from chaos.nemeses.nemesis import Fault
from chaos.nemeses.server import break_server, sessions_of_pods

BACK_WITHIN_S: Final = 5.0


class KillBackend:
    name = "kill-backend"
    fault = "F7"
    weight = 2

    def draw(self, dice: random.Random) -> tuple[float, dict[str, Any]]:
        return 0.0, {"session": dice.randrange(60)}

    async def inject(self, stage: Stage, fault: Fault) -> dict[str, Any]:
        killed = False

        async def kill() -> None:
            nonlocal killed
            # After a restart of the server, pods take some time to come back.
            await until(lambda: bool(sessions_of_pods(stage)), within_s=BACK_WITHIN_S)
            if sessions := sessions_of_pods(stage):
                writing = [each for each in sessions if each.statements.is_writing] or sessions
                pid = writing[fault.detail["session"] % len(writing)].statements.backend_pid
                killed = pid is not None and stage.postgres.kill_backend(pid, SIGKILL)

        met = await break_server(stage, kill)
        return met if killed else {**met, "missed": "no pod had a session", "windows": []}
