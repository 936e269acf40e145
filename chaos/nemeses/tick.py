"""F1: `cortex tick` runs beside the pods, and is killed or asked to end at some moment."""

import random
import signal
from typing import Any, Final

from chaos.cluster.command import has_ended
from chaos.cluster.stage import Stage
from chaos.nemeses.nemesis import Fault

LIVES_S: Final = (0.3, 4.0)
"""It starts in half a second and then runs jobs until its end."""
MAX_S: Final = 6.0
TERM_SHARE: Final = 0.2
ENDS_WITHIN_S: Final = 30.0
GOOD: Final = frozenset({0, 1, 8, 128 + signal.SIGTERM, -signal.SIGKILL})
"""Its exit codes: runners may fail, the database may be gone, and a signal may end it."""


class TickCrashedError(Exception):
    """A tick ended in another way than it may."""


class Tick:
    name = "tick"
    fault = "F1"
    weight = 4

    def draw(self, dice: random.Random) -> tuple[float, dict[str, Any]]:
        how = "term" if dice.random() < TERM_SHARE else "kill"
        return 0.0, {"lives_s": round(dice.uniform(*LIVES_S), 3), "how": how}

    async def inject(self, stage: Stage, fault: Fault) -> dict[str, Any]:
        log_path = stage.folder / f"tick-{fault.number}.log"
        with log_path.open("wb") as log, log_path.with_suffix(".out").open("wb") as out:
            process = stage.fork_server.start(
                ["tick", "--app", stage.plan.release.app, "--max", f"{MAX_S:g}s", "--json"],
                env={**stage.environment, "CORTEX_DSN": stage.client_line.dsn},
                cwd=stage.folder,
                stdout=out,
                stderr=log,
            )
        number = signal.SIGTERM if fault.detail["how"] == "term" else signal.SIGKILL
        try:
            if not await has_ended(process, within_s=fault.detail["lives_s"]):
                process.send_signal(number)
                await has_ended(process, within_s=ENDS_WITHIN_S)
        finally:
            process.kill()
        code = process.wait()
        if code not in GOOD:
            lines = log_path.read_text("utf-8", "replace").splitlines() or ["it logged nothing"]
            raise TickCrashedError(f"{log_path.name}: exit code {code}: {lines[-1]}")
        return {"pod": "tick", "code": code, "windows": []}
