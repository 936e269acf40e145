"""Prompt caching on the wire: the real SDK against servers that take marks, or refuse them."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import orjson
import pytest
import trio

from cortex.agent.models.anthropic import AnthropicModel, standard
from cortex.agent.models.errors import ModelRejectedError
from cortex.demo.script_tools import tools
from cortex.demo.server import parse_call, serve
from cortex.demo.wire import Wire
from cortex.domain.model import CacheTtl, ModelRequest
from tests.support.servers.scripted_model import API_KEY, MODEL, program

LONG = "word " * 1_500
TOOL = {"name": "t", "description": "d", "input_schema": {"type": "object"}}
DONE = {"type": "text", "text": "done"}


def asking(*messages: Any, ttl: CacheTtl = CacheTtl.FIVE_MINUTES, **fields: Any) -> ModelRequest:
    turns = [
        each if isinstance(each, dict) else {"role": "user", "content": each} for each in messages
    ]
    return ModelRequest(model=MODEL, messages=turns, max_tokens=100, cache=ttl, **fields)


START = {"id": "m", "type": "message", "role": "assistant", "model": MODEL, "content": []}


@attrs.define
class Gateway:
    """A Messages API that refuses some requests, and keeps the bodies of all."""

    refusal: Callable[[dict[str, Any]], str | None]
    streamed: str | None = None
    """The type of its errors if they come once the answer has begun."""
    bodies: list[dict[str, Any]] = attrs.field(factory=list)
    raw: list[bytes] = attrs.field(factory=list)

    async def converse(self, stream: trio.SocketStream) -> None:
        wire = Wire(stream)
        while (request := await wire.next_request()) is not None:
            body = orjson.loads(request.body)
            self.bodies.append(body)
            self.raw.append(request.body)
            parse_call(request.body)
            message = self.refusal(body)
            if message is not None:
                error = {"type": self.streamed or "invalid_request_error", "message": message}
                if self.streamed is not None:
                    events = [{"type": "message_start", "message": START}]
                    events.append({"type": "error", "error": error})
                    lines = b"".join(b"data: %b\n\n" % orjson.dumps(each) for each in events)
                    await wire.answer(200, "text/event-stream", lines)
                    continue
                await wire.answer(400, "application/json", orjson.dumps({"error": error}))
                continue
            usage = {"input_tokens": 1, "output_tokens": 1}
            answer = {"type": "message", "role": "assistant", "content": [DONE], "usage": usage}
            answer |= {"id": "m", "model": MODEL, "stop_reason": "end_turn"}
            await wire.answer(200, "application/json", orjson.dumps(answer))


@asynccontextmanager
async def gateway(
    refusal: Callable[[dict[str, Any]], str | None] = lambda _: None,
    *,
    streamed: str | None = None,
) -> AsyncIterator[tuple[Gateway, AnthropicModel]]:
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(
            trio.serve_tcp, (made := Gateway(refusal, streamed)).converse, 0
        )
        port = listeners[0].socket.getsockname()[1]
        client = AnthropicModel(standard(api_key=API_KEY, base_url=f"http://127.0.0.1:{port}"))
        yield made, client
        await client.aclose()
        nursery.cancel_scope.cancel()


def _extra(body: dict[str, Any]) -> str | None:
    """What Bedrock and Vertex say to the field of the whole request."""
    return "cache_control: Extra inputs are not permitted" if "cache_control" in body else None


def _no_marks(body: dict[str, Any]) -> str | None:
    return "cache_control is unknown" if b"cache_control" in orjson.dumps(body) else None


def _texts_only(body: dict[str, Any]) -> str | None:
    is_text = isinstance(body.get("system", ""), str)
    return None if is_text else "system: Input should be a valid string"


async def test_marks_are_at_tools_and_system_and_at_the_end() -> None:
    async with gateway() as (server, client):
        await client.respond(asking("hi", system="s", tools=[TOOL]))
        await client.respond(asking("hi", tools=[TOOL], ttl=CacheTtl.HOUR))
        await client.respond(asking("hi", system="s", ttl=CacheTtl.OFF))
    both, no_system, off = server.bodies
    mark = {"type": "ephemeral"}
    assert both["cache_control"] == mark
    assert both["system"] == [{"type": "text", "text": "s", "cache_control": mark}]
    assert both["tools"] == [TOOL]
    hour = {**mark, "ttl": "1h"}
    assert no_system["cache_control"] == no_system["tools"][-1]["cache_control"] == hour
    assert b"cache_control" not in orjson.dumps(off)
    assert off["system"] == "s"


async def test_a_request_with_marks_of_its_own_gets_no_others() -> None:
    block = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    async with gateway() as (server, client):
        await client.respond(asking({"role": "user", "content": [block]}, system="s"))
    (body,) = server.bodies
    assert "cache_control" not in body
    assert body["system"] == "s"
    assert body["messages"][0]["content"] == [block]


@pytest.mark.parametrize(
    "refusal, marks, tries",
    [(_extra, {"system", "messages"}, 2), (_no_marks, set(), 3), (_texts_only, set(), 3)],
    ids=["not the field of the request", "no marks at all", "only text as system"],
)
async def test_a_server_that_refuses_marks_is_asked_without_them(
    refusal: Callable[[dict[str, Any]], str | None], marks: set[str], tries: int
) -> None:
    async with gateway(refusal) as (server, client):
        for _ in range(2):
            assert (await client.respond(asking("hi", system="s"))).text == "done"
    assert len(server.bodies) == tries + 1  # the second call knows
    fields = server.bodies[-1].items()
    assert {name for name, value in fields if b"cache_control" in orjson.dumps(value)} == marks


@pytest.mark.parametrize("streamed", ["invalid_request_error", "api_error", "BadRequestError"])
async def test_a_refusal_inside_an_answer_counts_as_well(streamed: str) -> None:
    """A gateway that has answered 200 before it asks its provider."""
    async with gateway(_no_marks, streamed=streamed) as (server, client):
        assert (await client.respond(asking("hi", system="s"))).text == "done"
    assert len(server.bodies) == 3


async def test_another_refusal_is_not_repeated() -> None:
    async with gateway(lambda _: "messages: the system is too odd") as (server, client):
        with pytest.raises(ModelRejectedError, match="too odd"):
            await client.respond(asking("hi", system="s"))
    assert len(server.bodies) == 1


async def test_a_refusal_that_marks_did_not_cause_leaves_them_on() -> None:
    def wrong(body: dict[str, Any]) -> str | None:
        is_odd = b"odd" in orjson.dumps(body["system"])
        return "system: text content blocks must not be odd" if is_odd else None

    async with gateway(wrong) as (server, client):
        with pytest.raises(ModelRejectedError, match="not be odd"):
            await client.respond(asking("hi", system="odd"))
        await client.respond(asking("hi", system="s"))
    assert [("cache_control" in each) for each in server.bodies] == [True, False, False, True]


async def test_a_turn_of_many_calls_reads_what_the_turn_before_wrote() -> None:
    """More than twenty blocks lie between the two ends."""
    uses = [{"type": "tool_use", "id": f"u{n}", "name": "t", "input": {}} for n in range(15)]
    results = [{"type": "tool_result", "tool_use_id": f"u{n}", "content": "r"} for n in range(15)]
    prompt = program({"text": "done"}, mark=LONG)
    async with serve(tools) as server:
        client = AnthropicModel(standard(api_key=API_KEY, base_url=server.base_url))
        first = await client.respond(asking(prompt, system="s", tools=[TOOL]))
        turn = ({"role": "assistant", "content": uses}, {"role": "user", "content": results})
        second = await client.respond(asking(prompt, *turn, system="s", tools=[TOOL]))
        await client.aclose()
    assert second.usage.cache_read_tokens == first.usage.cache_write_tokens > 0
    assert second.usage.input_tokens == 0
    assert second.usage.cache_write_1h_tokens == 0
