"""The job types `llm_generate` and `execute_tool`."""

from typing import Any

import attrs
import pytest

from cortex.agent.tools.toolbox import Toolbox
from cortex.domain.control_flow import Suspended, Unfit
from cortex.domain.errors import InvalidOutputError, UsageError
from cortex.domain.model import Capabilities, ModelOptions, ModelRequest, ModelResponse
from cortex.domain.usage import Usage
from cortex.durable.attempt import Attempt, EffectTerms, ToolCall, ToolPlan
from cortex.durable.calls import Caller
from cortex.durable.gates import own_gate
from cortex.durable.step_outcome import StepOutcome
from cortex.jobs.execute_tool import execute_tool
from cortex.jobs.llm_generate import llm_generate
from tests.support.records.factories import EchoModel, EchoTools, LedgerDesk, Record, a_context


@attrs.define
class StoppingModel:
    """Answers with this text and reason to stop."""

    text: str
    reason: str

    async def capabilities(self, model: str) -> Capabilities:  # noqa: ARG002
        return Capabilities()

    async def respond(self, request: ModelRequest, caller: Caller) -> StepOutcome:  # noqa: ARG002
        response = ModelResponse(
            model=request.model,
            content=({"type": "text", "text": self.text},),
            stop_reason=self.reason,
            usage=Usage(input_tokens=1, output_tokens=1),
            message_id="m",
        )
        return StepOutcome(value=response.to_json())


async def test_a_model_is_asked_once() -> None:
    record, model = Record(), EchoModel()
    asked: dict[str, Any] = {"model": "m", "prompt": "hello", "system": "s", "max_tokens": 9}
    asked["options"] = ModelOptions(temperature=0.0)
    result, again = [await llm_generate(a_context(record, models=model), **asked) for _ in range(2)]
    assert (again.text, again.stop_reason) == (result.text, result.stop_reason)
    assert (result.text, result.stop_reason, result.output_tokens) == ("hello", "end_turn", 1)
    (request,) = model.asked
    assert (request.system, request.max_tokens) == ("s", 9)
    assert request.options == ModelOptions(temperature=0.0)


@pytest.mark.parametrize(
    "text, reason", [("cut", "max_tokens"), ("", "refusal"), (" ", "end_turn")]
)
async def test_an_answer_that_is_not_complete_is_no_result(text: str, reason: str) -> None:
    context = a_context(models=StoppingModel(text, reason))
    with pytest.raises(InvalidOutputError) as caught:
        await llm_generate(context, model="m", prompt="hello")
    assert caught.value.raw == text


@pytest.mark.parametrize("given", [{}, {"prompt": "a", "messages": [{"role": "user"}]}])
async def test_prompt_or_messages(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="either prompt or messages"):
        await llm_generate(a_context(), model="m", **given)


async def test_tool_with_an_effect_is_called_once() -> None:
    record, gateway = Record(), LedgerDesk()
    tools = EchoTools(effect=EffectTerms(is_idempotent=False, reconcile=None))
    for _ in range(2):
        context = a_context(record, tools=tools, gateway=gateway)
        assert await execute_tool(context, "pay", {"amount": 5}) == {"amount": 5}
    assert ([each.tool for each in gateway.intents], len(tools.called)) == (["pay"], 1)


@attrs.define
class NoTools(EchoTools):
    """A pod without tools."""

    async def plan(self, attempt: Attempt, call: ToolCall) -> ToolPlan:
        return await Toolbox({}).plan(attempt, call)


async def test_a_tool_that_this_pod_lacks_is_for_another_one() -> None:
    with pytest.raises(Unfit, match="this pod has no tool 'pya'"):
        await execute_tool(a_context(tools=NoTools()), "pya")


async def test_tool_policy_asks_for_approval() -> None:
    tools = EchoTools(gate=own_gate("pay", risk="HIGH", people=None))
    with pytest.raises(Suspended) as caught:
        await execute_tool(a_context(tools=tools), "pay", {"amount": 5})
    (request,) = caught.value.requests
    assert request.tool == "pay"
    assert tools.called == []
