"""Signals whose pods are killed: the short form of `python -m chaos signals`, and its judges."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from chaos.checkers.i38_signals import check
from chaos.checkers.verdict import Result
from chaos.signals.judge import judge
from chaos.signals.storm import Received, Storm, bench_in, storm
from chaos.workloads.program import SIGNALS
from tests.support.evidence import Run, uuid
from tests.support.healthy_run import healthy_run
from tests.support.records.rows import new_id, seeded_random
from tests.support.servers.postgres import make_home, remove_servers

JOB = new_id()
CALM = Storm(
    count=3, jobs=[Received(job_id=JOB, status="COMPLETED", items=[0, 1, 2])], sent=3, kills=1
)


@pytest.fixture
def signal_bench(run_dir: Path) -> Iterator[Callable[..., Storm]]:
    """Runs a storm on a server of its own."""
    folder = make_home(run_dir)

    async def run(**terms: Any) -> Storm:
        async with bench_in(folder) as bench:
            return await storm(bench, **terms)

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        yield lambda **terms: runner.run(run(**terms))
    remove_servers(folder)


def test_killed_pods_leave_each_signal_received_once_in_order(
    signal_bench: Callable[..., Storm],
) -> None:
    seed = seeded_random().getrandbits(32)
    verdict = judge(signal_bench(jobs=10, signals=100, kills=2, seed=seed))
    assert verdict.problems == ()
    assert (verdict.sent, verdict.received, verdict.kills) == (100, 100, 2)


@pytest.mark.parametrize(
    "items, status, figures",
    [
        ([0, 1, 2], "COMPLETED", (0, 0, 0)),
        ([0, 2], "COMPLETED", (1, 0, 0)),
        ([0, 1, 1, 2], "COMPLETED", (0, 1, 0)),
        ([1, 0, 2], "COMPLETED", (0, 0, 1)),
        (None, "FAILED", (3, 0, 0)),
    ],
)
def test_the_judge_counts_what_is_lost_doubled_or_out_of_order(
    items: list[int] | None, status: str, figures: tuple[int, int, int]
) -> None:
    verdict = judge(evolve(CALM, jobs=[Received(job_id=JOB, status=status, items=items)]))
    assert (verdict.lost, verdict.doubled, verdict.disordered) == figures
    assert verdict.is_good is (figures == (0, 0, 0))
    assert judge(evolve(CALM, sent=2)).problems == ("2 signals were acknowledged for 1 jobs",)


# --- the checker of every run

NAME = "0:signals"


def received(run: Run) -> list[dict[str, Any]]:
    own = [row for row in run.steps if row["job_id"] == uuid("signalled")]
    return [row for row in own if row["kind"] == "step"]


def emitted_twice(run: Run) -> None:
    chunks = [row for row in run.steps if row.get("kind") == "emit"]
    chunks[1]["output"] = chunks[0]["output"]


def kept_by_a_loser(run: Run) -> None:
    run.step("signalled", "0:signals first", 46.4)
    run.steps[-1] |= {"kind": "first", "output": {"index": 0, "signals": ["0:signals"]}}
    run.signals[0] |= {"taken_by": uuid("signalled"), "taken_step": "0:signals"}


def outputs(run: Run) -> list[dict[str, object]]:
    return [row["output"] for row in received(run)]


def lost(run: Run) -> None:
    run.steps.remove(received(run)[-1])


def out_of_order(run: Run) -> None:
    one, two, *_ = outputs(run)
    one["value"], two["value"] = two["value"], one["value"]


def received_twice(run: Run) -> None:
    one, two, *_ = outputs(run)
    two["signal"] = one["signal"]


def not_there(run: Run) -> None:
    run.signals.pop()


def sent_twice(run: Run) -> None:
    other = {"key": "signalled", "name": NAME, "number": 0, "signal": str(new_id())}
    run.tell(46.4, "sender-1", "signal", "ok", **other)
    run.signals.append({"id": other["signal"]})


@pytest.mark.parametrize(
    "spoil, why",
    [
        (lost, f"received {[*range(SIGNALS - 1)]}, not {[*range(SIGNALS)]}"),
        (out_of_order, "received [1, 0, "),
        (received_twice, "was received 2 times"),
        (not_there, "was acknowledged, and is not there"),
        (sent_twice, "was sent twice"),
        (emitted_twice, "emitted [0, 0, "),
        (kept_by_a_loser, "is kept by step '0:signals' of job"),
    ],
)
def test_the_checker_finds_what_is_wrong_with_signals(
    spoil: Callable[[Run], None], why: str
) -> None:
    run = healthy_run()
    spoil(run)
    verdict = check(run.evidence())
    assert verdict.result is Result.INVALID
    assert why in verdict.why[0]
