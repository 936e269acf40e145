"""One shot: a pod ends or stops itself at a point, and another one takes over its job."""

import asyncio
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from attrs import field, frozen

from chaos.cluster.ledger import Application
from chaos.cluster.postgres import Row
from chaos.collect import delivery_of, read_record
from chaos.evidence import Delivery
from chaos.points.bench import Bench, MissingError, Trial, TrialPod
from chaos.points.events import TOPICS, begin, happen, happen_again
from chaos.points.person import attend
from chaos.points.programs import IDLE, Program, gate, notes
from chaos.workloads.old_jobs import archived_in
from cortex.crash_points import BETWEEN, RECORD

_AT_REST: Final = """
    SELECT count(*) FROM cortex.job j
    HAVING count(*) > 0 AND NOT EXISTS (SELECT FROM cortex_worker.task)
        AND NOT EXISTS (SELECT FROM cortex.child_cut)
        AND NOT EXISTS (SELECT FROM cortex.outbox WHERE status IN ('PENDING', 'PROCESSING'))
        AND NOT EXISTS (
            SELECT FROM cortex.schedule WHERE due_at <= cortex.now() AND paused_at IS NULL)
        AND bool_and(j.status IN ('COMPLETED', 'FAILED', 'CANCELLED')
            OR $1 AND j.status = 'WAITING_FOR_APPROVAL' AND EXISTS (
                SELECT FROM cortex.effect e WHERE e.job_id = j.id AND e.status = 'UNKNOWN'))
"""
_IS_GONE: Final = """
    SELECT $1::text AS job WHERE NOT EXISTS (SELECT FROM cortex.job_record WHERE id = $1::uuid)
"""
_KEPT: Final[Mapping[str, str]] = {
    "published": "SELECT state, done, total, unit FROM cortex.job_published ORDER BY job_id",
    "places": "SELECT job_id, key FROM cortex_worker.limit_hold",
    "waits": "SELECT job_id, kind, name FROM cortex.job_wait",
    "uses": """
        SELECT l.unit, sum(u.used)::bigint AS used
        FROM cortex_worker.limit_use u JOIN cortex.job_limit l ON l.id = u.limit_id
        GROUP BY l.unit ORDER BY l.unit
    """,
}
"""What checkers of runs do not read."""
_OF_HEIRS: Final = ("code_wait_s", "http", "callback_secret", "public_url", "slots")
HIT_AFTER_END_WITHIN_S: Final = 2.0


class NotPassedError(MissingError):
    """The job ended, but its pod never reached the point."""


@frozen(kw_only=True)
class Shot:
    """One trial: with which program, at which passing of which point, how."""

    program: Program
    point: str
    nth: int
    how: str
    """`kill` or `stop`."""

    @property
    def setting(self) -> str:
        return f"{self.point}:{self.nth}:{self.how}"


@frozen(kw_only=True)
class Left:
    """What a trial left behind."""

    key: str
    record: dict[str, tuple[Row, ...]]
    before: dict[str, tuple[Row, ...]]
    """The record when the pod had reached its point; empty if it was undisturbed."""
    applied: tuple[Application, ...]
    """In the ledger."""
    deliveries: tuple[Delivery, ...]
    """Of messages."""
    calls: Counter[str]
    """By conversation with the model."""
    old: dict[str, bool]
    """The jobs that ended long before, and whether something refers to them."""
    archived: frozenset[str]
    """Those in the archive."""
    exits: dict[str, int]
    """Of the pods that were to drain."""
    logs: dict[str, str]
    kept: dict[str, tuple[Row, ...]] = field(factory=dict)
    """What was published, and what jobs hold and wait for; see `_KEPT`."""
    notes: tuple[tuple[str, int, str, float], ...] = ()
    """Of jobs that note when they run: the job, its attempt, what it does, and when."""

    @property
    def job(self) -> Row:
        """The first of all: it has submitted the others, or was submitted before them."""
        return next(each for each in self.record["jobs"] if each["type"] != IDLE)

    @property
    def others(self) -> list[Row]:
        """Its children, or its rivals."""
        own = self.job["id"]
        return [each for each in self.record["jobs"] if each["type"] != IDLE and each["id"] != own]

    @property
    def idle(self) -> list[Row]:
        """The jobs that no pod ran."""
        return [each for each in self.record["jobs"] if each["type"] == IDLE]


@frozen(kw_only=True)
class Recorded:
    """An undisturbed trial: the points that its pod passed, in order, and what it left."""

    points: tuple[str, ...]
    left: Left


async def record(bench: Bench, program: Program) -> Recorded:
    """Run a program undisturbed. Raises `MissingError`."""
    async with bench.trial(has_stops=program.has_stop) as trial, _attended(trial, program):
        path = trial.folder / "points"
        await begin(trial, program)
        pod = _start(trial, program, "recorded", f"{RECORD}:{path}")
        await happen(trial, program, pod)
        exits = {}
        if program.event == "leave":
            await trial.until(lambda: pod.is_dead, "the pod has left")
            heir = await _inherit(trial, program)
            await _until_at_rest(trial, program)
            exits["heir"] = await trial.end(heir)
        else:
            await _until_at_rest(trial, program)
            await trial.until(
                lambda: set(program.awaited) <= set(path.read_text("utf-8").split()),
                f"{program.awaited} are passed",
            )
        points = tuple(path.read_text("utf-8").split())
        return Recorded(points=points, left=await _left(trial, {}, exits))


async def fire(bench: Bench, shot: Shot) -> Left:
    """Carry out a shot. Raises `MissingError`, also when its point is not passed."""
    program = shot.program
    has_stops = shot.how == "stop" or program.has_stop
    async with bench.trial(has_stops=has_stops) as trial, _attended(trial, program):
        await begin(trial, program)
        doomed = _start(trial, program, "doomed", shot.setting)
        events = asyncio.create_task(happen(trial, program, doomed))
        try:
            await _until_hit(trial, doomed, shot)
            before = await read_record(trial.owned)
            heir = await _inherit(trial, program)
            await events
            await _until_at_rest(trial, program)
        finally:
            events.cancel()
        exits = {}
        for pod in trial.pods:
            if pod.is_stopped:
                exits[pod.name] = await _go_on(trial, pod, program)
        exits["heir"] = await trial.end(heir)
        return await _left(trial, before, exits)


def _start(trial: Trial, program: Program, name: str, at: str) -> TrialPod:
    """Start the process under test."""
    start = trial.tick if program.event == "tick" else trial.start
    return start(name, at, **program.settings)


@asynccontextmanager
async def _attended(trial: Trial, program: Program) -> AsyncIterator[None]:
    """Meanwhile a person decides the approvals."""
    person = asyncio.create_task(attend(trial, program))
    try:
        yield
    finally:
        person.cancel()
        await asyncio.wait([person])


async def _until_at_rest(trial: Trial, program: Program) -> None:
    for job, is_needed in trial.old.items():
        if not is_needed:
            await trial.until_row(_IS_GONE, job, what="an old job is deleted")
    await trial.until_row(_AT_REST, program.may_wait_for_people, what="the job has ended")


async def _until_hit(trial: Trial, pod: TrialPod, shot: Shot) -> None:
    """Wait until the pod reaches the point. Raises `NotPassedError`."""
    hit = asyncio.create_task(trial.until(lambda: pod.is_hit, f"{shot.setting} is passed"))
    if shot.program.may_wait_for_people or shot.point.startswith(BETWEEN):
        rest = asyncio.create_task(_until_at_rest(trial, shot.program))
        await asyncio.wait([hit, rest], return_when=asyncio.FIRST_COMPLETED)
        rest.cancel()
        await asyncio.wait([hit], timeout=HIT_AFTER_END_WITHIN_S)
        if not hit.done():
            hit.cancel()
            raise NotPassedError(f"{shot.setting} is not passed")
    await hit
    code = pod.process.poll()
    if code != (-signal.SIGKILL if shot.how == "kill" else None):
        raise MissingError(f"{shot.setting} is not passed: the pod ended by {code}")


async def _inherit(trial: Trial, program: Program) -> TrialPod:
    """Start another pod, which runs undisturbed."""
    if program.event == "leave":
        gate(trial.folder).touch()
    settings = {name: of for name, of in program.settings.items() if name in _OF_HEIRS}
    heir = trial.start("heir", at="", **settings)
    await happen_again(trial, program, heir)
    return heir


async def _go_on(trial: Trial, pod: TrialPod, program: Program) -> int:
    """Let a stopped pod continue, which has lost its job meanwhile; return its exit code."""
    pod.process.send_signal(signal.SIGCONT)
    if program.event == "leave":
        await trial.until(lambda: pod.is_dead, f"{pod.name} leaves")
        return pod.process.wait()
    return await trial.end(pod)


async def _left(trial: Trial, before: dict[str, tuple[Row, ...]], exits: dict[str, int]) -> Left:
    calls = [call.conversation for call in await trial.model.calls()]
    applied = trial.bench.ledger.applied()
    return Left(
        key=trial.key,
        record=await read_record(trial.owned),
        before=before,
        applied=tuple(each for each in applied if f":{trial.key}:" in each.account),
        deliveries=tuple(
            delivery_of(each, at_s=each.at)
            for each in trial.bench.receiver.received()
            if each.subscription in map(trial.subscription, TOPICS)
        ),
        calls=Counter(
            each for each in calls if trial.has_own_model or each.startswith(f"{trial.key}/")
        ),
        old=trial.old,
        archived=archived_in(trial.archive),
        exits=exits,
        logs={pod.name: pod.log for pod in trial.pods},
        kept={name: tuple(await trial.sql(query)) for name, query in _KEPT.items()},
        notes=_noted(trial),
    )


def _noted(trial: Trial) -> tuple[tuple[str, int, str, float], ...]:
    file = notes(trial.folder)
    return (
        tuple(tuple(json.loads(line)) for line in file.read_text().splitlines())
        if file.exists()
        else ()
    )
