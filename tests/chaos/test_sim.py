"""Whole seeds: each repeats bit for bit, and breaks no rule."""

import re
from pathlib import Path

import pytest
from attrs import evolve
from click.testing import CliRunner

from chaos.__main__ import chaos
from chaos.sim.crew import Mode, Worker, WorkerDiedError, simulate
from chaos.sim.outcome import Outcome
from chaos.sim.plan import Kind, make_plan
from tests.support.servers.postgres import make_home

SECONDS_MAX = 600.0
"""For a seed run twice, on a computer that does much else."""

SHORT = 300
"""A seed with few jobs."""
EVENTS_MAX = 6_500
"""Of that seed: it has more when statements that only look make the clock exact, see `ROUTINE`."""


def _with(*kinds: Kind, after: int = 0) -> int:
    """The first seed from there on to whose pods all of these happen."""
    seed = after
    while not {*kinds} <= {fault.kind for fault in make_plan(seed).faults}:
        seed += 1
    return seed


@pytest.mark.timeout(SECONDS_MAX)
def test_seeds_repeat_bit_for_bit_and_break_no_rule(run_dir: Path) -> None:
    seeds = [_with(Kind.KILL, Kind.LOSS, Kind.STOP, Kind.OUTAGE, after=SHORT)]
    folder = make_home(run_dir)
    outcomes = list(simulate(seeds, folder=folder, workers=1, mode="repeat", is_brief=True))
    assert sorted(outcome.seed for outcome in outcomes) == sorted(seeds)
    for outcome in outcomes:
        assert not outcome.problems
        assert 500 < outcome.line_count < EVENTS_MAX
        assert outcome.virtual_s > 200


def test_a_worker_that_dies_ends_the_run(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulated = Worker.simulate

    def die(worker: Worker, seed: int, mode: Mode, *, is_brief: bool) -> Outcome:
        worker._process.kill()
        return simulated(worker, seed, mode, is_brief=is_brief)

    monkeypatch.setattr(Worker, "simulate", die)
    with pytest.raises(WorkerDiedError, match="seed 0"):
        list(simulate(range(3), folder=make_home(run_dir), workers=1, mode="run"))


def test_a_plan_is_decided_by_its_seed() -> None:
    assert make_plan(7) == make_plan(7)
    assert make_plan(7) != make_plan(8)


def test_brief_plan_differs_only_in_its_calm() -> None:
    plan, brief = make_plan(7), make_plan(7, is_brief=True)
    assert evolve(plan, calm_s=brief.calm_s) == brief
    assert brief.calm_s < plan.calm_s / 10


def test_every_kind_of_fault_is_drawn_soon() -> None:
    drawn = {fault.kind for seed in range(100) for fault in make_plan(seed).faults}
    assert drawn == set(Kind)


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["--seeds", "one"], "neither a seed nor a range"),
        (["--seeds", "5:5"], "empty"),
        (["--seeds", "0:2", "--transcript", "t"], "--transcript needs a single seed"),
        (["--seeds", "1", "--repeat", "--transcript", "t"], "--transcript needs a single seed"),
    ],
)
def test_invalid_options_are_refused_before_the_simulation(arguments: list[str], text: str) -> None:
    result = CliRunner().invoke(chaos, ["sim", *arguments])
    assert result.exit_code == 2
    assert re.search(text, result.output)
