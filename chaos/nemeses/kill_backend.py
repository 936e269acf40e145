"""F7: SIGKILL ends a process of the server, which then ends all sessions and recovers."""

import random
from signal import SIGKILL
from typing import Any, Final

from chaos.cluster.stage import Stage
from chaos.nemeses.end_session import end
from chaos.nemeses.healing import until
from chaos.nemeses.nemesis import Fault
from chaos.nemeses.server import break_server, sessions_of_pods

BACK_WITHIN_S: Final = 5.0
"""After a restart of the server, pods take some time to come back."""
NOTICED_WITHIN_S: Final = 10.0


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
            killed = await until(
                lambda: _kill_one(stage, fault.detail["session"]), within_s=BACK_WITHIN_S
            )
            if killed:
                # The server answers as before until it has noticed; then it ends all sessions.
                ended = set(sessions_of_pods(stage))
                await until(
                    lambda: ended.isdisjoint(sessions_of_pods(stage)), within_s=NOTICED_WITHIN_S
                )

        met = await break_server(stage, kill)
        return met if killed else {**met, "missed": "no pod had a session", "windows": []}


def _kill_one(stage: Stage, drawn: int) -> bool:
    """Kill the process of one session, if possible of one that writes; False if none is left."""
    sessions = sessions_of_pods(stage)
    writing = [each for each in sessions if each.statements.is_writing] or sessions
    return bool(writing) and end(stage, writing[drawn % len(writing)], SIGKILL)
