"""What a fault hit: the moments in a pod's life at which it hurts most to be disturbed.

A pod is stopped first and looked at then: what is seen is what the fault hits, since nothing moves
any more. What cannot be stopped, such as the server, is looked at in the very moment of the fault.
"""

import asyncio
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import asyncpg
from attrs import frozen

if TYPE_CHECKING:
    from chaos.cluster.pods import Pod
    from chaos.cluster.stage import Stage

LOOK_WITHIN_S: Final = 2.0
AIM_WITHIN_S: Final = 2.0
"""A pod that does not get into the window within this time is taken as it is."""
AIM_EVERY_S: Final = 0.03
COMMIT_EVERY_S: Final = 0.001
"""A commit is over in a few of these, and costs nothing to look for."""


class Window(StrEnum):
    """Where a fault tells a right runtime from a wrong one."""

    MODEL_CALL = "in a model call"
    EFFECT_CALL = "in an effect's call"
    UNRECORDED = "between effect and record"
    COMMIT = "in a commit"
    ROW_LOCK = "holding a row lock"
    DECISION = "in an approval decision"
    DRAIN = "in a drain"


SOUGHT: Final = (
    Window.MODEL_CALL,
    Window.UNRECORDED,
    Window.COMMIT,
    Window.DECISION,
    Window.DRAIN,
)
"""What a fault of a pod can be aimed at; the others come by chance, or have their own fault."""

_DOING = """
WITH mine AS (
    SELECT p.name AS pod, j.id, j.payload->>'key' AS key
    FROM cortex.pod p JOIN cortex.job j ON j.pod_id = p.id AND j.status = 'RUNNING'
    WHERE p.name = ANY ($1)
)
SELECT pod, 'job' AS what, key AS name FROM mine
UNION ALL
SELECT m.pod, 'effect', e.arguments->>'account'
FROM mine m JOIN cortex.effect e ON e.job_id = m.id AND e.status = 'PENDING'
UNION ALL
SELECT m.pod, 'decision', a.key
FROM mine m JOIN cortex.approval a ON a.job_id = m.id AND a.status IN ('APPROVED', 'DENIED')
WHERE NOT EXISTS (SELECT FROM cortex.job_step s WHERE s.job_id = m.id AND s.key = a.key)
"""
"""What pods are about, by the names that they have in the record."""

_HOLDING = """
SELECT pid FROM pg_stat_activity
WHERE pid = ANY ($1) AND backend_xid IS NOT NULL
  AND (state LIKE 'idle in transaction%' OR wait_event = 'ClientRead')
"""
"""Sessions that wait for their client in the midst of a transaction that has locked rows."""


async def look(stage: "Stage", *pods: "Pod") -> dict[str, frozenset[Window]]:
    """Tell in which windows pods are just now, by their places.

    What the proxy and the signals tell is as of the call; what the record tells a few ms later, and
    not at all while the server cannot be asked.
    """
    seen = {pod.name: _seen_at_once(pod) for pod in pods}
    by_record = {pod.record: pod for pod in pods if pod.record is not None}
    rows: list[dict[str, Any]] = []
    with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
        async with asyncio.timeout(LOOK_WITHIN_S):
            rows = await stage.postgres.sql(_DOING, list(by_record))
            owners = {row["name"]: row["pod"] for row in rows if row["what"] == "job"}
            for conversation in await stage.model.open_conversations() if owners else ():
                if owner := owners.get(conversation.partition("/")[0]):
                    seen[by_record[owner].name].add(Window.MODEL_CALL)
            for name in await _holding(stage, pods):
                seen[name].add(Window.ROW_LOCK)
    for row in rows:
        windows = seen[by_record[row["pod"]].name]
        if row["what"] == "effect":
            is_applied = bool(stage.ledger.applied(row["name"]))
            windows.add(Window.UNRECORDED if is_applied else Window.EFFECT_CALL)
        elif row["what"] == "decision":
            windows.add(Window.DECISION)
    return {name: frozenset(windows) for name, windows in seen.items()}


def _seen_at_once(pod: "Pod") -> set[Window]:
    seen = set()
    if pod.line.is_writing:
        seen.add(Window.COMMIT)
    if pod.is_draining:
        seen.add(Window.DRAIN)
    return seen


async def _holding(stage: "Stage", pods: "tuple[Pod, ...]") -> set[str]:
    places = {
        relay.statements.backend_pid: pod.name
        for pod in pods
        for relay in pod.line.relays
        if relay.statements.is_in_transaction
    }
    if not places:
        return set()
    rows = await stage.postgres.sql(_HOLDING, [pid for pid in places if pid is not None])
    return {places[row["pid"]] for row in rows}


# --- aiming


@frozen(kw_only=True)
class Caught:
    """A pod that was stopped, by SIGSTOP, and what it was in the midst of."""

    pod: "Pod"
    windows: frozenset[Window]


async def catch(
    stage: "Stage",
    candidates: "list[Pod]",
    *,
    aim: Window | None,
    into_drain_s: float = 0.0,
) -> Caught | None:
    """Stop one of the pods in the window that is aimed at, else the first one where it is.

    None when none of them lives any more. A pod that is to drain is told so, and stopped
    `into_drain_s` later. Cancelled, no pod is left stopped.
    """
    if aim is Window.DRAIN and (pod := _first(candidates)) is not None:
        pod.term()
        await asyncio.sleep(into_drain_s)
    elif aim is not None:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + AIM_WITHIN_S
        while loop.time() < give_up_at:
            found = await _seen_in(stage, candidates, aim)
            caught = None if found is None else await _stopped(stage, found)
            if caught is not None and aim in caught.windows:
                return caught
            if caught is not None:
                caught.pod.cont()
            await asyncio.sleep(COMMIT_EVERY_S if aim is Window.COMMIT else AIM_EVERY_S)
    pod = _first(candidates)
    return None if pod is None else await _stopped(stage, pod)


async def _seen_in(stage: "Stage", candidates: "list[Pod]", aim: Window) -> "Pod | None":
    pods = [pod for pod in candidates if _is_free(pod)]
    if aim is Window.COMMIT:
        return next((pod for pod in pods if pod.line.is_writing), None)
    seen = await look(stage, *pods)
    return next((pod for pod in pods if aim in seen[pod.name] and _is_free(pod)), None)


async def _stopped(stage: "Stage", pod: "Pod") -> Caught:
    pod.stop()
    try:
        return Caught(pod=pod, windows=(await look(stage, pod))[pod.name])
    except BaseException:
        pod.cont()
        raise


def _first(candidates: "list[Pod]") -> "Pod | None":
    return next(filter(_is_free, candidates), None)


def _is_free(pod: "Pod") -> bool:
    return pod.is_alive and not pod.is_stopped
