"""An agent's turns: messages to the model, ends of the job, and time limits."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from cortex.agent.limits import AgentLimits, OnStop
from cortex.agent.loop import CONTINUED_MAX, AgentResult, run_agent
from cortex.agent.spec import AgentSpec
from cortex.agent.tools.tool import AnyTool, tool
from cortex.agent.tools.toolbox import Toolbox
from cortex.domain.control_flow import Suspended
from cortex.domain.effect import Invocation, NotApplied, Verdict
from cortex.domain.errors import InvalidOutputError, TimedOutError
from cortex.domain.job import Claim
from cortex.durable.attempt import JobLimits
from tests.support.agent_turns import Script, Turn, calls, says
from tests.support.records.factories import (
    ClosedBreakers,
    DefaultPolicies,
    LedgerDesk,
    Record,
    a_context,
)


@attrs.define
class ShortSteps(DefaultPolicies):
    step_s: float

    async def limits(self, claim: Claim) -> JobLimits:
        return attrs.evolve(await super().limits(claim), step_s=self.step_s)


@tool(local=True)
async def add(one: int, other: int) -> int:
    """Add two numbers."""
    return one + other


@tool
async def wrong(what: str) -> int:
    """Return text in place of a number."""
    return what  # type: ignore[return-value]


@tool(name="must", required=True)
async def must(what: str) -> int:
    """Return text in place of a number, from a required tool."""
    if what == "raise":
        raise ConnectionResetError(what)
    return what  # type: ignore[return-value]


TOOLS = {each.name: each for each in (add, wrong, must)}

Run = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run an agent on a script: a first attempt, or one that replays a record."""

    async def run(
        script: Script,
        *,
        record: Record | None = None,
        tools: dict[str, AnyTool] = TOOLS,
        given: tuple[str, ...] | None = None,
        lent: dict[str, Any] | None = None,
        **fields: Any,
    ) -> AgentResult:
        names = tuple(tools) if given is None else given
        spec = AgentSpec(name="a", model="m", system="s", tools=names, **fields)
        toolbox = Toolbox(tools)
        ctx = a_context(record, models=script, tools=toolbox, workspaces=tmp_path, **(lent or {}))
        return await run_agent(ctx, spec, prompt="do it", folder=None)

    return run


# --- tools: what they return


async def test_results_go_to_the_model_in_the_order_of_its_calls(run: Run) -> None:
    script = Script(
        [calls(("add", {"one": 1, "other": 2}), ("add", {"one": 3, "other": 4})), says("7 and 3")]
    )
    result = await run(script)
    assert script.last_results == ["3", "7"]
    assert (result.text, result.steps) == ("7 and 3", 2)


async def test_tool_choice_forces_the_first_answer_only(run: Run) -> None:
    script = Script([calls(("add", {"one": 1, "other": 2})), says("3")])
    await run(script, tool_choice="add", temperature=0.5)
    first, second = (each.options for each in script.asked)
    assert (first.tool_choice, second.tool_choice) == ("add", None)
    assert first.temperature == second.temperature == 0.5


async def test_wrong_result_of_an_optional_tool_goes_to_the_model(run: Run) -> None:
    script = Script([calls(("wrong", {"what": "x"})), says("so be it")])
    assert (await run(script)).text == "so be it"
    assert "'wrong': the result must be a whole number" in script.last_results[0]
    assert script.asked[-1].messages[-1]["content"][0]["is_error"] is True


async def test_a_wrong_result_of_a_required_tool_ends_the_job_and_is_kept(run: Run) -> None:
    record = Record()
    script = Script([calls(("must", {"what": "x"}))])
    with pytest.raises(InvalidOutputError, match="'must': the result must be") as caught:
        await run(script, record=record)
    assert caught.value.raw == "x"
    assert record.keys == ["1 model"]


async def test_any_failure_of_a_required_tool_is_left_to_the_jobs_retries(run: Run) -> None:
    with pytest.raises(ConnectionResetError):
        await run(Script([calls(("must", {"what": "raise"}))]))


def _fail(*_: object) -> Any:
    raise KeyboardInterrupt


async def _not_applied(_: Invocation) -> Verdict:
    return NotApplied()


def _lack(error: object) -> str:
    return f"{error.response}"  # type: ignore[attr-defined]


@pytest.mark.parametrize("declared", [{}, {"effect": True, "reconcile": _not_applied}])
@pytest.mark.parametrize(
    "parts, result",
    [
        ({"__str__": _lack}, "OddError: "),
        ({"__str__": _fail, "__repr__": _fail}, "StrayError: OddError"),
        ({"__class__": property(_fail), "__getattribute__": _fail}, "StrayError: OddError"),
    ],
    ids=["text that raises", "text that interrupts", "parts that interrupt"],
)
async def test_unreadable_error_of_a_tool_goes_to_the_model(
    run: Run, declared: dict[str, Any], parts: dict[str, Any], result: str
) -> None:
    @tool(name="odd", **declared)
    async def odd() -> None:
        """Raise an odd error."""
        raise type("OddError", (Exception,), parts)("odd")

    lent = {"gateway": LedgerDesk()}
    script = Script([calls(("odd", {})), says("so be it")])
    assert (await run(script, tools={"odd": odd}, lent=lent)).text == "so be it"
    assert script.last_results == [result]


async def test_a_tool_that_the_agent_was_not_given_is_not_called(run: Run) -> None:
    record = Record()
    script = Script([calls(("add", {"one": 1, "other": 2})), says("pity")])
    await run(script, record=record, given=("must",))
    assert script.last_results == ["there is no tool 'add'; you have must"]
    assert record.keys == ["1 model", "1 add", "2 model"]


# --- tools: what they are given


async def test_invalid_input_returns_twice_before_the_job_fails(run: Run) -> None:
    record = Record()
    turns = [
        calls(("add", '{"one": 1')),
        calls(("add", {"one": "1", "other": 2})),
        calls(("add", {"one": 1, "other": 2}), ("must", '{"what": \x00')),
    ]
    script = Script(turns)
    with pytest.raises(InvalidOutputError, match=r"3 times in a row.*tool 'must'") as caught:
        await run(script, record=record)
    assert caught.value.raw == '{"what": \N{REPLACEMENT CHARACTER}'
    assert "one must be a whole number" in script.last_results[0]
    again = Script([])
    with pytest.raises(InvalidOutputError) as replayed:
        await run(again, record=record)
    assert replayed.value.message == caught.value.message
    assert again.asked == []


async def test_only_turns_in_a_row_count(run: Run) -> None:
    bad, good = calls(("add", "[")), calls(("add", {"one": 1, "other": 2}))
    script = Script([bad, bad, good, bad, bad, says("done")])
    assert (await run(script)).text == "done"


async def test_other_failures_of_tools_do_not_count(run: Run) -> None:
    script = Script([*[calls(("wrong", {"what": "x"}))] * 4, says("done")])
    assert (await run(script)).text == "done"


# --- stops


async def test_an_answer_that_was_cut_off_is_continued_and_put_together(run: Run) -> None:
    script = Script([says("one, ", "max_tokens"), says("two, ", "max_tokens"), says("three")])
    assert (await run(script)).text == "one, two, three"
    roles = [message["role"] for message in script.asked[-1].messages]
    assert roles == ["user", "assistant", "user", "assistant", "user"]
    assert "cut off" in script.last_results[0]


async def test_an_empty_answer_is_asked_for_again_and_not_repeated_to_the_model(run: Run) -> None:
    script = Script([says(""), says(" \n"), says("here")])
    assert (await run(script)).text == "here"
    assert [each["role"] for each in script.asked[-1].messages] == ["user"] * 3


async def test_empty_continuation_ends_a_cut_answer(run: Run) -> None:
    script = Script([says("all of it", "max_tokens"), says("")])
    assert (await run(script)).text == "all of it"


@pytest.mark.parametrize(
    "turn, raw", [(says("more", "max_tokens"), "moremoremoremore"), (says(""), "")]
)
async def test_number_of_continuations_is_limited(run: Run, turn: Turn, raw: str) -> None:
    script = Script([turn] * (CONTINUED_MAX + 1))
    with pytest.raises(InvalidOutputError, match="after being asked 3 times to go on") as caught:
        await run(script)
    assert caught.value.raw == raw
    assert len(script.asked) == CONTINUED_MAX + 1


async def test_tool_call_resets_the_count_of_empty_answers(run: Run) -> None:
    use = calls(("add", {"one": 1, "other": 2}))
    script = Script([*[says("")] * 3, use, *[says("")] * 3, says("done")])
    assert (await run(script)).text == "done"


@pytest.mark.parametrize(
    "turn, on_stop, output",
    [
        (
            says("half", "max_tokens"),
            OnStop(max_tokens="fail"),
            "stopped with 'max_tokens' in step 1",
        ),
        (says("I will not", "refusal"), OnStop(), "stopped with 'refusal' in step 1"),
        (calls(("add", {}), stop_reason="refusal"), OnStop(), "stopped with 'refusal'"),
        (calls(("add", {}), stop_reason="max_tokens"), OnStop(max_tokens="fail"), "max_tokens"),
        (says(""), OnStop(empty="fail"), "gave an empty answer in step 1"),
    ],
)
async def test_the_agents_policy_may_fail_a_stop(
    run: Run, turn: Turn, on_stop: OnStop, output: str
) -> None:
    with pytest.raises(InvalidOutputError, match=output):
        await run(Script([turn]), on_stop=on_stop)


async def test_tools_that_were_called_whole_before_the_cut_run(run: Run) -> None:
    cut = calls(("add", {"one": 1, "other": 2}), ("add", '{"one"'), stop_reason="max_tokens")
    script = Script([cut, says("done")])
    await run(script)
    assert script.last_results[0] == "3"
    assert "your answer was cut before the arguments of this call" in script.last_results[1]


# --- limits, and calls behind a breaker


def hangs(clock: MockClock) -> dict[str, AnyTool]:
    """Tools, and one with which time begins to pass: it never ends."""

    @tool(local=True)
    async def hang() -> None:
        """Hang."""
        clock.rate = 1_000
        await trio.sleep_forever()

    return {**TOOLS, "hang": hang}


async def test_step_timeout_names_step_and_limit(run: Run, mock_clock: MockClock) -> None:
    record = Record()
    script = Script([calls(("add", {"one": 1, "other": 2})), calls(("hang", {}))])
    with pytest.raises(TimedOutError, match="step 2 of agent 'a' took longer than 90") as caught:
        await run(script, record=record, tools=hangs(mock_clock), lent={"policies": ShortSteps(90)})
    assert (caught.value.scope, caught.value.limit_s) == ("step", 90)
    assert record.keys == ["1 model", "1 add", "2 model"]


async def test_tool_timeout_goes_to_the_model_after_the_agents_limit(
    run: Run, mock_clock: MockClock
) -> None:
    script = Script([calls(("hang", {})), says("done")])
    limits = AgentLimits(tool_timeouts={"hang": 7})
    await run(script, tools=hangs(mock_clock), limits=limits)
    assert script.last_results == ["tool 'hang' timed out after 7 seconds"]


async def test_an_outer_limit_is_no_time_out_of_the_step(run: Run, mock_clock: MockClock) -> None:
    with trio.move_on_after(5) as outer:
        await run(Script([calls(("hang", {}))]), tools=hangs(mock_clock))
    assert outer.cancelled_caught


async def test_calls_of_remote_tools_report_to_their_breaker(run: Run) -> None:
    @tool
    async def far(host: str) -> None:
        """Need a host."""
        if host == "down":
            raise ConnectionResetError(host)

    breakers = ClosedBreakers()
    first = calls(("far", {"host": "up"}), ("add", {"one": 1, "other": 2}), ("far", {}))
    script = Script(
        [first, calls(("far", {"host": "down"}), ("wrong", {"what": ""})), says("done")]
    )
    await run(script, tools={**TOOLS, "far": far}, lent={"breakers": breakers})
    reports = {name: [each.reports for each in made] for name, made in breakers.admissions.items()}
    assert reports.keys() == {"tool:far", "tool:wrong"}
    (succeeded,), (failure,) = reports["tool:far"]
    assert succeeded is None
    assert failure is not None
    assert (failure.source, failure.cls.is_transient) == ("tool:far", True)
    assert reports["tool:wrong"] == [[]]


async def test_open_breaker_suspends_the_job_without_a_tool_result(run: Run) -> None:
    suspended = Suspended("tool:wrong", "it is open", delay_s=30)
    breakers = ClosedBreakers(suspended=suspended)
    record = Record()
    script = Script([calls(("wrong", {"what": "x"}))])
    with pytest.raises(Suspended) as caught:
        await run(script, record=record, lent={"breakers": breakers})
    assert caught.value is suspended
    assert record.keys == ["1 model"]
