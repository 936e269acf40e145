"""F2: a pod restarts and kills or stops itself at a named point of the code."""

import asyncio
import random
from pathlib import Path
from typing import Any, Final

from chaos.cluster.pods import Pod
from chaos.cluster.scale import SCALED
from chaos.cluster.stage import Stage
from chaos.nemeses.healing import until
from chaos.nemeses.nemesis import Fault
from chaos.nemeses.replacing import STARTED_WITHIN_S, free_places, replaced
from chaos.nemeses.target import NO_TARGET, draw_place, hit, jobs_of
from chaos.windows import Window, inspect
from cortex.crash_points import POINTS, VARIABLE, Kind

REACHED_WITHIN_S: Final = 6.0
NTHS: Final = (1, 1, 1, 2, 3)
TAKEN_WITHIN_S: Final = 20.0
POLL_S: Final = 0.05
MET: Final = frozenset(
    {
        Kind.POD,
        Kind.JOB,
        Kind.STEP,
        Kind.MODEL,
        Kind.TOOL,
        Kind.EFFECT,
        Kind.DOUBT,
        Kind.APPROVAL,
        Kind.RETRY,
        Kind.HAND_BACK,
        Kind.DEATH,
        Kind.MESSAGE,
        Kind.SCHEDULE,
    }
)
"""Points common in a run; points that need preparation are for `python -m chaos points`."""
UNPASSED: Final = frozenset({"during_call"})
"""No code of the runtime passes it."""
DRAWN: Final = sorted(
    name for name, point in POINTS.items() if MET.intersection(point.kinds) and name not in UNPASSED
)

WINDOWS: Final = {
    "after_intent": Window.EFFECT_CALL,
    "after_call": Window.UNRECORDED,
    "after_claim": Window.COMMIT,
    "after_step": Window.COMMIT,
    "after_finish": Window.COMMIT,
    "after_release": Window.COMMIT,
    "after_misfit": Window.COMMIT,
    "before_settle": Window.MODEL_CALL,
    "after_settle": Window.MODEL_CALL,
    "before_outcome": Window.UNRECORDED,
    "after_outcome": Window.COMMIT,
    "before_reconcile": Window.UNRECORDED,
    "after_reconcile": Window.UNRECORDED,
    "before_approval": Window.DECISION,
    "after_approval": Window.DECISION,
    "after_suspend": Window.COMMIT,
}
"""The windows in which it ends there; at other points nothing is in flight."""

_NOT_TAKEN: Final = """
    SELECT FROM cortex.job j LEFT JOIN cortex.pod p ON p.id = j.pod_id
    WHERE j.id = ANY ($1)
      AND (j.status = 'RETRY' OR j.status = 'RUNNING' AND coalesce(p.name, $2) = $2)
"""


class KillAtPoint:
    name = "point"
    fault = "F2"
    weight = 5

    def draw(self, dice: random.Random) -> tuple[float, dict[str, Any]]:
        leases = round(dice.uniform(0.5, 2.0), 2)
        detail = {
            "place": draw_place(dice),
            "point": dice.choice(DRAWN),
            "nth": dice.choice(NTHS),
            "how": dice.choice(["kill", "kill", "stop"]),
            "leases": leases,
        }
        return leases * SCALED.zombie_s if detail["how"] == "stop" else 0.0, detail

    async def inject(self, stage: Stage, fault: Fault) -> dict[str, Any]:
        detail = fault.detail
        places = free_places(stage, detail)
        if not places:
            return NO_TARGET
        place, before = places[0]
        setting = f"{detail['point']}:{detail['nth']}:{detail['how']}"
        windows = set((await inspect(stage, before))[before.name])
        async with replaced(place, before, {VARIABLE: setting}) as after:
            is_reached = after.pod is not None and await _reaches(after.pod, detail)
            if after.pod is not None and is_reached and detail["how"] == "stop":
                after.stays = True  # it has stopped itself, and will not do so again
                await _hold(stage, after.pod, detail)
        if is_reached:
            windows |= _windows_of(detail["point"])
        missed = {} if is_reached else {"missed": f"{setting} was not reached in time"}
        return {**hit(stage, detail, before), **missed, "windows": sorted(windows)}


async def _reaches(pod: Pod, detail: dict[str, Any]) -> bool:
    """Whether it stops or dies by itself; one that others killed has not got there.

    A pod that is to do so while draining gets SIGTERM as soon as it is ready.
    """

    def has_begun() -> bool:
        return pod.ready is not None or not pod.is_alive

    if not await until(has_begun, within_s=STARTED_WITHIN_S):
        return False
    if _is_of_a_drain(detail["point"]):
        pod.term()
    if detail["how"] == "stop":
        return await until(lambda: _is_stopped(pod.pid), within_s=REACHED_WITHIN_S)
    await until(lambda: not pod.is_alive, within_s=REACHED_WITHIN_S)
    return not pod.is_alive and "SIGKILL" not in pod.signals


def _windows_of(point: str) -> set[Window]:
    """The windows in which a pod ends at this point."""
    window = Window.DRAIN if _is_of_a_drain(point) else WINDOWS.get(point)
    return set() if window is None else {window}


def _is_of_a_drain(point: str) -> bool:
    return point.startswith("drain_") or point.endswith("_sign_off")


def _is_stopped(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] == "T"


async def _hold(stage: Stage, pod: Pod, detail: dict[str, Any]) -> None:
    """Keep it stopped for the drawn number of leases, or until others have taken its jobs."""
    pod.is_stopped = True
    try:
        if detail.get("until_taken"):
            await _until_taken(stage, pod)
        else:
            await asyncio.sleep(detail["leases"] * stage.settings.zombie_s)
    finally:
        pod.cont()


async def _until_taken(stage: Stage, pod: Pod) -> None:
    ids = await jobs_of(stage, pod)
    async with asyncio.timeout(TAKEN_WITHIN_S):
        while await stage.postgres.sql(_NOT_TAKEN, ids, pod.record):  # noqa: ASYNC110 -- no event
            await asyncio.sleep(POLL_S)
