"""The bytes of an agent's requests: each turn begins with the one before, wherever it runs."""

from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import orjson
import pytest

from cortex.agent.limits import CacheTerms
from cortex.agent.loop import run_agent
from cortex.agent.models.anthropic import AnthropicModel, standard
from cortex.agent.spec import AgentSpec
from cortex.agent.tools.tool import tool
from cortex.agent.tools.toolbox import Toolbox
from cortex.demo.script import Call
from cortex.demo.script_tools import tools
from cortex.demo.server import ScriptedServer, parse_call, serve
from cortex.domain.model import ModelRequest
from cortex.domain.usage import Usage
from cortex.durable.calls import Caller
from cortex.durable.step_outcome import StepOutcome
from tests.support.records.factories import Record, a_context
from tests.support.servers.scripted_model import API_KEY, program

TURNS = 30
FROZEN = (
    '{"max_tokens":4096,"messages":[{"role":"user","content":" {\\"turns\\": '
    '[{\\"text\\": \\"On.\\", \\"tools\\": [{\\"name\\": \\"page\\", \\"input\\": {\\"nu'
    'mber\\": 0}}]}, {\\"text\\": \\"read\\"}]}"},{"role":"assistant","content":'
    '[{"type":"text","text":"On."},{"type":"tool_use","id":"toolu_7cbb66b09'
    '4af633b_0_0","name":"page","input":{"number":0}}]},{"role":"user","con'
    'tent":[{"type":"tool_result","tool_use_id":"toolu_7cbb66b094af633b_0_0'
    '","content":"0: PAGE"}]}],"model":"scripted","cache_control":{"type":"'
    'ephemeral"},"stream":true,"system":[{"type":"text","text":"s","cache_c'
    'ontrol":{"type":"ephemeral"}}],"tools":[{"name":"page","description":"'
    'Read a page.\\n","input_schema":{"type":"object","properties":{"number"'
    ':{"type":"integer","description":"Which one."},"mark":{"anyOf":[{"type'
    '":"string"},{"type":"null"}],"description":"A mark in it."},"zoom":{"t'
    'ype":"number","default":1.0,"description":"How large."}},"required":["'
    'number"],"additionalProperties":false}},{"name":"contents","descriptio'
    'n":"List the pages.","input_schema":{"type":"object","properties":{},"'
    'required":[],"additionalProperties":false}}]}'
)
"""The second request of a conversation, whole."""
PAGE = "A page of text that is worth reading once and paying for once. " * 60


@tool(local=True)
async def page(number: int, *, mark: str | None = None, zoom: float = 1.0) -> str:
    """Read a page.

    Args:
        number: Which one.
        mark: A mark in it.
        zoom: How large.
    """
    return f"{number}: {PAGE}"


@tool(local=True)
async def contents() -> dict[str, int]:
    """List the pages."""
    return {"pages": TURNS}


@attrs.define
class Client:
    """Asks a server through the real client, as a pod does; keeps the usage."""

    model: AnthropicModel
    used: Usage = attrs.field(factory=Usage)

    async def respond(self, request: ModelRequest, caller: Caller) -> StepOutcome:  # noqa: ARG002
        response = await self.model.respond(request)
        self.used += response.usage
        return StepOutcome(value=response.to_json(), usage=response.usage)


@attrs.define
class Wiretap:
    """A script that keeps the body of each request."""

    bodies: list[bytes] = attrs.field(factory=list)


@pytest.fixture
def tap(monkeypatch: pytest.MonkeyPatch) -> Wiretap:
    made = Wiretap()

    def parsed(body: bytes, **words: bool) -> Call:
        made.bodies.append(body)
        return parse_call(body, **words)

    monkeypatch.setattr("cortex.demo.server.parse_call", parsed)
    return made


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with serve(tools) as running:
        yield running


def conversation(turns: int) -> str:
    reading = [
        {"text": "On.", "tools": [{"name": "page", "input": {"number": number}}]}
        for number in range(turns - 1)
    ]
    return program(*reading, {"text": "read"})


@pytest.fixture
def read(tmp_path: Path, server: ScriptedServer) -> Callable[..., Any]:
    """Run the agent on a new pod; return the usage of the pod's calls."""

    async def read(turns: int, record: Record, **fields: Any) -> Usage:
        spec = AgentSpec(
            name="a", model="scripted", system="s", tools=("page", "contents"), **fields
        )
        model = AnthropicModel(standard(api_key=API_KEY, base_url=server.base_url))
        toolbox = Toolbox({each.name: each for each in (contents, page)})
        client = Client(model)
        ctx = a_context(record, models=client, tools=toolbox, workspaces=tmp_path)
        await run_agent(ctx, spec, prompt=conversation(turns), folder=None)
        await model.aclose()
        return client.used

    return read


async def test_each_request_begins_with_the_one_before(
    read: Callable[..., Any], tap: Wiretap
) -> None:
    await read(6, Record())
    assert len(tap.bodies) == 6
    closing = b"]"
    for before, after in zip(tap.bodies, tap.bodies[1:], strict=False):
        head, messages, rest = _parts(before)
        head_after, messages_after, rest_after = _parts(after)
        assert (head, rest) == (head_after, rest_after)
        assert messages_after.startswith(messages.removesuffix(closing))


async def test_another_version_sends_the_same_bytes(read: Callable[..., Any], tap: Wiretap) -> None:
    """A change here makes each agent under way pay its whole prompt once more: say so."""
    await read(2, Record())
    body = tap.bodies[-1].decode().replace(PAGE, "PAGE")
    assert body == FROZEN


async def test_another_pod_sends_the_same_bytes_after_a_kill(
    read: Callable[..., Any], tap: Wiretap
) -> None:
    undisturbed = Record()
    await read(5, undisturbed)
    bodies, steps = [*tap.bodies], [*undisturbed.steps]
    for kept in range(len(steps)):
        tap.bodies.clear()
        record = Record()
        record.steps.extend(steps[:kept])
        await read(5, record)
        assert tap.bodies == bodies[len(bodies) - len(tap.bodies) :]
    tap.bodies.clear()
    await read(5, undisturbed)
    assert tap.bodies == []  # a replay asks nobody


async def test_thirty_turns_cost_a_quarter_of_what_they_would(read: Callable[..., Any]) -> None:
    used = await read(TURNS, Record())
    cached = Decimal("0.1") * used.cache_read_tokens + Decimal("1.25") * used.cache_write_tokens
    plain = await read(TURNS, Record(), cache=CacheTerms(ttl="off"))
    assert plain.cache_read_tokens == plain.cache_write_tokens == 0
    assert plain.input_tokens == used.prompt_tokens
    assert used.input_tokens + cached <= Decimal("0.25") * plain.input_tokens


def _parts(body: bytes) -> tuple[bytes, bytes, bytes]:
    """Cut a body around its messages: before, the messages, after."""
    messages = orjson.dumps(orjson.loads(body)["messages"])
    assert messages in body
    before, _, after = body.partition(messages)
    return before, messages, after
