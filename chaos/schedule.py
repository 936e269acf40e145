"""Injects a plan's faults at their times, each in its own task, and records them."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import asyncpg

from chaos.cluster.stage import Stage
from chaos.nemeses.lines import BUSY
from chaos.nemeses.nemesis import Fault, Nemesis
from chaos.nemeses.target import NO_TARGET

LINGER_S: Final = 15.0
"""A fault that has not healed this long after the last fault began is cancelled."""

TRIES: Final = 5
AGAIN_S: Final = 1.0

MISSED: Final = (
    OSError,  # TimeoutError and ProcessLookupError are among them
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
)
"""Another fault came in between: the target was gone, or the server was down."""


async def inject_all(stage: Stage, faults: Sequence[Fault], nemeses: Mapping[str, Nemesis]) -> None:
    """Return when all faults are over; those that last too long are cancelled, which heals them."""
    if not faults:
        return
    began_s = stage.history.now_s
    tasks = [
        asyncio.create_task(_inject(stage, fault, nemeses[fault.nemesis], began_s))
        for fault in faults
    ]
    last_s = max(fault.at_s + fault.for_s for fault in faults)
    try:
        done, _ = await asyncio.wait(
            tasks, timeout=last_s + LINGER_S, return_when=asyncio.FIRST_EXCEPTION
        )
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _inject(stage: Stage, fault: Fault, nemesis: Nemesis, began_s: float) -> None:
    await asyncio.sleep(began_s + fault.at_s - stage.history.now_s)
    labels = {"number": fault.number, "nemesis": fault.nemesis}
    stage.history.add(
        "nemesis", "fault", "invoke", **labels, detail=fault.detail, for_s=fault.for_s
    )
    try:
        met = await _find_and_inject(stage, fault, nemesis)
    except MISSED as error:
        stage.history.add("nemesis", "fault", **labels, missed=repr(error), windows=[])
    else:
        stage.history.add("nemesis", "fault", **labels, **met)


async def _find_and_inject(stage: Stage, fault: Fault, nemesis: Nemesis) -> dict[str, Any]:
    """Inject the fault; while there is no target, wait a little for one."""
    for _ in range(TRIES - 1):
        met = await nemesis.inject(stage, fault)
        if met not in (NO_TARGET, BUSY):
            return met
        await asyncio.sleep(AGAIN_S)
    return await nemesis.inject(stage, fault)
