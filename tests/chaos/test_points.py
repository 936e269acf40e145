"""Points: the shots tried, the outcomes judged wrong, and the report for a job's author."""

import asyncio
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast
from uuid import UUID

import attrs
import pytest
from attrs import evolve

from chaos.cluster.fork_server import Process
from chaos.points import events, outcomes, own_job, report
from chaos.points.bench import Bench, Trial, TrialPod
from chaos.points.exhaust import Result, drawn, passings, points_of, shots_of, unpassed
from chaos.points.judge import problems
from chaos.points.programs import PROGRAMS, RIVALS, Program
from chaos.points.shot import Left, Recorded, Shot, fire, record
from chaos.workloads.program import Op
from cortex.crash_points import BETWEEN, POINTS, Kind
from tests.support.servers.postgres import make_home, remove_servers, run_asyncio

T = TypeVar("T")

APP = """
import random
from chaos.workloads.app import chaos_idempotent, chaos_program
from cortex import Context, job

@job("drawing")
async def drawing(ctx: Context) -> int:
    return await ctx.step("one", one, random.random())

async def one(drawn: float) -> int:
    return 1
"""
PAYS = Program(name="pays", kinds=frozenset({Kind.EFFECT}), operations=(Op.IDEMPOTENT,))


Runs = Callable[[Callable[[Bench], Coroutine[Any, Any, T]]], T]


@pytest.fixture(scope="module")
def on_bench(run_dir: Path) -> Iterator[Runs[Any]]:
    """Runs a function on a bench for a user's own jobs."""
    folder = make_home(run_dir)
    app = folder / "own_app.py"
    app.write_text(APP)
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        bench = Bench(folder, str(app), has_own_models=True)
        runner.run(bench.__aenter__())
        try:
            yield lambda work: runner.run(work(bench))
        finally:
            runner.run(bench.__aexit__(None, None, None))
            remove_servers(folder)


@pytest.fixture(scope="module")
def paid(on_bench: Runs[Any]) -> tuple[Recorded, Shot, Left]:
    """A program's undisturbed run, and the record after a kill in the middle of its call."""
    recorded: Recorded = on_bench(lambda bench: record(bench, PAYS))
    shot = Shot(program=PAYS, point="after_call", nth=1, how="kill")
    left: Left = on_bench(lambda bench: fire(bench, shot))
    return recorded, shot, left


def judged(paid: tuple[Recorded, Shot, Left], **changes: Any) -> list[str]:
    recorded, shot, left = paid
    return problems(PAYS, evolve(left, **changes), shot=shot, baseline=recorded.left)


# --- what is tried


def test_each_kind_has_a_program_and_each_program_a_name_of_its_own() -> None:
    assert {kind for each in PROGRAMS for kind in each.kinds} == set(Kind)
    assert len({each.name for each in PROGRAMS}) == len(PROGRAMS)


def test_a_seed_draws_each_point_once_and_another_seed_draws_otherwise() -> None:
    passed = [*POINTS, *POINTS]
    shots = [one for each in PROGRAMS for one in shots_of(each, passed)]
    draws = [drawn(shots, seed) for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]
    for draw in draws:
        assert {each.point for each in draw} == {each.point for each in shots}
        assert {each.how for each in draw} == {"kill", "stop"}
        assert all(each in shots for each in draw)
        assert len(draw) < len(shots) / 3


def test_polled_points_are_tried_only_before_work() -> None:
    passed = ["before_claim", "before_claim", "after_claim", "before_step", "after_step"]
    passed += ["before_step", "after_step", "before_claim", "before_beat"]
    assert list(passings("before_step", passed)) == [1, 2]
    assert list(passings("before_claim", passed)) == [2]
    assert list(passings("after_claim", passed)) == [1]
    assert list(passings("before_beat", passed)) == [1]


def test_pairs_are_stopped_only_at_points_no_single_program_passes() -> None:
    pair = evolve(PAYS, kinds=frozenset({Kind.EFFECT, Kind.DOUBT}), is_pair=True)
    passed = sorted(points_of(pair.kinds))
    ways = {(one.point, one.how) for one in shots_of(pair, passed)}
    assert ("after_call", "kill") in ways
    assert ("after_call", "stop") not in ways
    assert ("before_reconcile", "stop") in ways
    assert {("after_call", "kill"), ("after_call", "stop")} <= {
        (one.point, one.how) for one in shots_of(PAYS, passed)
    }


def test_point_passed_by_no_program_is_reported() -> None:
    everything = {each.name: list(POINTS) for each in PROGRAMS}
    assert list(unpassed(PROGRAMS, everything)) == []
    for program in ("step", "bulk", "flow", "notification", "publish", "patched", "published"):
        everything[program].remove("before_step")
    (missing,) = unpassed(PROGRAMS, everything)
    assert (missing.point, missing.problems) == ("before_step", ["nothing of kind step passes it"])


# --- what counts as wrong


def test_every_wrong_outcome_is_reported(paid: tuple[Recorded, Shot, Left]) -> None:
    recorded, _, left = paid
    assert problems(PAYS, recorded.left, shot=None, baseline=recorded.left) == []
    assert judged(paid) == []
    assert recorded.points.count("during_call") == 2
    assert left.job["attempt"] == 2
    (paid_once,) = left.applied
    (job,) = left.record["jobs"]
    (step,) = left.record["steps"]
    wrong: dict[str, dict[str, Any]] = {
        "applied 2 times": {"applied": (paid_once, paid_once)},
        "applied 0 times": {"applied": ()},
        "the record has result": {"applied": (evolve(paid_once, result=0),)},
        "its result is 7": {"record": left.record | {"jobs": ({**job, "result": 7},)}},
        "the job is FAILED": {"record": left.record | {"jobs": ({**job, "status": "FAILED"},)}},
        "1 retries were counted": {"record": left.record | {"jobs": ({**job, "retry_count": 1},)}},
        "was committed but is gone": {"before": left.before | {"steps": ({**step, "attempt": 7},)}},
        "pod heir ended with 1": {"exits": {"heir": 1}},
        "the log of pod heir": {"logs": {"heir": '{"event": "actor crashed too often"}'}},
        "there are 2 jobs": {"record": left.record | {"jobs": (job, job)}},
    }
    for output, changes in wrong.items():
        assert any(output in why for why in judged(paid, **changes)), output


OWN, OTHER = UUID(int=1), UUID(int=2)


def left_by(name: str, **changes: Any) -> Left:
    """What a trial of jobs that wait leaves when all went well."""
    job = {"type": f"points_{name}", "status": "COMPLETED", "result": 1, "payload": {"number": 1}}
    record: dict[str, Any] = {
        "jobs": ({**job, "id": OWN}, {**job, "id": OTHER}),
        "steps": tuple({"job_id": OWN, "key": key, "output": key} for key in ("emit", "emit#2")),
        "approvals": ({"status": "CANCELLED"},),
        "signals": ({"payload": 1, "taken_step": "go"}, {"payload": 2, "taken_step": "go#2"}),
    }
    kept: dict[str, Any] = {
        "published": ({"state": '{"a": 1}', "done": None, "total": None, "unit": None},),
        "uses": ({"unit": "jobs", "used": 1 + RIVALS},),
    }
    notes = [(str(OTHER), 1, "begun", 0.0), (str(OTHER), 1, "ended", 1.0)]
    notes += [(str(OWN), 1, "begun", 2.0), (str(OWN), 1, "ended", 3.0)]
    return Left(
        key="t",
        record=record | {k: v for k, v in changes.items() if k in record},
        before={},
        applied=(),
        deliveries=(),
        calls=Counter(),
        old={},
        archived=frozenset(),
        exits={},
        logs={},
        kept=kept | {k: v for k, v in changes.items() if k not in (*record, "notes")},
        notes=changes.get("notes", tuple(notes)),
    )


@pytest.mark.parametrize(
    "name, changes, why",
    [
        ("limits", {"places": ({"job_id": OWN, "key": "k"},)}, "has ended and holds a place of k"),
        (
            "first",
            {"waits": ({"job_id": OWN, "kind": "signal", "name": "go"},)},
            "has ended and waits for signal go",
        ),
        ("children", {"jobs": ({"id": OWN, "type": "points_parent"},)}, "beside it there are []"),
        (
            "published",
            {"published": ({"state": '{"a": 2}', "done": None, "total": None, "unit": None},)},
            "it shows [{'state': {'a': 2}",
        ),
        ("published", {"steps": ()}, "it has emitted [], undisturbed ['emit', 'emit#2']"),
        ("first", {"approvals": ({"status": "PENDING"},)}, "its requests to people are"),
        ("first", {"signals": ()}, "the signals were taken as []"),
        ("callback", {}, "the callback became 2 signals"),
        ("limits", {"uses": ({"unit": "jobs", "used": 9},)}, "9 jobs count as begun"),
        (
            "limits",
            {"notes": ((str(OTHER), 1, "begun", 0.0), (str(OWN), 1, "begun", 1.0))},
            f"job {OWN} begun while job {OTHER} had the only place",
        ),
        ("pause", {"notes": ((str(OWN), 1, "begun", 0.0),)}, "without a deadline ran before"),
        ("rules", {}, "by type, the submits that ran are {'points_rules': 1}"),
    ],
)
def test_every_wrong_end_of_a_wait_is_reported(name: str, changes: Any, why: str) -> None:
    (program,) = (each for each in PROGRAMS if each.name == name)
    usual = left_by(name)
    found = list(outcomes.problems(program, left_by(name, **changes), usual, None))
    assert any(why in each for each in found), found
    if changes:
        assert list(outcomes.problems(program, usual, usual, None)) == []


def test_points_table_shows_each_point_and_its_problems() -> None:
    good = Result(program="step", point="before_step", nth=1, how="kill")
    bad = Result(program="model", point="before_step", nth=1, how="kill", problems=["it is lost"])
    table = report.table([good, bad])
    (line,) = [line for line in table.splitlines() if line.startswith("before_step")]
    assert "1 of 2 ok" in line
    assert "model, kill at before_step:1: it is lost" in table
    assert not report.is_good([good, bad])
    assert report.document([good])["is_good"]


def test_most_points_between_transactions_must_be_passed() -> None:
    passed = [Result(program="tick", point=f"{BETWEEN}.a.{n}", nth=1, how="kill") for n in range(3)]
    missed = Result(program="tick", point=f"{BETWEEN}.b", nth=1, how="kill", is_passed=False)
    assert report.is_good([*passed, missed])
    assert not report.is_good([*passed, missed, missed])
    assert "1 not passed again" in report.sentence([*passed, missed])


# --- a user's job


def test_non_surviving_job_is_reported_with_point_and_reason(
    on_bench: Runs[own_job.Survival],
) -> None:
    def killed_everywhere(job_type: str) -> own_job.Survival:
        program = own_job.program_of(job_type, {})
        return on_bench(lambda bench: own_job.survive(bench, program, at_once=4))

    survival = killed_everywhere("drawing")
    points = {each.point for each in survival.outcomes}
    assert {"after_claim", "before_step", "after_step", "before_finish"} <= points
    broken = {each.point for each in survival.outcomes if each.wrong}
    assert broken == {"after_step", "before_finish"}, "where its step is in the record"
    text = "\n".join(own_job.lines(survival))
    assert "killed at after_step:1: its replay diverged" in text
    times = len(survival.outcomes)  # also at claims that found nothing to take
    assert text.endswith(f"drawing, 1 steps, killed {times} times: does not survive")
    with pytest.raises(own_job.UndisturbedError, match="has no job type 'no_such'"):
        killed_everywhere("no_such")


def test_surviving_job_is_reported_with_the_work_left_to_people() -> None:
    asking = own_job.Outcome(point="after_call", nth=1, notes=("somebody is asked",), asks=True)
    well = own_job.Outcome(point="after_step", nth=1)
    survival = own_job.Survival(
        job_type="pay", step_count=1, is_steady=True, outcomes=(asking, well)
    )
    *_, note, empty, verdict = own_job.lines(survival)
    assert note == "  killed at after_call:1: somebody is asked"
    assert not empty
    assert verdict.endswith("survives being killed anywhere, 1 times with the help of a person")


@attrs.frozen
class OnDatabase:
    """All that breaking a claim needs of a trial."""

    owned: str


def test_a_pod_that_stops_before_its_claim_fails_is_not_waited_for(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "WITHIN_S", 2.0)
    log = tmp_path / "pod.log"
    log.touch()
    with subprocess.Popen(["sleep", "60"]) as process:
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        try:
            trial, pod = OnDatabase(database), TrialPod("doomed", cast("Process", process), log)
            run_asyncio(lambda: events._break_a_claim(cast("Trial", trial), pod))
        finally:
            process.kill()
