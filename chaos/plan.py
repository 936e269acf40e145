"""The plan of a run: its jobs and its faults, determined by the seed alone."""

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import evolve, field, frozen
from attrs.validators import ge, in_, instance_of, le, optional

from chaos.cluster.scale import SCALES
from chaos.cluster.stage import canary_of
from chaos.nemeses import ALL, absent
from chaos.nemeses.nemesis import Fault, Nemesis
from chaos.quiet_kills import QuietKill, draw_quiet_kills
from chaos.workloads import deployments, old_jobs
from chaos.workloads.deployments import Rollout
from chaos.workloads.draw import draw_programs, with_logs, with_signals
from chaos.workloads.messages import Publication, draw_publications
from chaos.workloads.model_script import first_message
from chaos.workloads.order import Order, draw_cancel, draw_repeat
from chaos.workloads.program import Op, Program
from chaos.workloads.ruled import Ruled, draw_ruled
from chaos.workloads.schedules import Standing, draw_schedules
from chaos.workloads.signals import Sending, draw_signals

FAULTS_PER_S: Final = 1.4
"""At intensity 1: more than sixty hit their target in a run of a minute."""
JOBS_PER_S: Final = 4.0
EARLY_END_EACH: Final = 8
"""One program in this many meets an answer that ends early, whatever faults are drawn."""
JOB_TYPE: Final = "chaos_program"
PODS_MAX: Final = 50
WORKERS_MAX: Final = 8
DURATION_MAX_S: Final = 86_400
INTENSITY_MAX: Final = 20
QUIET_START_S: Final = 1.0
"""Before the first fault, so that there is something to hit."""


class UnknownFaultError(Exception):
    """No nemesis has this name."""


@frozen(kw_only=True)
class Options:
    """The options of a run. The same options give the same plan.

    Raises `ValueError` or `TypeError` for invalid options.
    """

    seed: int = field(validator=instance_of(int))
    pods: int = field(default=5, validator=[instance_of(int), ge(1), le(PODS_MAX)])
    workers: int = field(default=1, validator=[instance_of(int), ge(1), le(WORKERS_MAX)])
    """Processes of each pod."""
    duration_s: float = field(default=60.0, validator=[ge(1), le(DURATION_MAX_S)])
    faults: tuple[str, ...] = ()
    """Names of nemeses; empty for all."""
    intensity: float = field(default=1.0, validator=[ge(0), le(INTENSITY_MAX)])
    scale: str = field(default="scaled", validator=in_(tuple(SCALES)))
    app: str | None = field(default=None, validator=optional(instance_of(str)))
    """The user's own application, instead of the programs."""
    job_type: str = field(default=JOB_TYPE, validator=instance_of(str))
    payload: Mapping[str, Any] = field(factory=dict, validator=instance_of(dict))
    jobs: int | None = field(default=None, validator=optional([instance_of(int), ge(1)]))
    """How many are submitted; None: by the duration."""
    deploy: bool = field(default=False, validator=instance_of(bool))
    """Whether another release of the application is rolled out, and taken back, meanwhile."""


@frozen(kw_only=True)
class Plan:
    options: Options
    programs: tuple[Program, ...]
    """Empty for the user's own jobs."""
    orders: tuple[Order, ...]
    faults: tuple[Fault, ...]
    model_rules: tuple[Mapping[str, Any], ...]
    publications: tuple[Publication, ...] = ()
    schedules: tuple[Standing, ...] = ()
    signals: tuple[Sending, ...] = ()
    ruled: tuple[Ruled, ...] = ()
    """Submits to types with rules; none for the user's own jobs."""
    away_s: float = 0.0
    """How long the receiver of messages refuses them, from the first one on."""
    """Of both, none for the user's own jobs."""
    old_job_count: int = 0
    """How many jobs ended long before the run, for retention to delete."""
    rollouts: tuple[Rollout, ...] = ()
    """Of another release of the application; their jobs are then the only ones."""
    quiet_kills: tuple[QuietKill, ...] = ()
    """After all that, on a healed cluster; none at intensity 0."""


def make_plan(options: Options) -> Plan:
    """Draw everything. Raises `UnknownFaultError`."""
    nemeses = chosen(options.faults, workers=options.workers)
    count = options.jobs or max(1, round(options.duration_s * JOBS_PER_S))
    if options.deploy:
        return _with_deployments(options, count)
    programs: tuple[Program, ...] = ()
    if options.app is None:
        programs = with_signals(with_logs(draw_programs(options.seed, count)))
    faults = _draw_faults(options, nemeses)
    rules = [rule for fault in faults for rule in _rules(nemeses, fault)]
    canary = canary_of(options.seed)
    rules += [rule for program in programs for rule in _busy(program, canary=canary)]
    rules += [rule for program in programs[::EARLY_END_EACH] for rule in _early_end(program)]
    return Plan(
        options=options,
        programs=programs,
        orders=_orders(options, programs, count),
        faults=faults,
        model_rules=tuple(rules),
        publications=_publications(options),
        signals=draw_signals(options.seed, programs, duration_s=options.duration_s),
        ruled=() if options.app else draw_ruled(options.seed, duration_s=options.duration_s),
        schedules=() if options.app else draw_schedules(duration_s=options.duration_s),
        old_job_count=0 if options.app else old_jobs.COUNT,
        quiet_kills=_quiet_kills(options, first=len(faults)),
    )


def _with_deployments(options: Options, count: int) -> Plan:
    options = evolve(
        options,
        faults=options.faults or deployments.FAULTS,
        job_type=deployments.CHANGES[0].job_type,
    )
    nemeses = chosen(options.faults, workers=options.workers)
    return Plan(
        options=options,
        programs=(),
        orders=deployments.draw_orders(options.seed, count=count, duration_s=options.duration_s),
        faults=_draw_faults(options, nemeses, per_s=deployments.FAULTS_PER_S),
        model_rules=(),
        rollouts=deployments.draw_rollouts(duration_s=options.duration_s, pods=options.pods),
    )


def chosen(names: Sequence[str], *, workers: int = 1) -> dict[str, Nemesis]:
    """The nemeses of these names; without names, all that work here on pods of so many workers.

    Raises `UnknownFaultError`.
    """
    nemeses = {nemesis.name: nemesis for nemesis in ALL}
    missing = absent(workers=workers)
    if cannot := [name for name in names if name in missing]:
        raise UnknownFaultError(f"fault {cannot[0]!r} is not available here: {missing[cannot[0]]}")
    if unknown := [name for name in names if name not in nemeses]:
        raise UnknownFaultError(f"there is no fault {unknown[0]!r}; known: {', '.join(nemeses)}")
    return {name: nemeses[name] for name in names or nemeses if name not in missing}


def _draw_faults(
    options: Options, nemeses: Mapping[str, Nemesis], *, per_s: float = FAULTS_PER_S
) -> tuple[Fault, ...]:
    """One after another at uneven times; each has its own random generator."""
    dice = random.Random(f"faults of {options.seed}")
    count = round((options.duration_s - QUIET_START_S) * per_s * options.intensity)
    times = sorted(dice.uniform(QUIET_START_S, options.duration_s) for _ in range(count))
    names = dice.choices(list(nemeses), [n.weight for n in nemeses.values()], k=len(times))
    faults = []
    for number, (at_s, name) in enumerate(zip(times, names, strict=True)):
        own_dice = random.Random(f"fault {number} of {options.seed}")
        for_s, detail = nemeses[name].draw(own_dice)
        if for_s and "leases" in detail:  # for as long as the leases of this run require
            for_s = detail["leases"] * SCALES[options.scale].zombie_s
        faults.append(Fault(number=number, at_s=at_s, nemesis=name, for_s=for_s, detail=detail))
    return tuple(faults)


def _early_end(program: Program) -> list[Mapping[str, Any]]:
    """The first call of a program: once, its stream ends before its answer does."""
    for place, operation in enumerate(program.operations):
        if operation.op is Op.MODEL:
            step = f"{place}:{operation.op}"
            prompt = first_message(program.key, step, operation.takes_ms)
            fault = {"fault": "early_end", "fault_after": 2}
            return [{"name": "early end", "prompt": prompt, "times": 1, **fault}]
    return []


def _publications(options: Options) -> tuple[Publication, ...]:
    if options.app is not None:
        return ()
    return draw_publications(options.seed, duration_s=options.duration_s)


def _quiet_kills(options: Options, *, first: int) -> tuple[QuietKill, ...]:
    if not options.intensity:
        return ()
    return draw_quiet_kills(
        seed=options.seed,
        duration_s=options.duration_s,
        pods=options.pods,
        first=first,
        own=_own_order(options) if options.app is not None else None,
    )


def _own_order(options: Options) -> Order:
    return Order(at_s=0, key="", job_type=options.job_type, payload=dict(options.payload))


def _rules(nemeses: Mapping[str, Nemesis], fault: Fault) -> Sequence[Mapping[str, Any]]:
    """What a fault of the model is for the scripted server; a nemesis of another kind has none."""
    rules = getattr(nemeses[fault.nemesis], "rules", None)
    return () if rules is None else rules(fault)


def _busy(program: Program, *, canary: str) -> list[Mapping[str, Any]]:
    """Calls that the server first answers with "retry later", in a message that names the key."""
    rules: list[Mapping[str, Any]] = []
    for place, operation in enumerate(program.operations):
        if operation.op is Op.RETRY:
            step = f"{place}:{operation.op}"
            prompt = first_message(program.key, step, operation.takes_ms)
            busy = {
                "name": "busy",
                "prompt": prompt,
                "times": 2,
                "status": 429,
                "message": f"{canary} has to wait",
            }
            # If the server names no pause, the runtime draws one.
            rules.append({**busy, "retry_after": 1} if place % 2 else busy)
    return rules


def _orders(options: Options, programs: Sequence[Program], count: int) -> tuple[Order, ...]:
    dice = random.Random(f"orders of {options.seed}")
    times = sorted(dice.uniform(0, options.duration_s) for _ in range(count))
    own = _own_order(options)
    made = []
    for number, at_s in enumerate(times):
        own_dice = random.Random(f"order {number} of {options.seed}")
        order = evolve(own, at_s=at_s, repeat=draw_repeat(own_dice))
        if programs:
            program = programs[number]
            # A user's jobs must end by themselves; so must poison jobs.
            is_poison = any(op.op is Op.POISON for op in program.operations)
            cancel = None if is_poison else draw_cancel(own_dice)
            order = evolve(order, key=program.key, payload=program.payload(), cancel=cancel)
        else:
            order = evolve(order, key=f"s{options.seed}-j{number}")
        made.append(order)
    return tuple(made)
