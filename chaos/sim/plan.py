"""What a seed draws before anything runs: jobs, faults, and how long it lasts."""

import random
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

from attrs import evolve, field, frozen

from chaos.workloads.draw import draw_programs
from chaos.workloads.program import Operation, Program
from chaos.workloads.schedules import OVERLAPS, Standing

PODS: Final = ("p1", "p2", "p3")
TICKS: Final = ("t1", "t2")
"""Places of `cortex tick`, in half of the seeds instead of the third pod."""
TICKS_SHARE: Final = 0.5
JOBS: Final = (3, 8)
SLOWER: Final = (1, 5, 20, 60)
"""Calls of a job last this many times longer than in the runs with real processes."""
STORM_S: Final = (8.0, 30.0)
FAULTS: Final = (1, 5)
CALM_S: Final = (3600.0, 10800.0)
"""After all is done: idle pods continue, and must do no harm."""
BRIEF_CALM_S: Final = (30.0, 60.0)
"""The calm is half of a simulation's cost; most rules break during the faults."""

PAST_INSTANTS: Final = (1, 6)
AWAY: Final = {0.2: (20.0, 600.0), 0.25: (3600.0, 7200.0)}
"""By the share of the seeds, and of those with less: how long the receiver of webhooks is away, in
seconds. The rest of its messages comes with their next attempts."""


class Kind(StrEnum):
    """The kinds of faults."""

    KILL = "kill"
    """A pod is killed; another one takes its place."""
    TERM = "term"
    """A pod gets SIGTERM; another one takes its place."""
    STOP = "stop"
    """A pod is suspended for a while, perhaps longer than others wait for it."""
    CUT = "cut"
    """Nothing passes between a pod and Postgres, and no error is raised."""
    LOSS = "loss"
    """Requests and replies of a pod are lost, connections break, before or after a commit."""
    SLOW = "slow"
    """Everything between a pod and Postgres is slow."""
    DEAF = "deaf"
    """Notifications do not arrive."""
    OUTAGE = "outage"
    """Postgres goes down, and comes back."""
    SKEW = "skew"
    """The database's clock is set."""
    PAUSE = "pause"
    """All machines are asleep for a while, as a laptop is."""


WEIGHTS: Final = {
    Kind.KILL: 6,
    Kind.TERM: 3,
    Kind.STOP: 4,
    Kind.CUT: 3,
    Kind.LOSS: 6,
    Kind.SLOW: 2,
    Kind.DEAF: 2,
    Kind.OUTAGE: 3,
    Kind.SKEW: 1,
    Kind.PAUSE: 1,
}
FOR_S: Final = {
    Kind.STOP: ((0.5, 20.0), (290.0, 420.0)),
    Kind.CUT: ((0.5, 30.0), (30.0, 260.0)),
    Kind.LOSS: ((2.0, 30.0),),
    Kind.SLOW: ((2.0, 30.0),),
    Kind.DEAF: ((5.0, 60.0),),
    Kind.OUTAGE: ((0.1, 5.0), (5.0, 90.0)),
    Kind.PAUSE: ((5.0, 100.0),),
}
"""How long they last, in seconds; one of the ranges is drawn."""

AMBUSHES: Final = frozenset({Kind.KILL, Kind.TERM, Kind.STOP, Kind.CUT, Kind.OUTAGE})
AMBUSH_SHARE: Final = 0.6


@frozen(kw_only=True)
class Fault:
    """One fault; `place` is its target."""

    number: int
    kind: Kind
    at_s: float
    for_s: float
    place: str
    is_ambush: bool = False
    """It begins when the next statement of that pod has changed something, before its reply."""
    detail: dict[str, Any] = field(factory=dict)


@frozen(kw_only=True)
class Plan:
    """One seed, before it begins."""

    seed: int
    programs: tuple[Program, ...]
    submitted_s: tuple[float, ...]
    """When each of them is submitted."""
    faults: tuple[Fault, ...]
    storm_s: float
    calm_s: float
    schedules: tuple[Standing, ...]
    away_s: float
    """How long the receiver of webhooks is away, from the beginning."""
    pods: tuple[str, ...]
    ticks: tuple[str, ...]
    """The names of the places."""


def make_plan(seed: int, *, is_brief: bool = False) -> Plan:
    """Draw everything; a brief plan differs only in the calm."""
    dice = random.Random(f"plan {seed}")
    storm_s = dice.uniform(*STORM_S)
    programs = tuple(_slowed(each, dice) for each in draw_programs(seed, dice.randint(*JOBS)))
    has_ticks = random.Random(f"ticks {seed}").random() < TICKS_SHARE
    return Plan(
        seed=seed,
        programs=programs,
        submitted_s=tuple(sorted(dice.uniform(0.0, 0.7 * storm_s) for _ in programs)),
        faults=tuple(_faults(dice, storm_s, thirds=TICKS if has_ticks else PODS[2:])),
        storm_s=storm_s,
        calm_s=dice.uniform(*(BRIEF_CALM_S if is_brief else CALM_S)),
        schedules=(_schedule(random.Random(f"schedule {seed}")),),
        away_s=_away_s(random.Random(f"away {seed}")),
        pods=PODS[:2] if has_ticks else PODS,
        ticks=TICKS if has_ticks else (),
    )


def _away_s(dice: random.Random) -> float:
    drawn = dice.random()
    return next((dice.uniform(*range_) for share, range_ in AWAY.items() if drawn < share), 0.0)


def _schedule(dice: random.Random) -> Standing:
    return Standing(
        overlap=dice.choice(OVERLAPS),
        past_count=dice.randint(*PAST_INSTANTS),
        is_burst=True,
    )


def _slowed(program: Program, dice: random.Random) -> Program:
    times = dice.choice(SLOWER)

    def slowed(operation: Operation) -> Operation:
        return evolve(operation, takes_ms=times * operation.takes_ms)

    return evolve(program, operations=tuple(map(slowed, program.operations)))


def _faults(dice: random.Random, storm_s: float, *, thirds: Sequence[str]) -> list[Fault]:
    """`thirds`: the places that take the third one's turns."""
    count = dice.randint(*FAULTS)
    times = sorted(dice.uniform(0.5, storm_s) for _ in range(count))
    kinds = dice.choices(list(WEIGHTS), list(WEIGHTS.values()), k=count)
    return [
        Fault(
            number=number,
            kind=kind,
            at_s=at_s,
            for_s=dice.uniform(*dice.choice(FOR_S[kind])) if kind in FOR_S else 0.0,
            place=_in_turn(dice.choice(PODS), thirds, number),
            is_ambush=kind in AMBUSHES and dice.random() < AMBUSH_SHARE,
            detail=_detail(kind, dice),
        )
        for number, (at_s, kind) in enumerate(zip(times, kinds, strict=True))
    ]


def _in_turn(place: str, thirds: Sequence[str], number: int) -> str:
    return thirds[number % len(thirds)] if place == PODS[2] else place


def _detail(kind: Kind, dice: random.Random) -> dict[str, Any]:
    match kind:
        case Kind.LOSS:
            names = ("lost", "unanswered", "reset", "reset_after")
            return {name: dice.choice((0.0, 0.01, 0.05)) for name in names}
        case Kind.SLOW:
            slowest_s = dice.choice((0.2, 2.0, 6.0))
            return {"request_s": (0.0, slowest_s), "reply_s": (0.0, slowest_s)}
        case Kind.SKEW:
            return {"by_s": dice.choice((-100.0, -10.0, 10.0, 100.0))}
        case Kind.KILL | Kind.TERM:
            return {"empty_s": dice.uniform(0.1, 20.0)}
        case _:
            return {}
