"""How long prompts are kept, and how people see what that saves."""

from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs
import orjson
import pytest

from cortex.agent.caching import chosen_ttl
from cortex.agent.limits import AgentLimits, CacheTerms, OnStop
from cortex.agent.loop import run_agent
from cortex.agent.mcp.terms import McpServer
from cortex.agent.spec import AgentSpec, parse_agents
from cortex.agent.tools.read_file import read_file
from cortex.agent.tools.run_command import run_command
from cortex.agent.tools.tool import tool
from cortex.agent.tools.toolbox import Toolbox
from cortex.domain.approvals.rules import ApprovalRule
from cortex.domain.budget import estimate_of
from cortex.domain.errors import InvalidValueError, UsageError
from cortex.domain.job import StepDone, StepKind
from cortex.domain.model import CacheTtl, ModelRequest
from cortex.domain.prices import LIST_PRICES
from cortex.domain.usage import Usage
from cortex.durable.tally import Tally
from cortex.store.specs import CacheMiss
from cortex.view.caching import hit_text
from cortex.view.doctor import Grade, of_caching
from cortex.view.jobs import progress
from cortex_tui.render.job_head import head_line
from tests.support.agent_turns import Script, calls, says
from tests.support.records.factories import Record, a_claim, a_context
from tests.support.records.job_rows import NOW, a_watched_job
from tests.support.records.rows import new_id


def spec(**fields: Any) -> AgentSpec:
    return AgentSpec(name="a", model="m", system="s", tools=("pay", "look"), **fields)


ASKS = ApprovalRule(tool="pay", approve=True)
PERMITS = ApprovalRule(tool="pay", approve=False)


@pytest.mark.parametrize(
    "fields, asking, has_waited, ttl",
    [
        ({}, [], False, CacheTtl.FIVE_MINUTES),
        ({"approvals": (PERMITS,)}, [], False, CacheTtl.FIVE_MINUTES),
        ({"approvals": (ASKS,)}, [], False, CacheTtl.HOUR),
        ({}, ["pay"], False, CacheTtl.HOUR),
        ({}, [], True, CacheTtl.HOUR),
        ({"on_stop": OnStop(refusal="ask")}, [], False, CacheTtl.HOUR),
        ({"limits": AgentLimits(tool_timeouts={"pay": 300})}, [], False, CacheTtl.FIVE_MINUTES),
        ({"limits": AgentLimits(tool_timeouts={"pay": 301})}, [], False, CacheTtl.HOUR),
        ({"approvals": (ASKS,), "cache": CacheTerms(ttl="5m")}, [], True, CacheTtl.FIVE_MINUTES),
        ({"cache": CacheTerms(ttl="off")}, [], True, CacheTtl.OFF),
    ],
)
def test_an_hour_is_chosen_where_long_pauses_are_likely(
    fields: dict[str, Any], asking: list[str], has_waited: bool, ttl: CacheTtl
) -> None:
    agent = spec(**fields)
    assert chosen_ttl(agent, asking=asking, slow=(), has_waited=has_waited) is ttl


@pytest.mark.parametrize(
    "slow, timeouts, server_s, ttl",
    [
        (["pay"], {}, 60, CacheTtl.HOUR),
        (["pay"], {"pay": 30.0}, 60, CacheTtl.FIVE_MINUTES),
        ([], {}, 600, CacheTtl.HOUR),
        ([], {}, 300, CacheTtl.FIVE_MINUTES),
    ],
)
def test_an_hour_is_chosen_for_slow_tools(
    slow: list[str], timeouts: dict[str, float], server_s: float, ttl: CacheTtl
) -> None:
    servers = {"git": McpServer(command=["git-server"], timeout=server_s)}
    agent = spec(limits=AgentLimits(tool_timeouts=timeouts), mcp=servers)
    assert chosen_ttl(agent, asking=(), slow=slow, has_waited=False) is ttl


async def test_the_own_time_out_of_a_tool_shows_that_it_is_slow() -> None:
    @tool(timeout=600, local=True)
    async def build() -> None:
        """Build it all."""

    box = Toolbox({"build": build, "run_command": run_command, "read_file": read_file})
    assert [name for name in box.names if box.lasts_over(name, 300)] == ["build"]


@pytest.mark.parametrize("text, ttl", [("5m", "5m"), ("1h", "1h"), ("off", "off")])
def test_a_specification_keeps_its_choice(text: str, ttl: str) -> None:
    (agent,) = parse_agents(f"name: a\nmodel: m\nsystem: s\ncache: {{ttl: {text}}}\n", "a.yaml")
    assert agent.to_json()["cache"] == {"ttl": ttl}
    assert AgentSpec.from_json(agent.to_json()) == agent
    assert "cache" not in spec().to_json()


def test_another_life_is_refused() -> None:
    with pytest.raises(UsageError, match=r'a.yaml:4: cache.ttl must be one of .*, got "2h"'):
        parse_agents("name: a\nmodel: m\nsystem: s\ncache: {ttl: 2h}\n", "a.yaml")


async def test_a_single_call_refuses_another_life() -> None:
    wrong: Any = "2h"
    with pytest.raises(InvalidValueError, match="model call 'ask': cache is '2h'"):
        await a_context().llm("ask", model="m", messages=[], cache=wrong)


@pytest.mark.parametrize(
    "usage, saved",
    [
        (Usage(input_tokens=100_000), None),
        (Usage(cache_read_tokens=100_000), "0.27"),
        (Usage(cache_write_tokens=100_000), "-0.075"),
        (Usage(cache_write_tokens=100_000, cache_write_1h_tokens=100_000), "-0.3"),
    ],
)
def test_a_call_saves_what_its_prompt_would_have_cost(usage: Usage, saved: str | None) -> None:
    found = LIST_PRICES.saved("claude-sonnet-4-5", usage)
    assert found == (None if saved is None else Decimal(saved))
    assert LIST_PRICES.saved("unknown", usage) is None


def test_a_budget_has_room_for_an_hour_of_cache() -> None:
    request = ModelRequest(
        model="claude-sonnet-4-5", messages=[{"role": "user", "content": "x" * 4_000}], max_tokens=1
    )
    hour = attrs.evolve(request, cache=CacheTtl.HOUR)
    usual = estimate_of(request, LIST_PRICES).cost_usd
    longer = estimate_of(hour, LIST_PRICES).cost_usd
    assert usual is not None
    assert longer is not None
    assert longer > usual * Decimal("1.5")


def test_the_head_of_a_job_counts_what_was_read() -> None:
    tally = Tally([])
    usage = Usage(input_tokens=20, cache_read_tokens=70, cache_write_tokens=10)
    step = StepDone(
        lease=a_claim().lease,
        kind=StepKind.MODEL,
        key="1 model",
        digest=b"",
        duration_s=0.0,
        output="{}",
        spent=usage,
        ended_at=0.0,
        tally=tally,
    )
    _, head = tally.number(step)
    counted = orjson.loads(head or "")
    assert (counted["input_tokens"], counted["cache_read_tokens"]) == (100, 70)


def test_people_see_the_share_and_what_it_saved() -> None:
    head = {"seq": 2, "input_tokens": 1_000, "output_tokens": 9, "cost_usd": "0.5"}
    assert "cache" not in progress(head)
    assert progress({**head, "cache_read_tokens": 830}).endswith("cache 83%")
    assert hit_text(0.5, Decimal(2)) == "cache 50%, saved $2.00"
    assert hit_text(0.0, Decimal(-2)) == "cache 0%, cost $2.00 more"


def test_the_screen_of_a_job_shows_the_share() -> None:
    head = {"seq": 2, "input_tokens": 1_000, "output_tokens": 9, "cost_usd": "0.5"}
    fields = {"type": "run_agent", "status": "RUNNING", "id": new_id(), "attempt": 1}
    fields |= {"checkpoint": {**head, "cache_read_tokens": 830}, "cache_saved_usd": Decimal(2)}
    cells = head_line(a_watched_job(fields), NOW, 200)
    assert "cache 83%, saved $2.00" in [each.text for each in cells]


def test_the_doctor_names_agents_whose_prompts_change() -> None:
    assert of_caching([]).grade is Grade.OK
    found = of_caching([CacheMiss(name="reader", calls=1_200, share=0.04)])
    assert found.grade is Grade.WARN
    assert "reader (4% of 1,200 calls)" in found.found
    assert "cache: {ttl: 1h}" in str(found.fix)


@tool(local=True)
async def look() -> str:
    """Look at what never changes."""
    return "nothing new"


async def test_notes_corrections_and_goings_on_keep_the_prefix(tmp_path: Path) -> None:
    """A loop's advice, unfit input, a cut answer, a call that is missing, and no JSON."""
    played = [
        *[calls(("look", {}))] * 4,
        calls(("look", {"unknown": 1}), ("look", {})),
        says("It is", "max_tokens"),
        {"content": ({"type": "text", "text": "Look."},), "stop_reason": "tool_use"},
        says("no JSON"),
        says('{"cents": 3}'),
    ]
    script = Script(played)
    ctx = a_context(Record(), models=script, tools=Toolbox({"look": look}), workspaces=tmp_path)
    schema = {"type": "object", "properties": {"cents": {"type": "integer"}}}
    agent = AgentSpec(name="a", model="m", system="s", tools=("look",), output=schema)
    result = await run_agent(ctx, agent, prompt="look", folder=None)
    assert result.output == {"cents": 3}
    assert len(script.asked) == len(played)
    assert "You go round in circles" in str(script.asked[4].messages)
    for before, after in pairwise(script.asked):
        assert list(after.messages[: len(before.messages)]) == list(before.messages)
        assert attrs.evolve(after, messages=before.messages) == before
