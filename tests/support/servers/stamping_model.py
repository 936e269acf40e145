"""A model on loopback whose every word is the instant at which it was sent."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from cortex.demo.events import event
from cortex.demo.wire import Wire

PAUSE_S = 0.02


@asynccontextmanager
async def stamping_model(*, words: int) -> AsyncIterator[str]:
    """Serve until the block is left; gives the base URL. Stamps are of `trio.current_time`."""

    async def connected(stream: trio.SocketStream) -> None:
        wire = Wire(stream)
        try:
            while await wire.next_request() is not None:
                await _answer(wire, words)
        except trio.BrokenResourceError:
            return  # the pod was killed

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, connected, listeners)
        yield f"http://127.0.0.1:{port}"
        nursery.cancel_scope.cancel()


async def _answer(wire: Wire, words: int) -> None:
    usage = {"input_tokens": 1, "output_tokens": 1}
    message: dict[str, Any] = {
        "id": "message-1",
        "type": "message",
        "role": "assistant",
        "model": "stamps",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    block = {"type": "text", "text": ""}
    await wire.open_answer(200, "text/event-stream; charset=utf-8")
    await wire.send(event("message_start", message=message))
    await wire.send(event("content_block_start", index=0, content_block=block))
    for _ in range(words):
        await trio.sleep(PAUSE_S)
        delta = {"type": "text_delta", "text": f"{trio.current_time():.6f} "}
        await wire.send(event("content_block_delta", index=0, delta=delta))
    await wire.send(event("content_block_stop", index=0))
    ending = {"stop_reason": "end_turn", "stop_sequence": None}
    await wire.send(event("message_delta", delta=ending, usage=usage))
    await wire.send(event("message_stop"))
    await wire.end_answer()
