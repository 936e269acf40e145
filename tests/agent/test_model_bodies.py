"""Bodies that end before their answer does, as a connection delivers them."""

import orjson
import pytest
import trio

from cortex.agent.models.anthropic import AnthropicModel, standard
from cortex.agent.models.errors import ModelUnavailableError
from cortex.domain import classification
from cortex.domain.model import ModelRequest
from tests.support.servers.web_server import open_server

QUESTION = ModelRequest(model="m", messages=[{"role": "user", "content": "go"}], max_tokens=99)


async def test_body_that_ends_inside_an_event_is_cut_however_its_connection_ended(
    nursery: trio.Nursery,
) -> None:
    web = await open_server(nursery)
    events = (
        {"type": "message_start", "message": {"id": "m"}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "a"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}},
    )
    whole = b"".join(b"data: %b\n\n" % orjson.dumps(each) for each in events)
    client = AnthropicModel(standard(api_key="sk", base_url=web.url(path="")))
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {}\r\n\r\n"
    for body, is_whole in ((whole, True), (whole.partition(b"_tok")[0], False)):
        web.reply = head.format(len(body)).encode() + body
        if is_whole:
            assert (await client.respond(QUESTION)).stop_reason == "max_tokens"
            continue
        with pytest.raises(ModelUnavailableError) as caught:
            await client.respond(QUESTION)
        assert caught.value.failure.type == "ended_early"
    await client.aclose()


@pytest.mark.parametrize("events_count", [1, 2])
async def test_connection_that_is_lost_in_the_middle_of_an_answer_is_paid(
    nursery: trio.Nursery, events_count: int
) -> None:
    web = await open_server(nursery)
    events = (
        {"type": "message_start", "message": {"id": "m"}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "a"}},
    )
    body = b"".join(b"data: %b\n\n" % orjson.dumps(each) for each in events[:events_count])
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    web.reply = b"%b%x\r\n%b\r\nno length" % (head, len(body), body) + b"\r\n"
    client = AnthropicModel(standard(api_key="sk", base_url=web.url(path="")))
    with pytest.raises(ModelUnavailableError) as caught:
        await client.respond(QUESTION)
    await client.aclose()
    failure = classification.failure_of(caught.value)
    assert (failure.code, failure.is_paid) == ("connection_lost", events_count == 2)
