"""Fallbacks of jobs in memory: any model's name is answered, and a replay asks nobody."""

from typing import Any

import pytest

from cortex import Context, job
from cortex.domain.errors import CortexError, UsageError
from cortex.flows.run import FlowResult, FlowRun
from cortex.flows.spec import parse_flows
from cortex.jobs.llm_generate import check, llm_generate
from cortex.testing import Cortex
from tests.providers.test_fallback import FIRST, SECOND, rejected
from tests.unit.testing.conftest import harness

__all__ = ["harness"]


@job
async def asks(ctx: Context) -> list[str | None]:
    response = await ctx.llm(
        "ask", model=FIRST, messages=[{"role": "user", "content": "hi"}], fallback=[SECOND]
    )
    again = await ctx.llm(
        "other", model="google:gemini-x", messages=[{"role": "user", "content": "x"}]
    )
    other = response.substitution
    return [response.text, None if other is None else other.model, again.text]


async def test_a_replay_of_a_handed_over_call_asks_nobody(harness: Cortex) -> None:
    harness.model.script([rejected("authentication"), "from the other", "third"])
    run = await harness.run(asks)
    assert run.result == ["from the other", SECOND, "third"]
    assert [each.model for each in harness.model.requests] == [FIRST, SECOND, "google:gemini-x"]
    run.replays()
    assert len(harness.model.requests) == 3


async def test_a_kill_at_any_point_keeps_the_one_who_answered(harness: Cortex) -> None:
    harness.model.says("from any")
    assert await harness.crash_everywhere(asks) > 0


async def test_one_response_as_a_job_has_a_fallback(harness: Cortex) -> None:
    harness.model.script([rejected("authentication"), "from the other"])
    run = await harness.run(llm_generate, model=FIRST, prompt="hi", fallback=[SECOND])
    assert run.result.text == "from the other"
    assert [each.model for each in harness.model.requests] == [FIRST, SECOND]


STEP = "name: f\nsteps:\n- name: ask\n  uses: llm\n  with: {{model: {}, prompt: p, fallback: {}}}\n"


async def test_a_step_of_a_flow_has_a_fallback(harness: Cortex) -> None:
    (flow,) = parse_flows(STEP.format(FIRST, f"['{SECOND}']"), "f.yaml")
    harness.model.script([rejected("authentication"), "from the other"])

    @job
    async def runs(ctx: Context) -> FlowResult:
        return await FlowRun(ctx, flow, version=1, inputs={}).run()

    run = await harness.run(runs)
    assert "from the other" in str(run.result)
    assert [each.model for each in harness.model.requests] == [FIRST, SECOND]


@pytest.mark.parametrize(
    "fallback, message",
    [
        (FIRST, "fallback is not a list of models"),
        ([FIRST], f'fallback[0] names "{FIRST}" twice'),
        ([" "], "fallback[0] must not be empty"),
        ([f"m{n}" for n in range(9)], "fallback has 9 models, at most 8"),
    ],
)
async def test_a_wrong_fallback_is_named(harness: Cortex, fallback: Any, message: str) -> None:
    @job
    async def mistaken(ctx: Context) -> None:
        await ctx.llm("ask", model=FIRST, messages=[], fallback=fallback)

    harness.model.says("never asked")
    run = await harness.run(mistaken)
    assert f"model call 'ask': {message}" in str(run.error)
    assert harness.model.requests == []
    with pytest.raises(CortexError) as caught:
        check(FIRST, prompt="p", fallback=fallback)
    assert caught.value.message == f"llm_generate: {message}"


def test_a_flow_names_the_line_of_a_wrong_fallback() -> None:
    with pytest.raises(UsageError) as caught:
        parse_flows(STEP.format(FIRST, f"['{SECOND}', {FIRST}]"), "f.yaml")
    place = "f.yaml:5: steps[0].with.fallback[1]"
    assert caught.value.message == f'{place} names "{FIRST}" twice'
