"""What a fault hit: the moments in a pod's life at which a disturbance does most harm.

A pod is stopped first and inspected then: nothing moves any more, so the windows found are those
that the fault hits. What cannot be stopped, such as the server, is inspected at the moment of the
fault.
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

INSPECTED_WITHIN_S: Final = 2.0
AIM_WITHIN_S: Final = 2.0
"""A pod that does not reach the window within this time is stopped where it is."""
AIM_EVERY_S: Final = 0.03
COMMIT_EVERY_S: Final = 0.001
"""A commit takes a few of these, and polling for it costs nothing."""


class Window(StrEnum):
    """Where a fault distinguishes a correct runtime from a broken one."""

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
"""Windows at which a fault of a pod can be aimed; others occur at random or have their own
fault."""

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
"""What pods are doing, by their names in the record."""

_HOLDING = """
SELECT pid FROM pg_stat_activity
WHERE pid = ANY ($1) AND backend_xid IS NOT NULL
  AND (state LIKE 'idle in transaction%' OR wait_event = 'ClientRead')
"""
"""Sessions that wait for their client inside a transaction that has locked rows."""


async def inspect(stage: "Stage", *pods: "Pod") -> dict[str, frozenset[Window]]:
    """Return the windows that pods are in right now, by their places.

    The proxy's and the signals' windows are as of the call; those from the record are a few ms
    later,
    and missing while the server does not answer.
    """
    windows_of = {pod.name: _local_windows(pod) for pod in pods}
    by_record = {pod.record: pod for pod in pods if pod.record is not None}
    rows: list[dict[str, Any]] = []
    with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
        async with asyncio.timeout(INSPECTED_WITHIN_S):
            rows = await stage.postgres.sql(_DOING, list(by_record))
            owners = {row["name"]: row["pod"] for row in rows if row["what"] == "job"}
            for conversation in await stage.model.open_conversations() if owners else ():
                if owner := owners.get(conversation.partition("/")[0]):
                    windows_of[by_record[owner].name].add(Window.MODEL_CALL)
            for name in await _holding(stage, pods):
                windows_of[name].add(Window.ROW_LOCK)
    for row in rows:
        windows = windows_of[by_record[row["pod"]].name]
        if row["what"] == "effect":
            is_applied = bool(stage.ledger.applied(row["name"]))
            windows.add(Window.UNRECORDED if is_applied else Window.EFFECT_CALL)
        elif row["what"] == "decision":
            windows.add(Window.DECISION)
    return {name: frozenset(windows) for name, windows in windows_of.items()}


def _local_windows(pod: "Pod") -> set[Window]:
    windows = set()
    if pod.line.is_writing:
        windows.add(Window.COMMIT)
    if pod.is_draining:
        windows.add(Window.DRAIN)
    return windows


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
    """A pod that was stopped by SIGSTOP, and the windows that it was in."""

    pod: "Pod"
    windows: frozenset[Window]


async def catch(
    stage: "Stage",
    candidates: "list[Pod]",
    *,
    aim: Window | None,
    into_drain_s: float = 0.0,
) -> Caught | None:
    """Stop one of the pods in the aimed window, or else the first pod wherever it is.

    Returns None when none of them lives any more. With `into_drain_s`, the pod gets SIGTERM first
    and
    is stopped that much later. If cancelled, no pod is left stopped.
    """
    if aim is Window.DRAIN and (pod := _first(candidates)) is not None:
        pod.term()
        await asyncio.sleep(into_drain_s)
    elif aim is not None:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + AIM_WITHIN_S
        while loop.time() < give_up_at:
            pod_in_window = await _pod_in(stage, candidates, aim)
            caught = None if pod_in_window is None else await _stopped(stage, pod_in_window)
            if caught is not None and aim in caught.windows:
                return caught
            if caught is not None:
                caught.pod.cont()
            await asyncio.sleep(COMMIT_EVERY_S if aim is Window.COMMIT else AIM_EVERY_S)
    pod = _first(candidates)
    return None if pod is None else await _stopped(stage, pod)


async def _pod_in(stage: "Stage", candidates: "list[Pod]", aim: Window) -> "Pod | None":
    pods = [pod for pod in candidates if _is_free(pod)]
    if aim is Window.COMMIT:
        return next((pod for pod in pods if pod.line.is_writing), None)
    windows = await inspect(stage, *pods)
    return next((pod for pod in pods if aim in windows[pod.name] and _is_free(pod)), None)


async def _stopped(stage: "Stage", pod: "Pod") -> Caught:
    pod.stop()
    try:
        return Caught(pod=pod, windows=(await inspect(stage, pod))[pod.name])
    except BaseException:
        pod.cont()
        raise


def _first(candidates: "list[Pod]") -> "Pod | None":
    return next(filter(_is_free, candidates), None)


def _is_free(pod: "Pod") -> bool:
    return pod.is_alive and not pod.is_stopped
