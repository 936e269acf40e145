"""Steps of flows that run jobs: children of the flow's job, and what they do when those fail."""

from typing import Any

import attrs
import pytest

from cortex import Context, Retry, job
from cortex.domain.errors import ChildFailedError, TransientError, UnfitCodeError, UsageError
from cortex.flows.graph import boxes, mermaid
from cortex.flows.run import FlowRun
from cortex.flows.spec import FlowSpec, parse_flows
from cortex.testing import Cortex

TRIES: dict[int, int] = {}


@job(retry=Retry(max=0))
async def double(ctx: Context, number: int, failing: int = 0) -> int:
    """Fail as often as `failing` says, in all: each child is another job."""
    TRIES[number] = TRIES.get(number, 0) + 1
    if TRIES[number] <= failing:
        raise TransientError("not yet")
    if number < 0:
        raise ValueError("negative")
    return 2 * number


@job
async def flow(ctx: Context, steps: list[Any], inputs: dict[str, Any]) -> Any:
    spec = FlowSpec.from_json(
        {"name": "f", "inputs": {name: {} for name in inputs}, "steps": steps}
    )
    return attrs.asdict(await FlowRun(ctx, spec, version=1, inputs=inputs).run())


def doubles(arguments: Any, **fields: Any) -> dict[str, Any]:
    given = {"job": "double", "arguments": arguments}
    return {"name": "twice", "uses": "job", "with": given, **fields}


@pytest.fixture(autouse=True)
def fresh() -> None:
    TRIES.clear()


def test_step_runs_a_job_and_has_its_result(cortex: Cortex) -> None:
    last = {"name": "more", **doubles({"number": "${{ steps.twice.result }}"})} | {"name": "more"}
    steps = [doubles({"number": "${{ inputs.number }}"}), last]
    run = cortex.run_sync(flow, steps=steps, inputs={"number": 4})
    assert run.result["result"] == 16
    assert run.steps == ["twice", "twice result", "more", "more result"]
    run.replays()
    assert cortex.crash_everywhere_sync(flow, steps=steps, inputs={"number": 4}) > 3


def test_each_item_is_a_child_of_one_step(cortex: Cortex) -> None:
    each = {"for_each": "${{ inputs.numbers }}", "when": "${{ item > 1 }}", "concurrency": 2}
    steps = [doubles({"number": "${{ item }}"}, **each)]
    run = cortex.run_sync(flow, steps=steps, inputs={"numbers": [1, 2, 3, 4]})
    assert run.result["result"] == [None, 4, 6, 8]
    assert run.steps[0] == "twice"
    assert set(run.steps[1:]) <= {"twice result", "twice result#2"}
    run.replays()
    none = cortex.run_sync(flow, steps=steps, inputs={"numbers": [0]})
    assert (none.result["result"], none.steps) == ([None], [])


def test_failed_child_is_tried_again_as_another_job(cortex: Cortex) -> None:
    retry = {"retry": {"max": 2, "base_ms": 1}}
    failing = {"number": 3, "failing": 2}
    run = cortex.run_sync(flow, steps=[doubles(failing, **retry)], inputs={})
    assert run.result["result"] == 6
    assert [key for key in run.steps if key.startswith("twice try")][-2:] == [
        "twice try 3",
        "twice try 3 result",
    ]
    run.replays()
    TRIES.clear()
    each = {"for_each": [{"number": 1, "failing": 0}, {"number": 2, "failing": 2}]}
    run = cortex.run_sync(flow, steps=[doubles("${{ item }}", **each, **retry)], inputs={})
    assert run.result["result"] == [2, 4]
    assert TRIES == {1: 1, 2: 3}
    run.replays()


def test_child_that_keeps_failing_fails_the_flow_or_its_step(cortex: Cortex) -> None:
    retry = {"retry": {"max": 1, "base_ms": 1}}
    failing = {"number": 3, "failing": 9}
    error = cortex.run_sync(flow, steps=[doubles(failing, **retry)], inputs={}).error
    assert "step 'twice' failed 2 times" in str(error)
    error = cortex.run_sync(flow, steps=[doubles({"number": -1})], inputs={}).error
    assert isinstance(error, ChildFailedError)
    mapped = doubles({"number": "${{ item }}"}, for_each=[-1])
    error = cortex.run_sync(flow, steps=[mapped], inputs={}).error
    assert isinstance(error, ChildFailedError)
    assert error.__cause__ is not error
    each = {"for_each": [-1, 5], "on_error": "continue"}
    steps = [doubles({"number": "${{ item }}"}, **each)]
    run = cortex.run_sync(flow, steps=steps, inputs={})
    assert (run.result["steps"], run.result["result"]) == ({"twice": "failed"}, [None, 10])
    run.replays()
    steps = [doubles({"number": -1}, on_error="continue")]
    run = cortex.run_sync(flow, steps=steps, inputs={})
    assert run.result["steps"] == {"twice": "failed"}
    run.replays()


@pytest.mark.parametrize(
    "given, words",
    [
        ({}, "lacks job"),
        ({"job": "${{ inputs.job }}"}, "must be written out, without an expression"),
        ({"job": "double", "args": {}}, "is unknown"),
        ({"job": "double", "arguments": [1]}, "must be a mapping"),
        ({"job": "bulk"}, "bulk"),
        ({"job": "run_agent"}, "run_agent needs an agent"),
        ({"job": "double", "budget": {"eur": 1}}, "budget has no unit 'eur'"),
        ({"job": "double", "priority": 99_999}, "priority 99999 is not a whole number"),
    ],
)
def test_step_that_could_run_no_job_is_refused(given: dict[str, Any], words: str) -> None:
    step = {"name": "a", "uses": "job", "with": given}
    with pytest.raises(UnfitCodeError, match=words):
        FlowSpec.from_json({"name": "f", "steps": [step]})


def test_names_of_arguments_are_checked_where_the_type_is_known() -> None:
    def check(job_type: str, names: Any) -> tuple[str, str] | None:
        return ("arguments", f"has {', '.join(names)}") if job_type == "double" else None

    text = (
        "name: f\nsteps:\n- {name: a, uses: job, with: {job: unknown, arguments: {x: 1}}}\n"
        "- name: b\n  uses: job\n  with:\n    job: double\n    arguments: {numbr: 1}\n"
    )
    with pytest.raises(UsageError, match=r"f.yaml:8: steps\[1\].with.arguments has numbr"):
        parse_flows(text, "f.yaml", check_job=check)


def test_graph_names_the_type_of_the_job() -> None:
    spec = FlowSpec.from_json({"name": "f", "steps": [doubles({"number": 1})]})
    assert '    s0["twice<br>job double"]' in list(mermaid(spec))
    assert any("twice  job double" in line for line in boxes(spec))
