"""F6: the server ends one session of a pod, during a write if possible."""

import asyncio
import random
from signal import SIGTERM, Signals
from typing import Any, Final

from chaos.cluster.relay import Relay
from chaos.cluster.stage import Stage
from chaos.nemeses.healing import until
from chaos.nemeses.nemesis import Fault
from chaos.nemeses.server import sessions_in
from chaos.nemeses.target import NO_TARGET, candidates, draw_place, hit
from chaos.windows import Window

WRITES_WITHIN_S: Final = 1.0
POLL_EVERY_S: Final = 0.001
GONE_WITHIN_S: Final = 3.0


class EndSession:
    name = "end-session"
    fault = "F6"
    weight = 4

    def draw(self, dice: random.Random) -> tuple[float, dict[str, Any]]:
        detail = {"place": draw_place(dice), "writes": dice.random() < 0.7}
        return 0.0, {**detail, "session": dice.randrange(60)}

    async def inject(self, stage: Stage, fault: Fault) -> dict[str, Any]:
        detail = fault.detail
        pods = candidates(stage, detail, fits=lambda pod: bool(sessions_in(pod.line.relays)))
        if not pods:
            return NO_TARGET
        pod = pods[0]
        line = pod.line
        writing = await writing_session(line.relays) if detail["writes"] else None
        sessions = sessions_in(line.relays)
        if not sessions:
            return {**hit(stage, detail, pod), "missed": "it has lost all sessions", "windows": []}
        session = writing or sessions[detail["session"] % len(sessions)]
        windows = [Window.COMMIT] if session.statements.is_writing else []
        is_sent = end(stage, session)
        await until(lambda: session not in line.relays, within_s=GONE_WITHIN_S)
        missed = {} if is_sent else {"missed": "it was gone already"}
        return {**hit(stage, detail, pod), **missed, "windows": windows if is_sent else []}


def end(stage: Stage, session: Relay, how: Signals = SIGTERM) -> bool:
    """Signal the process of a session, by default as `pg_terminate_backend` does.

    Returns whether it was still there.
    """
    pid = session.statements.backend_pid
    try:
        return pid is not None and stage.postgres.kill_backend(pid, how)
    except ProcessLookupError:
        return False


async def writing_session(relays: set[Relay]) -> Relay | None:
    """Wait for a session that has sent a write, and return it at once."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + WRITES_WITHIN_S
    while loop.time() < give_up_at:
        for relay in sessions_in(relays):
            if relay.statements.is_writing:
                return relay
        await asyncio.sleep(POLL_EVERY_S)
    return None
