"""F7: a process of the server is killed by SIGKILL, whereupon it ends all sessions and recovers."""

import random
from signal import SIGKILL
from typing import Any

from chaos.cluster.stage import Stage
from chaos.nemeses.nemesis import Fault
from chaos.nemeses.server import DOWN, break_server, sessions_of_pods


class KillBackend:
    name = "kill-backend"
    fault = "F7"
    weight = 2

    def draw(self, dice: random.Random) -> tuple[float, dict[str, Any]]:
        return 0.0, {"session": dice.randrange(60)}

    async def inject(self, stage: Stage, fault: Fault) -> dict[str, Any]:
        async def kill() -> None:
            sessions = sessions_of_pods(stage)
            writing = [each for each in sessions if each.statements.is_writing] or sessions
            session = writing[fault.detail["session"] % len(writing)]
            stage.postgres.kill_backend(session.statements.backend_pid or 0, SIGKILL)

        if not sessions_of_pods(stage):
            return DOWN
        return await break_server(stage, kill)
