"""Answers that are cut, odd or too long: the calls that run, and the messages sent back."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from cortex.agent.limits import AgentLimits, OnStop
from cortex.agent.loop import AgentResult, run_agent
from cortex.agent.models.errors import ModelRejectedError
from cortex.agent.spec import AgentSpec
from cortex.agent.tools.read_file import read_file
from cortex.agent.tools.tool import AnyTool, CutCallError, ToolContext, tool
from cortex.agent.tools.toolbox import Toolbox
from cortex.domain.control_flow import Suspended
from cortex.domain.errors import InvalidOutputError, RejectedError, UsageError
from cortex.domain.failure import CallFailure
from cortex.domain.job import OpenEffect
from cortex.domain.model import ModelRequest
from cortex.durable.attempt import Attempt, ToolCall
from cortex.durable.journal import Journal, Recorded
from cortex.durable.tool_calls import refusing
from tests.support.agent_turns import Script, Turn, says
from tests.support.records.factories import Record, a_claim, a_context, services
from tests.support.records.rows import new_id

CUT = "your answer was cut before the arguments of this call"
WINDOW = "model_context_window_exceeded"


@attrs.define
class Bench:
    """An agent with a tool that notes its runs, one that pays, and one with long results."""

    folder: Path
    ran: list[str] = attrs.field(factory=list)
    record: Record = attrs.field(factory=Record)

    def tools(self) -> dict[str, AnyTool]:
        @tool(local=True)
        async def clean(path: str = ".") -> str:
            """Remove everything."""
            self.ran.append(path)
            return f"cleaned {path}"

        @tool(local=True, approve=True)
        async def pay(euros: int = 5) -> str:
            """Pay."""
            self.ran.append(f"paid {euros}")
            return "paid"

        @tool(local=True)
        async def dump(size: int) -> str:
            """Return a long text."""
            return "".join(f"{n:07d}\n" for n in range(size // 8))

        return {each.name: each for each in (clean, pay, dump, read_file)}

    async def run(
        self, script: Script, *, folder: Path | None = None, **fields: Any
    ) -> AgentResult:
        tools = self.tools()
        spec = AgentSpec(name="a", model="m", system="s", tools=tuple(tools), **fields)
        toolbox = Toolbox(tools)
        ctx = a_context(self.record, models=script, tools=toolbox, workspaces=self.folder)
        return await run_agent(ctx, spec, prompt="do it", folder=folder)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def block(name: str, given: Any, id_: Any = "toolu_1", **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id_, "name": name, "input": given, **more}


def answer(*blocks: dict[str, Any], stop_reason: str = "tool_use") -> Turn:
    return {"content": blocks, "stop_reason": stop_reason}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def results(request: ModelRequest) -> list[dict[str, Any]]:
    """All tool results in a request."""
    blocks = [each for message in request.messages for each in message["content"]]
    return [each for each in blocks if isinstance(each, dict) and each["type"] == "tool_result"]


# --- a call runs only if it is whole


@pytest.mark.smoke("A tool call runs only if it is whole")
@pytest.mark.parametrize("reason", ["max_tokens", WINDOW, "pause_turn", "refusal", "of_the_future"])
@pytest.mark.parametrize("name", ["clean", "pay"])
async def test_cut_call_never_runs_and_needs_no_approval(
    bench: Bench, reason: str, name: str
) -> None:
    turn = answer(block("clean", {"path": "a"}), block(name, {}), stop_reason=reason)
    script = Script([turn, says("done")])
    if reason == "refusal":
        with pytest.raises(InvalidOutputError):
            await bench.run(script)
        assert bench.ran == []
        return
    await bench.run(script)
    assert CUT in script.last_results[1]
    assert results(script.asked[-1])[1]["is_error"] is True
    assert bench.ran == ["a"]
    assert not any("approval" in key for key in bench.record.keys)


async def test_cut_call_with_a_cut_name_counts_as_cut(bench: Bench) -> None:
    turns = [answer(block("cle", {}), stop_reason="max_tokens") for _ in range(3)]
    script = Script([*turns, says("done")])
    with pytest.raises(InvalidOutputError, match="raise max_tokens"):
        await bench.run(script)
    assert CUT in script.last_results[0]
    assert bench.ran == []


async def test_empty_arguments_of_an_answer_that_ended_run(bench: Bench) -> None:
    await bench.run(Script([answer(block("clean", {})), says("done")]))
    assert bench.ran == ["."]


async def test_calls_that_are_cut_again_and_again_fail_with_the_way_out(bench: Bench) -> None:
    turns = [answer(block("clean", {}), stop_reason="max_tokens")] * 3
    with pytest.raises(InvalidOutputError, match=r"3 times in a row.*raise max_tokens"):
        await bench.run(Script(turns))
    assert bench.ran == []


async def test_recorded_cut_call_does_not_run_on_replay(bench: Bench) -> None:
    turn = answer(block("clean", {}), stop_reason="max_tokens")
    with pytest.raises(IndexError):  # it dies when it asks the model again
        await bench.run(Script([turn]))
    bench.record.steps[:] = bench.record.steps[:1]
    script = Script([says("done")])
    await bench.run(script)
    assert bench.ran == []
    assert CUT in script.last_results[0]


@pytest.mark.parametrize("earlier", ["max_tokens", "tool_use"])
async def test_recorded_error_of_a_tool_not_given_fits_whether_its_call_was_cut(
    bench: Bench, earlier: str
) -> None:
    """An earlier release recorded the same call as whole, with the tools as an input."""
    later = "tool_use" if earlier == "max_tokens" else "max_tokens"
    bench.record.steps.clear()
    with pytest.raises(IndexError):
        await bench.run(Script([answer(block("cle", {}), stop_reason=earlier)]))
    model, report = bench.record.steps
    bench.record.steps[:] = []
    with pytest.raises(IndexError):
        await bench.run(Script([answer(block("cle", {}), stop_reason=later)]))
    bench.record.steps[:] = [bench.record.steps[0], report]
    script = Script([says("done")])
    await bench.run(script)
    assert (CUT in script.last_results[0]) is (earlier == "max_tokens")
    assert model.key == "1 model"


async def test_cut_call_that_an_earlier_release_began_is_asked_about_and_not_made(
    bench: Bench,
) -> None:
    claim, cut = a_claim(), CutCallError("pay", raw="")
    begun = [OpenEffect(key="1 pay", status="PENDING")]
    journal = Journal(claim.lease, bench.record, Recorded(effects=begun))
    attempt = Attempt(claim, journal, services(tools=Toolbox(bench.tools())))
    call = ToolCall(
        tool="pay", arguments={}, key="1 pay", gate_key="1 pay approval", said=None, folder=None,
        timeout_s=None,
    )  # fmt: skip
    plan = await refusing(cut, attempt, call)
    assert plan.gate is None
    with pytest.raises(CutCallError):
        await plan.run(None)
    with pytest.raises(CutCallError):
        await refusing(cut, attempt, attrs.evolve(call, key="2 pay"))


async def test_whole_call_that_needs_approval_asks(bench: Bench) -> None:
    script = Script([answer(block("pay", {"euros": 3}), stop_reason="max_tokens")])
    with pytest.raises(Suspended):
        await bench.run(script)
    assert bench.ran == []


# --- what goes back is what the API takes


ODD: Sequence[Turn] = (
    answer(text(""), block("clean", {"path": "a"})),
    answer(text(" \n"), block("clean", {}), text("\t")),
    answer(block("functions.clean", {"path": "a"})),
    answer(block("", {})),
    answer(block("clean" * 200, {})),
    answer(block("a\x00b \ud83d c", {})),
    answer(block("clean", {"path": "a"}), block("clean", {"path": "b"})),
    answer(block("clean", {}, "call 1/2:3")),
    answer(block("clean", {}, "")),
    answer(block("clean", {}, None)),
    answer(block("clean", {}, index=0, thought_signature="x")),
    answer(block("clean", None)),
    answer(block("clean", [1])),
    answer({"type": "thinking", "thinking": " \n", "signature": "c2ln"}, block("clean", {})),
    answer(block("clean", {}), {"type": "thinking", "thinking": "cut"}),
    answer({"type": "thinking", "thinking": "cut", "signature": ""}, block("clean", {})),
    answer({"type": "redacted_thinking", "data": ""}, block("clean", {})),
    answer({"type": "server_tool_use", "id": "x", "name": "s", "input": {}}, block("clean", {})),
    answer(text("I do it."), stop_reason="tool_use"),
    answer(stop_reason="tool_use"),
    answer(text("So far \n"), stop_reason="pause_turn"),
    answer(
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
        stop_reason="pause_turn",
    ),
    answer({"type": "thinking", "thinking": "so", "signature": "c2ln"}, text(" ")),
)


@pytest.mark.parametrize("turn", ODD, ids=range(len(ODD)))
async def test_odd_answer_is_repaired_before_it_returns_to_the_model(
    bench: Bench, turn: Turn
) -> None:
    script = Script([turn, answer(block("clean", {"path": "z"})), says("done")])
    result = await bench.run(script)
    assert len(script.asked) == 3
    assert result.text.endswith("done")
    sent = [request.messages for request in script.asked]
    again = Script([says("done")])
    bench.record.steps[:] = [each for each in bench.record.steps if each.key != "3 model"]
    await bench.run(again)
    assert again.asked[0].messages == sent[-1], "a replay sends the same"


async def test_signed_thinking_returns_to_the_model_unchanged(bench: Bench) -> None:
    thought = {"type": "thinking", "thinking": " let me  \n", "signature": "c2ln+/="}
    script = Script([answer(thought, text(""), block("clean", {})), says("done")])
    await bench.run(script)
    assert script.asked[1].messages[1]["content"][0] == thought


async def test_thinking_that_a_secrets_marker_has_changed_is_left_out(bench: Bench) -> None:
    changed = "the key is [secret API_KEY, 20 characters]"
    thought = {"type": "thinking", "thinking": changed, "signature": "c2ln"}
    script = Script([answer(thought, block("clean", {})), says("done")])
    await bench.run(script)
    assert [each["type"] for each in script.asked[1].messages[1]["content"]] == ["tool_use"]


async def test_usable_ids_and_names_stay(bench: Bench) -> None:
    script = Script([answer(block("clean", {}, "call_1"), block("clean", {}, "call_1")), says("x")])
    await bench.run(script)
    sent = script.asked[1].messages
    assert [each["id"] for each in sent[1]["content"]] == ["call_1", "toolu_1_1"]
    assert [each["tool_use_id"] for each in sent[2]["content"]] == ["call_1", "toolu_1_1"]


async def test_announced_call_that_is_missing_is_asked_for_at_most_three_times(
    bench: Bench,
) -> None:
    script = Script([says("I look.", "tool_use")] * 4)
    with pytest.raises(InvalidOutputError, match="called no tool, in step 4, after being asked 3"):
        await bench.run(script)
    script = Script([says("I look.", "tool_use"), says("Found it.")])
    bench.record = Record()
    assert (await bench.run(script)).text == "Found it."


# --- results that are too long, and a context that is full


def too_long(code: str = "prompt_too_long") -> ModelRejectedError:
    facts = CallFailure(model="m", host="h", type="x", code="prompt_too_long", status=400)
    if code == "request_too_large":
        facts = CallFailure(model="m", host="h", type=code, status=413)
    return ModelRejectedError(facts, "prompt is too long: 210000 tokens > 200000 maximum")


async def test_long_result_is_cut_for_the_model_and_kept_whole(bench: Bench) -> None:
    folder = bench.folder / "work"
    folder.mkdir()
    script = Script([answer(block("dump", {"size": 800_000})), says("done")])
    await bench.run(script, folder=folder)
    (result,) = results(script.asked[1])
    content = result["content"]
    assert len(content) < 101_000
    assert content.startswith("0000000\n")
    assert content.endswith("0099999\n")
    assert "ask for less" in content
    path = re.search(r"tool-output/\S+\.txt", content)
    assert path is not None
    workspace = next(each for each in bench.folder.iterdir() if (each / "tool-output").is_dir())
    assert (workspace / path[0]).stat().st_size == 800_000
    context = ToolContext(
        job_id=new_id(), attempt=1, call_id="c", workspace=workspace, folder=folder
    )
    piece = read_file.run(context, path[0], 799_992)
    assert piece == "0099999\n"


async def test_oversized_result_is_sent_as_its_beginning_and_a_file(
    bench: Bench,
) -> None:
    script = Script([answer(block("dump", {"size": 2_000_000})), says("done")])
    await bench.run(script)
    content = results(script.asked[1])[0]["content"]
    assert content.startswith("0000000\n")
    assert "of 2,000,000 bytes are left out here; the whole is in the file tool-output/" in content
    assert len(content) < 5_000


async def test_empty_prompt_is_refused(bench: Bench) -> None:
    ctx = a_context(tools=Toolbox(bench.tools()), workspaces=bench.folder)
    spec = AgentSpec(name="a", model="m", system="s")
    with pytest.raises(UsageError, match="the prompt of agent 'a' is empty"):
        await run_agent(ctx, spec, prompt=" \n", folder=None)


async def test_agent_sets_its_own_limit_of_a_result(bench: Bench) -> None:
    script = Script([answer(block("dump", {"size": 8_000})), says("done")])
    await bench.run(script, limits=AgentLimits(tool_result_tokens=500))
    assert len(results(script.asked[1])[0]["content"]) < 2_500


@pytest.mark.parametrize("code", ["prompt_too_long", "request_too_large"])
async def test_full_context_shortens_the_oldest_results_in_one_recorded_step(
    bench: Bench, code: str
) -> None:
    dumps = [answer(block("dump", {"size": 8_000}, f"t{n}")) for n in range(4)]
    script = Script([*dumps, too_long(code), says("done")])
    assert (await bench.run(script)).text == "done"
    sizes = [len(each["content"]) for each in results(script.asked[-1])]
    assert [size < 2_000 for size in sizes] == [True, True, False, False]
    assert bench.record.keys[-2:] == ["5 shorten", "5 model, shortened"]
    again = Script([says("done")])
    bench.record.steps.pop()
    await bench.run(again)
    assert again.asked[0].messages == script.asked[-1].messages


async def test_permanently_full_context_fails_once_results_are_shortened(bench: Bench) -> None:
    dumps = [answer(block("dump", {"size": 8_000}, f"t{n}")) for n in range(4)]
    script = Script([*dumps, *[too_long()] * 20])
    with pytest.raises(RejectedError, match=r"context of model 'm' is full.*210000 tokens"):
        await bench.run(script)
    assert len(script.asked) <= 4 + 5
    asked = len(script.asked)
    again = Script([too_long()] * 20)
    with pytest.raises(RejectedError):
        await bench.run(again)
    assert len(again.asked) == 1 < asked


async def test_answer_that_fills_the_context_continues_with_shortened_results(bench: Bench) -> None:
    script = Script(
        [answer(block("dump", {"size": 8_000})), says("half", WINDOW), says(" and half")]
    )
    assert (await bench.run(script)).text == "half and half"
    assert len(results(script.asked[-1])[0]["content"]) < 2_000
    assert "shorten" in script.last_results[0]


async def test_answers_that_fill_the_context_again_and_again_fail(bench: Bench) -> None:
    script = Script([says("half", WINDOW)] * 4)
    with pytest.raises(InvalidOutputError, match=f"{WINDOW}.*after being asked 3 times"):
        await bench.run(script)


async def test_full_window_fails_when_on_stop_is_fail(bench: Bench) -> None:
    with pytest.raises(InvalidOutputError, match=WINDOW):
        await bench.run(Script([says("x", WINDOW)]), on_stop=OnStop(context_window="fail"))
