"""Whether what jobs publish, hold, wait for and submit came out right in a trial."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

from chaos.points.programs import LAST_NUMBER, RIVALS, Program
from chaos.points.shot import Left, Shot

RESTED: Final = ("rests", "ended")
"""After these notes a job does not hold its places."""


def problems(program: Program, left: Left, baseline: Left, shot: Shot | None) -> Iterator[str]:
    """What is wrong, one line each; `baseline` is what an undisturbed trial left."""
    for place in left.kept.get("places", ()):
        yield f"job {place['job_id']} has ended and holds a place of {place['key']}"
    for wait in left.kept.get("waits", ()):
        yield f"job {wait['job_id']} has ended and waits for {wait['kind']} {wait['name']}"
    others, usual = _others(left), _others(baseline)
    if others != usual:
        yield f"beside it there are {others}, undisturbed {usual}"
    yield from _shown(left, baseline)
    check = _OWN.get(program.name)
    if check is not None:
        yield from check(left, shot)


def _others(left: Left) -> list[tuple[str, int]]:
    """The jobs beside its own: type, status and result, and how many there are."""
    seen = Counter(f"{e['type']} {e['status']} {e['result']!r}" for e in left.others)
    return sorted(seen.items())


def _shown(left: Left, baseline: Left) -> Iterator[str]:
    shown, usual = (
        [row | {"state": json.loads(row["state"])} for row in each.kept.get("published", ())]
        for each in (left, baseline)
    )
    if shown != usual:
        yield f"it shows {shown}, undisturbed {usual}"
    chunks, expected = _chunks(left), _chunks(baseline)
    if chunks != expected:
        yield f"it has emitted {chunks}, undisturbed {expected}"


def _chunks(left: Left) -> list[Any]:
    own = left.job["id"]
    steps = [each for each in left.record["steps"] if each["job_id"] == own]
    return [each["output"] for each in steps if each["key"].partition("#")[0] == "emit"]


def _first(left: Left, _: Shot | None) -> Iterator[str]:
    asked = [each["status"] for each in left.record["approvals"]]
    if asked != ["CANCELLED"]:
        yield f"its requests to people are {asked}: one, which lost, was expected"
    taken = [(each["payload"], each["taken_step"]) for each in left.record["signals"]]
    if taken not in ([(1, "go"), (2, "go#2")], [(1, "go"), (2, "go#3")]):
        yield f"the signals were taken as {taken}"


def _callback(left: Left, _: Shot | None) -> Iterator[str]:
    if (count := len(left.record["signals"])) != 1:
        yield f"the callback became {count} signals"


def _limits(left: Left, shot: Shot | None) -> Iterator[str]:
    used = {each["unit"]: each["used"] for each in left.kept["uses"]}
    if used.get("jobs") != 1 + RIVALS:
        yield f"{used.get('jobs')} jobs count as begun, not {1 + RIVALS}"
    yield from _turns(left, shot)


def _turns(left: Left, shot: Shot | None) -> Iterator[str]:
    """One job has the place at a time, until it rests or ends; an attempt that was lost is none.

    It keeps its place when its pod dies, and gives it back for the retry after its pod fell silent.
    """
    last = {job_id: attempt for job_id, attempt, *_ in sorted(left.notes)}
    is_silent = shot is not None and shot.how == "stop"
    latest: dict[str, int] = {}
    holder = ""
    for job_id, attempt, what, _ in left.notes:
        if attempt < latest.get(job_id, 0):
            continue
        latest[job_id] = attempt
        is_other = holder not in ("", job_id)
        if is_other and not (is_silent and latest[holder] < last[holder]):
            yield f"job {job_id} {what} while job {holder} had the only place"
        holder = "" if what in RESTED else job_id


def _pause(left: Left, shot: Shot | None) -> Iterator[str]:
    begun = [job_id for job_id, _, what, _ in left.notes if what == "begun"]
    (urgent,) = left.others
    # A job of a pod that is stopped stays with it for a while, and the other one overtakes it.
    if (shot is None or shot.how == "kill") and begun[0] != str(urgent["id"]):
        yield "the job without a deadline ran before the one with a deadline"


def _rules(left: Left, _: Shot | None) -> Iterator[str]:
    numbers = {
        each["type"]: each["payload"]["number"]
        for each in [left.job, *left.others]
        if each["status"] == "COMPLETED"
    }
    expected = {
        "points_single": 1,
        "points_replaced": LAST_NUMBER,
        "points_debounced": LAST_NUMBER,
        "points_throttled": 1,
    }
    if numbers != expected:
        yield f"by type, the submits that ran are {numbers}, not {expected}"


_OWN: Final[dict[str, Callable[[Left, Shot | None], Iterator[str]]]] = {
    "callback": _callback,
    "first": _first,
    "limits": _limits,
    "pause": _pause,
    "rules": _rules,
}
