"""The plan of a run: drawn from its seed alone."""

import json
from collections import Counter
from pathlib import Path

import click
import pytest
from attrs import asdict

from chaos.cluster.scale import SCALES
from chaos.commands.replay import options_of
from chaos.plan import Options, UnknownFaultError, make_plan
from chaos.report.keep import OPTIONS
from chaos.run import deadline_s
from chaos.workloads.deployments import FAULTS
from chaos.workloads.draw import LENGTH_MAX, draw_programs
from chaos.workloads.order import Repeat
from chaos.workloads.program import EFFECTS, Op

MINUTE = Options(seed=1)


def test_the_same_seed_gives_the_same_plan() -> None:
    assert make_plan(MINUTE) == make_plan(Options(seed=1))
    assert make_plan(MINUTE).faults != make_plan(Options(seed=2)).faults
    assert make_plan(MINUTE).programs != make_plan(Options(seed=2)).programs


def test_a_minute_holds_enough_of_everything() -> None:
    plan = make_plan(MINUTE)
    assert len(plan.faults) >= 60
    assert all(0 < fault.at_s < 60 for fault in plan.faults)
    assert len({order.key for order in plan.orders}) == len(plan.orders) >= 200
    ops = Counter(op.op for program in plan.programs for op in program.operations)
    # These have scenes of their own.
    assert set(ops) == set(Op) - {Op.CRASH, Op.FLOOD, Op.RENAMED}, "every kind of operation occurs"
    assert len({fault.nemesis for fault in plan.faults}) >= 10


def test_every_run_kills_pods_quietly_after_the_storm() -> None:
    plan = make_plan(MINUTE)
    assert len(plan.quiet_kills) == 3
    numbers = [fault.number for fault in plan.faults] + [kill.number for kill in plan.quiet_kills]
    assert numbers == list(range(len(numbers)))
    keys = {order.key for order in plan.orders}
    keys |= {order.key for kill in plan.quiet_kills for order in kill.orders}
    assert len(keys) == len(plan.orders) + sum(len(kill.orders) for kill in plan.quiet_kills)
    assert plan == make_plan(MINUTE)
    assert make_plan(Options(seed=1, intensity=0)).quiet_kills == ()


def test_a_program_has_an_effect_or_is_poison() -> None:
    for program in draw_programs(1, 300):
        kinds = {operation.op for operation in program.operations}
        assert 1 <= len(program.operations) <= LENGTH_MAX
        assert kinds & EFFECTS or Op.POISON in kinds


def test_a_longer_run_begins_with_the_same_programs() -> None:
    assert draw_programs(3, 50) == draw_programs(3, 80)[:50]


def test_only_the_faults_that_are_asked_for_are_drawn() -> None:
    plan = make_plan(Options(seed=1, faults=("kill", "stop")))
    assert {fault.nemesis for fault in plan.faults} == {"kill", "stop"}
    with pytest.raises(UnknownFaultError, match="flood"):
        make_plan(Options(seed=1, faults=("flood",)))


def test_a_pod_is_stopped_for_as_long_as_the_leases_of_its_scale_want() -> None:
    plans = [make_plan(Options(seed=1, faults=("stop",), scale=scale)) for scale in SCALES]
    for plan, figures in zip(plans, SCALES.values(), strict=True):
        assert all(f.for_s == f.detail["leases"] * figures.zombie_s for f in plan.faults)
        assert deadline_s(plan) > max(fault.at_s + fault.for_s for fault in plan.faults)


def test_every_busy_call_is_refused_twice_by_a_rule_of_its_own() -> None:
    plan = make_plan(Options(seed=1, faults=("kill",)))
    busy = [op for program in plan.programs for op in program.operations if op.op is Op.RETRY]
    rules = [rule for rule in plan.model_rules if rule["name"] == "busy"]
    assert len({rule["prompt"] for rule in rules}) == len(busy) > 0


def test_some_keys_are_asked_for_again_and_some_jobs_cancelled() -> None:
    orders = make_plan(MINUTE).orders
    repeats = Counter(order.repeat for order in orders)
    assert min(repeats[Repeat.SAME], repeats[Repeat.OTHER]) >= 5
    assert sum(order.cancel is not None for order in orders) >= 5


def test_deployments_replace_programs_by_jobs_of_both_releases() -> None:
    plan = make_plan(Options(seed=1, pods=4, deploy=True, jobs=400))
    assert plan == make_plan(Options(seed=1, pods=4, deploy=True, jobs=400))
    assert (plan.programs, len(plan.orders)) == ((), 400)
    first, back, last = plan.rollouts
    assert [each.release.version for each in plan.rollouts] == ["new", "old", "new"]
    assert (first.first, back.first, last.first) == (0, 0, 2), "both releases stay"
    requests = {(order.job_type, *sorted(order.payload)) for order in plan.orders}
    assert {("deploy_added", "key"), ("deploy_added", "key", "site")} <= requests
    assert {("deploy_removed", "first", "key"), ("deploy_removed", "key")} <= requests
    assert {fault.nemesis for fault in plan.faults} == set(FAULTS)


def test_own_jobs_take_the_place_of_programs() -> None:
    options = Options(seed=1, app="mine.py", job_type="digest", payload={"n": 1})
    plan = make_plan(options)
    assert plan.programs == ()
    assert {(order.job_type, order.payload["n"]) for order in plan.orders} == {("digest", 1)}
    assert not any(order.cancel for order in plan.orders), "they come to their own end"


def test_report_reproduces_the_plan_of_its_run(tmp_path: Path) -> None:
    options = Options(seed=9, pods=3, faults=("kill", "stop"), payload={"n": [1]})
    (tmp_path / OPTIONS).write_text(json.dumps(asdict(options)))
    assert make_plan(options_of(tmp_path)) == make_plan(options)
    with pytest.raises(click.UsageError, match="is not the report"):
        options_of(tmp_path / "nosuch")
