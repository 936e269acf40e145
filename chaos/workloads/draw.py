"""Programs by the seed: what the jobs of a run do, and when each is submitted."""

import random
from typing import Final

from attrs import evolve

from chaos.workloads.program import EFFECTS, Op, Operation, Program

WEIGHTS: Final = {
    Op.MODEL: 5,
    Op.PURE: 3,
    Op.IDEMPOTENT: 5,
    Op.RECONCILABLE: 5,
    Op.UNSAFE: 2,
    Op.APPROVAL: 1,
    Op.RETRY: 1,
    Op.PUBLISH: 2,
    Op.NOTIFY: 1,
    Op.SLEEP: 3,
    Op.AGENT: 1,
    Op.STRAY: 1,
}
LENGTH_MAX: Final = 8
TAKES_MS: Final = {
    Op.MODEL: (100, 900),
    Op.PURE: (0, 100),
    Op.IDEMPOTENT: (40, 300),
    Op.RECONCILABLE: (40, 300),
    Op.UNSAFE: (40, 300),
    Op.APPROVAL: (0, 0),
    Op.RETRY: (50, 200),
    Op.PUBLISH: (0, 0),
    Op.NOTIFY: (0, 0),
    Op.SLEEP: (50, 800),
    Op.AGENT: (40, 200),
    Op.POISON: (0, 0),
    Op.CRASH: (0, 0),
    Op.STRAY: (0, 0),
    Op.LOG: (200, 200),
    Op.FLOOD: (0, 0),
    Op.SIGNALS: (0, 0),
    Op.RENAMED: (0, 0),
}
"""Long enough to be hit, short enough for hundreds of jobs a minute."""
JOBS_PER_POISON: Final = 240
FIRST_POISON: Final = 20
SIGNALS_EACH: Final = 5
"""One program in this many receives signals."""
LOGS_EACH: Final = 6
"""One program in this many logs."""
"""Each poison job kills several pods; the other jobs on them continue elsewhere."""


def draw_programs(seed: int, count: int) -> tuple[Program, ...]:
    """Draw `count` programs; the n-th one is the same whatever the count."""
    return tuple(_program(random.Random(f"program {n} of {seed}"), seed, n) for n in range(count))


def with_logs(programs: tuple[Program, ...]) -> tuple[Program, ...]:
    """Return programs of which some log at their end."""
    log = Operation(op=Op.LOG, takes_ms=TAKES_MS[Op.LOG][0])
    return tuple(
        evolve(each, operations=(*each.operations, log)) if number % LOGS_EACH == 0 else each
        for number, each in enumerate(programs)
    )


def with_signals(programs: tuple[Program, ...]) -> tuple[Program, ...]:
    """Return programs of which some receive signals at their end."""
    receive = Operation(op=Op.SIGNALS)
    return tuple(
        evolve(each, operations=(*each.operations, receive)) if number % SIGNALS_EACH == 1 else each
        for number, each in enumerate(programs)
    )


def _program(dice: random.Random, seed: int, number: int) -> Program:
    key = f"s{seed}-j{number}"
    kinds, weights = list(WEIGHTS), list(WEIGHTS.values())
    drawn = dice.choices(kinds, weights, k=dice.randint(1, LENGTH_MAX))
    if number % JOBS_PER_POISON == FIRST_POISON:
        drawn[-1] = Op.POISON
    elif not EFFECTS.intersection(drawn):
        drawn[dice.randrange(len(drawn))] = dice.choice(sorted(EFFECTS))
    operations = (Operation(op=op, takes_ms=dice.randint(*TAKES_MS[op])) for op in drawn)
    return Program(key=key, operations=tuple(operations))
