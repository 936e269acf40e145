"""Agents with MCP servers whose pods are killed: the short form of `python -m chaos agents`."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from chaos.agents.judge import Verdict, judge
from chaos.agents.script import APPEND, DONE, PUT, texts_of
from chaos.agents.storm import Instant, Kill, Run, Storm, bench_in, storm
from chaos.evidence import ModelCall
from chaos.points.programs import APP
from tests.support.records.rows import new_id, seeded_random
from tests.support.servers.postgres import make_home, remove_servers

TURNS = 6
JOB = new_id()


Storming = Callable[..., Verdict]


@pytest.fixture(scope="module")
def agent_bench(run_dir: Path) -> Iterator[Storming]:
    """Judges a storm over an agent of a few turns, with pods that have this application."""
    folder = make_home(run_dir)
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        bench = bench_in(folder)
        runner.run(bench.__aenter__())

        def after(app: str, **how: Any) -> Verdict:
            bench.app = app
            return judge(runner.run(storm(bench, turns=TURNS, **how)))

        try:
            yield after
        finally:
            runner.run(bench.__aexit__(None, None, None))
            remove_servers(folder)


def test_killed_agents_pay_no_answer_twice_and_double_no_effect(agent_bench: Storming) -> None:
    verdict = agent_bench(APP, kills=2, seed=seeded_random().getrandbits(32))
    assert verdict.problems == []
    assert verdict.kills == 2


def test_a_broken_pod_is_found_to_double_effects_and_pay_twice(agent_bench: Storming) -> None:
    app = "chaos.agents.broken"  # not imported here: it breaks what imports it
    verdict = agent_bench(app, kills=1, seed=1, when=Instant.EFFECT)
    (doubled,) = verdict.doubled
    assert doubled.endswith("'ledger__append of turn 1' 2 times")
    assert [each.split()[2] for each in verdict.paid_twice] == ["0", "1"]


# --- the judge alone


def call(turn: int, at_s: float) -> ModelCall:
    return ModelCall(conversation="k", turn=turn, number=1, at_s=at_s, outcome="answered")


RUN = Run(
    job_id=JOB,
    key="k",
    turns=TURNS,
    status="COMPLETED",
    result={"text": DONE},
    written={tool: texts_of(tool, TURNS) for tool in (APPEND, PUT)},
    called=texts_of(PUT, TURNS),
)
CALLS = tuple(call(turn, float(turn)) for turn in range(TURNS))
CALM = Storm(runs=[RUN], calls=CALLS)


def killed(at_s: float, turns: int) -> Kill:
    return Kill(job_id=JOB, at_s=at_s, dead_s=at_s + 0.01, turns=turns)


def test_judge_finds_nothing_in_a_calm_run() -> None:
    assert judge(CALM).problems == []


def test_judge_excuses_the_call_under_way_and_no_other() -> None:
    again = evolve(CALM, calls=(*CALLS, call(2, 2.9)), kills=[killed(2.5, turns=2)])
    assert (judge(again).repeated, judge(again).paid_twice) == (1, ())
    for kills in ([], [killed(1.5, turns=1)], [killed(2.5, turns=3)]):
        verdict = judge(evolve(again, kills=kills))
        assert verdict.paid_twice == ("k: turn 2 at 2.90 s, answered before",)
    stopped = Kill(job_id=JOB, at_s=2.5, dead_s=3.0, turns=2)  # the harness, in the middle of it
    assert judge(evolve(again, kills=[stopped])).problems == []
    twice = evolve(again, calls=(*CALLS, call(1, 2.8), call(2, 2.9)))
    assert len(judge(twice).paid_twice) == 1, "one kill has one call under way"


def test_judge_excuses_a_repeated_call_by_a_kill_of_its_turn() -> None:
    run = evolve(RUN, called=[*RUN.called, f"{PUT} of turn 2"])
    assert judge(evolve(CALM, runs=[run], kills=[killed(3.0, turns=3)])).problems == []
    for kills in ([], [killed(2.0, turns=2)], [killed(4.0, turns=4)]):
        (problem,) = judge(evolve(CALM, runs=[run], kills=kills)).problems
        assert problem == f"doubled: k: '{PUT} of turn 2' called 2 times, killed 0 times"


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({"written": {**RUN.written, APPEND: RUN.written[APPEND] * 2}}, "doubled: k: "),
        ({"written": {**RUN.written, PUT: []}}, "missing: k: "),
        ({"called": []}, "missing: k: "),
        ({"status": "FAILED", "result": None}, "k ended FAILED"),
    ],
)
def test_judge_finds_doubled_and_missing_effects(changes: dict[str, Any], expected: str) -> None:
    verdict = judge(evolve(CALM, runs=[evolve(RUN, **changes)]))
    assert verdict.problems[0].startswith(expected)
