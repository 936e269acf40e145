"""Judges a seed with the checkers that judge the runs with real processes."""

from typing import Any

from chaos.checkers import ALL
from chaos.checkers.verdict import Result
from chaos.evidence import Evidence, Settings
from chaos.sim.pace import IDLE_MAX_S
from chaos.sim.plan import Kind
from chaos.sim.world import World
from cortex import config


def judge(world: World) -> list[str]:
    """Return what the seed has broken, one line each."""
    evidence = _evidence(world)
    problems = list(world.problems)
    for check in ALL:
        verdict = check(evidence)
        if verdict.result is Result.INVALID and not _is_by_plan(verdict.invariant, world):
            problems += [f"{verdict.invariant} {verdict.claim}: {why}" for why in verdict.why]
    return problems


def _is_by_plan(invariant: str, world: World) -> bool:
    """Whether the rule fails because of something that only simulations do."""
    kinds = {fault.kind for fault in world.plan.faults}
    match invariant:
        case "I4":  # a clock that was set back puts steps after their job's end
            return Kind.SKEW in kinds
        case "I12":  # calls of clients that were asleep meanwhile
            return Kind.PAUSE in kinds
        case _:
            return False


def _evidence(world: World) -> Evidence:
    settings = config.Settings()
    record: dict[str, Any] = world.server.record()
    is_skewed = any(fault.kind is Kind.SKEW for fault in world.plan.faults)
    return Evidence(
        settings=Settings(
            heartbeat_s=settings.heartbeat_s,
            zombie_s=settings.zombie_s,
            sweep_s=settings.sweep_s,
            peer_check_s=settings.peer_check_s,
            drain_s=settings.drain_s,
            close_s=settings.close_s,
            poll_s=settings.poll_s,
            deaths_max=settings.deaths_max,
            code_wait_s=settings.code_wait_s,
            settle_s=settings.settle_s,
            clock_step_s=IDLE_MAX_S,
        ),
        # Without samples, no checker compares the record's times with those of the history.
        events=tuple(e for e in world.events if not (is_skewed and e.kind == "activity")),
        applications=tuple(world.ledger.applied),
        deliveries=tuple(world.receiver.deliveries),
        model_calls=tuple(world.model.calls),
        requests=tuple(world.ledger.requests),
        logs={name: "\n".join(lines) for name, lines in world.logs.items()},
        **record,
    )
