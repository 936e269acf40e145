"""A long agent near its window: each request is valid, and what must stay stays."""

from pathlib import Path
from random import Random
from typing import Any

from cortex.agent.limits import CompactionTerms
from cortex.agent.loop import AgentResult, run_agent
from cortex.agent.spec import AgentSpec
from cortex.agent.tools.toolbox import Toolbox
from tests.context.test_compaction import Model, page
from tests.support.agent_turns import Turn, says
from tests.support.records.factories import Record, a_context
from tests.support.records.rows import seeded_random

TURNS = 40
KILLS = 6
SPEC = AgentSpec(
    name="a",
    model="m",
    system="s",
    tools=("page",),
    max_tokens=1_100,
    thinking=1_024,
    max_context_tokens=12_000,
    compaction=CompactionTerms(keep_turns=3),
)


def _turn(number: int, chance: Random) -> Turn:
    """Signed thinking, text, and one to three calls."""
    thought = {"thinking": "y" * chance.randrange(2_000), "signature": f"s{number}"}
    uses: list[dict[str, Any]] = [
        {
            "type": "tool_use",
            "id": f"u{number}_{place}",
            "name": "page",
            "input": {"number": number * 10 + place, "size": chance.randrange(1, 6_000)},
        }
        for place in range(chance.randrange(1, 4))
    ]
    text = {"type": "text", "text": "On."}
    content = ({"type": "thinking", **thought}, text, *uses)
    return {"content": content, "stop_reason": "tool_use"}


async def test_a_long_agent_keeps_its_prompt_and_the_thinking_of_its_last_turns(
    tmp_path: Path,
) -> None:
    """`Model` refuses what the API refuses, such as a call without its result."""
    chance = seeded_random()
    played = [*[_turn(number, chance) for number in range(TURNS)], says("done")]

    async def run(model: Model, record: Record) -> AgentResult:
        toolbox = Toolbox({"page": page})
        ctx = a_context(record, models=model, tools=toolbox, workspaces=tmp_path)
        return await run_agent(ctx, SPEC, prompt="read it all", folder=None)

    first, whole = Model(played, says("A summary.")), Record()
    assert (await run(first, whole)).text == "done"
    assert len(first.summed_up) > 3
    for asked in (*first.asked, *first.summed_up):
        head, *rest = asked.messages
        content = head["content"]
        assert (content if isinstance(content, str) else content[0]["text"]) == "read it all"
        for each in rest:
            if each["role"] == "assistant":
                number = int(each["content"][0]["signature"].removeprefix("s"))
                assert each["content"] == list(played[number]["content"])
    for kept in chance.sample(range(len(whole.steps)), KILLS):
        record = Record()
        record.steps.extend(whole.steps[:kept])
        answered = sum(each.key.endswith(("model", "shortened")) for each in record.steps)
        model = Model(played[answered:], says("A summary."))
        assert (await run(model, record)).text == "done"
        assert model.asked == first.asked[answered:]
