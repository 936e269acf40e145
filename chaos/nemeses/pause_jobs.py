"""F30: a person pauses everything, a job type, a tenant, a queue or a job, and resumes it."""

import asyncio
import random
from typing import Any, Final

from chaos.cluster.stage import Stage
from chaos.nemeses.healing import AGAIN_S, to_its_end
from chaos.nemeses.nemesis import Fault
from chaos.nemeses.target import PLACES

HOLDS_S: Final = (2.5, 6.0)
KINDS: Final = {"all": 1, "type": 3, "tenant": 2, "queue": 3, "job": 2}
"""How often each is drawn."""
TRIES: Final = 3
NOT_FOUND: Final = 3
"""The exit code of a command that names what does not exist any more."""
NO_JOBS: Final[dict[str, Any]] = {"missed": "there is no job to pause", "windows": []}
PERSON: Final = "person"

_TARGETS: Final = """
    SELECT DISTINCT CASE $1::text
        WHEN 'all' THEN 'all'
        WHEN 'type' THEN 'type:' || type
        WHEN 'tenant' THEN 'tenant:' || tenant
        WHEN 'queue' THEN 'queue:' || coalesce(queue_name, 'default')
        WHEN 'job' THEN 'job:' || id END AS target
    FROM cortex.job WHERE status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED') ORDER BY target
"""


class PauseJobs:
    name = "pause-jobs"
    fault = "F30"
    weight = 4

    def draw(self, dice: random.Random) -> tuple[float, dict[str, Any]]:
        kind = dice.choices(list(KINDS), list(KINDS.values()))[0]
        return round(dice.uniform(*HOLDS_S), 2), {"kind": kind, "pick": dice.randrange(PLACES)}

    async def inject(self, stage: Stage, fault: Fault) -> dict[str, Any]:
        target = await _target(stage, fault.detail)
        if target is None:
            return NO_JOBS
        stage.paused.add(target)
        try:
            is_paused = await _pause(stage, target)
            if is_paused:
                await asyncio.sleep(fault.for_s)
        finally:
            # Also if no pause was acknowledged: it may have taken place.
            await to_its_end(_resume(stage, target))
            stage.paused.remove(target)
        missed = {} if is_paused else {"missed": "no pause was acknowledged"}
        return {"target": target, "windows": [], **missed}


async def _target(stage: Stage, detail: dict[str, Any]) -> str | None:
    """Return the drawn target among those that have open jobs, unless all of them are paused."""
    if "target" in detail:
        return str(detail["target"])
    rows = await stage.postgres.sql(_TARGETS, detail["kind"])
    targets = [row["target"] for row in rows if row["target"] not in stage.paused]
    return targets[detail["pick"] % len(targets)] if targets else None


async def _pause(stage: Stage, target: str) -> bool:
    """Pause it; False if no try was acknowledged."""
    for _ in range(TRIES):
        code = await _command(stage, "pause", target)
        if code in (0, NOT_FOUND):
            return code == 0
        await asyncio.sleep(AGAIN_S)
    return False


async def _resume(stage: Stage, target: str) -> None:
    """Resume it, as often as it takes: the server may be down."""
    while await _command(stage, "resume", target) not in (0, NOT_FOUND):  # noqa: ASYNC110
        await asyncio.sleep(AGAIN_S)


async def _command(stage: Stage, word: str, target: str) -> int:
    """Run a command as an operation of the history; return its exit code."""
    stage.history.add(PERSON, word, "invoke", target=target)
    ended = await stage.command(word, target, "--reason", "chaos", "--json")
    if ended.code == 0:
        stage.history.add(PERSON, word, "ok", target=target)
    else:
        outcome = "fail" if ended.code == NOT_FOUND else "info"
        why = ended.error.strip()
        stage.history.add(PERSON, word, outcome, target=target, code=ended.code, why=why)  # type: ignore[arg-type]
    return ended.code
