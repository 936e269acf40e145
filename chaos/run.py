"""One run: the plan's jobs and faults together, then healing, rest, evidence and judgement."""

import asyncio
import contextlib
import random
import signal
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, Final, Self

from attrs import evolve, frozen

from chaos.checkers import ALL as CHECKERS
from chaos.checkers.verdict import Result, Verdict
from chaos.cluster.pods import CannotStartError, Release
from chaos.cluster.quiet import Patience, StuckError, dump, until_quiet
from chaos.cluster.scale import SCALES, Scale
from chaos.cluster.stage import APP, Stage, StagePlan
from chaos.collect import collect
from chaos.evidence import Evidence, Settings
from chaos.history import History
from chaos.nemeses.full_disk import FullDisk
from chaos.plan import Options, Plan, chosen
from chaos.probe import watch
from chaos.quiet_kills import kill_quietly
from chaos.schedule import LINGER_S, inject_all
from chaos.workloads import deployments, old_jobs, schedules

HISTORY: Final = "history.jsonl"
SUBMITTED_WITHIN_S: Final = 180.0
"""After the last fault: until then, clients repeat each order until it is acknowledged."""
START_AND_END_S: Final = 60.0
QUIET_KILL_WITHIN_S: Final = 150.0
"""For one quiet kill with everything that it waits for."""
DRAIN_SLACK_S: Final = 10.0
DISK_MIB: Final = 96
DISK_MIB_PER_S: Final = 2
DISK_MAX_MIB: Final = 2048


@frozen(kw_only=True)
class Outcome:
    """The result of a run."""

    plan: Plan
    evidence: Evidence
    verdicts: tuple[Verdict, ...]
    stuck: str | None
    """Why it did not come to rest."""
    took_s: float

    @property
    def is_good(self) -> bool:
        """No rule was broken, and everything came to rest."""
        return self.stuck is None and all(v.result is not Result.INVALID for v in self.verdicts)


def deadline_s(plan: Plan) -> float:
    """The time after which a run has certainly failed."""
    patience = patience_of(SCALES[plan.options.scale].figures)
    ends = (fault.at_s + fault.for_s + LINGER_S for fault in plan.faults)
    faults_s = max(ends, default=0.0)
    load_s = max(plan.options.duration_s, faults_s) + SUBMITTED_WITHIN_S
    kills_s = QUIET_KILL_WITHIN_S * len(plan.quiet_kills)
    return load_s + kills_s + patience.whole_s + START_AND_END_S


def patience_of(settings: Settings) -> Patience:
    """How long to wait for rest with pods of these settings."""
    silence_s = settings.zombie_s + settings.sweep_s
    return Patience(idle_s=20.0 + 2 * silence_s, whole_s=300.0 + 4 * silence_s)


@frozen(kw_only=True)
class Conditions:
    """The environment in which a plan is carried out."""

    scale: Scale
    patience: Patience
    delay_s: float = 0.0
    """Of each packet between pods and Postgres."""

    @classmethod
    def of(cls, options: Options) -> Self:
        """Return the conditions of an ordinary run."""
        scale = SCALES[options.scale]
        if options.deploy:  # jobs of a release wait until it comes back
            scale = evolve(scale, code_wait_s=deployments.CODE_WAIT_S)
        return cls(scale=scale, patience=patience_of(scale.figures))


async def run(plan: Plan, *, folder: Path, conditions: Conditions | None = None) -> Outcome:
    """Carry out a plan in its own directory; when it returns, everything that it started has ended.

    `conditions` replaces those of the options. On SIGTERM or Ctrl-C it cleans up and raises
    `asyncio.CancelledError`.
    """
    under = conditions or Conditions.of(plan.options)
    _end_on_sigterm()
    history = History(folder / HISTORY)
    options = plan.options
    stage_plan = StagePlan(
        seed=options.seed,
        pod_count=options.pods,
        workers=options.workers,
        scale=under.scale,
        release=_release(plan),
        model_rules=plan.model_rules,
        disk_mib=_disk_mib(plan),
        delay_s=under.delay_s,
        away_s=plan.away_s,
    )
    with contextlib.closing(history):
        async with Stage(stage_plan, folder, history) as stage:
            stuck = await _play(stage, plan, under.patience)
            await stage.pods_kept.drain(within_s=stage.settings.drain_s + DRAIN_SLACK_S)
            history.add("run", "phase", name="end")
            evidence = await collect(stage)
        took_s = history.now_s
    verdicts = await asyncio.to_thread(_judge, evidence)
    return Outcome(plan=plan, evidence=evidence, verdicts=verdicts, stuck=stuck, took_s=took_s)


def _release(plan: Plan) -> Release:
    """The code that pods start with."""
    return deployments.OLD if plan.rollouts else Release(app=plan.options.app or APP)


def _disk_mib(plan: Plan) -> int | None:
    """Size of the data's own disk: ample unless a fault fills it."""
    if not any(fault.nemesis == FullDisk.name for fault in plan.faults):
        return None
    return min(DISK_MAX_MIB, DISK_MIB + round(plan.options.duration_s * DISK_MIB_PER_S))


async def _play(stage: Stage, plan: Plan, patience: Patience) -> str | None:
    """Run load and faults, then wait for rest; return what prevented rest."""
    await _check_job_type(stage, plan.options.job_type)
    dice = random.Random(f"clients of {plan.options.seed}")
    async with _beside(stage.approver.run(), watch(stage)):
        stage.history.add("run", "phase", name="load")
        await old_jobs.apply(stage, plan.old_job_count)
        await schedules.apply(stage, plan.schedules)
        async with asyncio.TaskGroup() as group:
            nemeses = chosen(plan.options.faults, workers=plan.options.workers)
            faults = inject_all(stage, plan.faults, nemeses)
            storm = group.create_task(faults)
            load = group.create_task(_load(stage, plan, dice))
            rolling = group.create_task(deployments.roll_out(stage, plan.rollouts))
            await storm
            await rolling
            await stage.heal()
            await _until_submitted(load, within_s=SUBMITTED_WITHIN_S + plan.options.duration_s)
            await schedules.pause(stage)
            await kill_quietly(stage, plan.quiet_kills, dice=dice)
            stage.history.add("run", "phase", name="heal")
        try:
            await until_quiet(stage, patience=patience)
        except StuckError as error:
            stage.history.add("run", "phase", name="stuck", why=str(error))
            await dump(stage, stage.folder)
            return str(error)
        stage.history.add("run", "phase", name="quiet")
        return None


async def _load(stage: Stage, plan: Plan, dice: random.Random) -> None:
    """Submit all jobs, and publish all messages, as clients do."""
    async with asyncio.TaskGroup() as group:
        group.create_task(stage.client.submit_all(plan.orders, dice=dice))
        group.create_task(stage.client.publish_all(plan.publications, seed=plan.options.seed))
        group.create_task(stage.client.signal_all(plan.signals, seed=plan.options.seed))
        group.create_task(stage.client.submit_ruled(plan.ruled, command=stage.command))


async def _until_submitted(load: "asyncio.Task[None]", *, within_s: float) -> None:
    try:
        async with asyncio.timeout(within_s):
            await load
    except TimeoutError as error:
        message = f"clients had not submitted all jobs {within_s:g} s after the last fault"
        raise TimeoutError(message) from error


async def _check_job_type(stage: Stage, job_type: str) -> None:
    rows = await stage.postgres.sql("SELECT name FROM cortex.job_type ORDER BY name")
    names = [row["name"] for row in rows]
    if job_type not in names:
        raise CannotStartError(f"no pod has job type {job_type!r}; known: {', '.join(names)}")


@contextlib.asynccontextmanager
async def _beside(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run these until the block is left; if one fails, the block ends."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work) for work in works]
        yield
        for task in tasks:
            task.cancel()


def _judge(evidence: Evidence) -> tuple[Verdict, ...]:
    return tuple(check(evidence) for check in CHECKERS)


def _end_on_sigterm() -> None:
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
