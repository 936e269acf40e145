"""Strict fakes of the Responses API, Chat Completions and the Gemini API, on loopback.

Each refuses what the real one refuses (`model_api_rules`) and streams as it does. A test says what
the model answers; the same `Turn` is spoken in the words of each API.

    async with model_apis(Turn(text="hi")) as apis: ...apis.url("openai")...
"""

import base64
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import trio
from attrs import define, field, frozen

from cortex.demo.wire import HttpRequest, Wire
from tests.support.eventually import WITHIN_S
from tests.support.servers.model_api_rules import (
    chat_problems,
    generate_problems,
    responses_problems,
)

KEY: Final = "sk-test-0123456789"
PATHS: Final = {"openai": "/v1", "chat": "/v1", "google": ""}
ENCRYPTED: Final = "gAAAA-encrypted"
SIGNED: Final = base64.b64encode(b"\xfb\xff signature").decode()
"""Has + and / in it, which another alphabet of base64 writes otherwise."""


@frozen(kw_only=True)
class Turn:
    """One answer of the model, or what comes in its place."""

    text: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    """Names and arguments."""
    thinks: bool = False
    stop: str = ""
    """`length` or `filter`: why the answer is not whole."""
    usage: tuple[int, int, int] = (100, 60, 20)
    """Tokens of the prompt, those of them from the cache, and of the answer."""
    tier: str = "default"
    """The service tier that OpenAI's APIs report."""
    status: int = 200
    error: dict[str, Any] | None = None
    """The `error` object of a refusal, or, with the status 200, of one in the stream."""
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    """In place of an answer."""
    content_type: str = "text/event-stream"
    cut_after: int | None = None
    """Events after which the connection is reset."""
    hang_after: int | None = None
    """Events after which nothing comes any more."""


@define
class ModelApis:
    """The running server and what it was asked."""

    port: int
    turns: list[Turn | Callable[[dict[str, Any]], Turn]]
    asked: list[dict[str, Any]] = field(factory=list)
    refused: list[str] = field(factory=list)
    left: trio.Event = field(factory=trio.Event)
    """A client has closed its connection while an answer hung."""
    needs_signatures: bool = True
    keys: list[str] = field(factory=list)

    def url(self, api: str) -> str:
        return f"http://127.0.0.1:{self.port}{PATHS[api]}"

    def next(self, request: dict[str, Any]) -> Turn:
        turn = self.turns.pop(0) if self.turns else Turn(text="no more turns")
        return turn if isinstance(turn, Turn) else turn(request)


@asynccontextmanager
async def model_apis(*turns: Turn | Callable[[dict[str, Any]], Turn]) -> AsyncIterator[ModelApis]:
    """Serve until the block is left."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    apis = ModelApis(listener.socket.getsockname()[1], list(turns))

    async def connected(stream: trio.SocketStream) -> None:
        wire = Wire(stream)
        try:
            while (request := await wire.next_request()) is not None:
                if not await _answered(apis, wire, request):
                    return
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return

    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, connected, [listener])
        yield apis
        nursery.cancel_scope.cancel()


async def _answered(apis: ModelApis, wire: Wire, request: HttpRequest) -> bool:
    """Answer one request; False if the connection is over."""
    speaker = _speaker(request.path)
    key = speaker.key(request)
    apis.keys.append(key)
    if key != KEY:
        await _refuse(wire, speaker, *speaker.no_key)
        return True
    asked = json.loads(request.body)
    apis.asked.append(asked)
    problems = list(speaker.problems(apis, asked))
    if problems:
        apis.refused += problems
        await _refuse(wire, speaker, 400, speaker.invalid(problems[0]))
        return True
    turn = apis.next(asked)
    if turn.status != 200:
        await _refuse(wire, speaker, turn.status, turn.error or {}, turn.headers)
        return True
    if turn.body is not None:
        await wire.answer(200, turn.content_type, turn.body)
        return True
    return await _stream(apis, wire, speaker, turn)


async def _stream(apis: ModelApis, wire: Wire, speaker: "Speaker", turn: Turn) -> bool:
    await wire.open_answer(200, turn.content_type, extra=turn.headers)
    for place, event in enumerate(speaker.events(turn)):
        if place == turn.cut_after:
            await wire.reset()
            return False
        if place == turn.hang_after:
            await wire.until_client_leaves()
            apis.left.set()
            return False
        await wire.send(event)
    await wire.end_answer()
    return True


async def _refuse(
    wire: Wire,
    speaker: "Speaker",
    status: int,
    error: dict[str, Any],
    headers: tuple[tuple[str, str], ...] = (),
) -> None:
    body = json.dumps({"error": error}).encode()
    await wire.answer(status, "application/json", body, extra=headers)


def _sse(data: Any, *, name: str = "", end: str = "\n\n") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}{end}".encode()


def _speaker(path: str) -> "Speaker":
    if path.endswith("/responses"):
        return Responses()
    if path.endswith("/chat/completions"):
        return Chat()
    assert path.endswith(":streamGenerateContent"), path
    return Gemini(path)


class Speaker:
    """How one API refuses and streams."""

    no_key: tuple[int, dict[str, Any]]

    def key(self, request: HttpRequest) -> str:
        return request.headers.get("authorization", "").removeprefix("Bearer ")

    def problems(self, apis: ModelApis, asked: dict[str, Any]) -> Iterator[str]:
        raise NotImplementedError

    def invalid(self, message: str) -> dict[str, Any]:
        return {"message": message, "type": "invalid_request_error", "param": None, "code": None}

    def events(self, turn: Turn) -> Iterator[bytes]:
        raise NotImplementedError


OPENAI_NO_KEY: Final[tuple[int, dict[str, Any]]] = (
    401,
    {
        "message": "Incorrect API key provided.",
        "type": "invalid_request_error",
        "param": None,
        "code": "invalid_api_key",
    },
)


class Responses(Speaker):
    """POST /v1/responses: as the SDK's `ResponseStreamEvent` describes its events."""

    no_key = OPENAI_NO_KEY

    def problems(self, apis: ModelApis, asked: dict[str, Any]) -> Iterator[str]:  # noqa: ARG002
        yield from responses_problems(asked)

    def events(self, turn: Turn) -> Iterator[bytes]:
        number = -1

        def event(kind: str, **fields: Any) -> bytes:
            nonlocal number
            number += 1
            return _sse({"type": kind, "sequence_number": number, **fields}, name=kind)

        head = {"id": "resp_1", "object": "response", "model": "gpt-scripted-1", "output": []}
        yield event("response.created", response={**head, "status": "in_progress"})
        if turn.error is not None:
            yield event("error", **turn.error)
            return
        place = 0
        if turn.thinks:
            item = {"type": "reasoning", "id": "rs_1", "summary": []}
            yield event("response.output_item.added", output_index=place, item=item)
            item["encrypted_content"] = ENCRYPTED
            yield event("response.output_item.done", output_index=place, item=item)
            place += 1
        if turn.text:
            yield from self._message(event, place, turn)
            place += 1
        for number_of_call, (name, arguments) in enumerate(turn.calls):
            yield from self._call(event, place, number_of_call, name, arguments)
            place += 1
        yield self._end(event, head, turn)

    def _message(self, event: Any, place: int, turn: Turn) -> Iterator[bytes]:
        item = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}
        where = {"output_index": place, "content_index": 0, "item_id": "msg_1"}
        yield event("response.output_item.added", output_index=place, item=item)
        part = {"type": "output_text", "text": "", "annotations": []}
        yield event("response.content_part.added", part=part, **where)
        for piece in _pieces(turn.text):
            yield event("response.output_text.delta", delta=piece, logprobs=[], **where)
        yield event("response.output_text.done", text=turn.text, logprobs=[], **where)
        whole = {**item, "content": [{**part, "text": turn.text}], "phase": "commentary"}
        yield event("response.output_item.done", output_index=place, item=whole)

    def _call(
        self, event: Any, place: int, number: int, name: str, arguments: dict[str, Any]
    ) -> Iterator[bytes]:
        item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}"}
        item |= {"name": name, "arguments": "", "status": "in_progress"}
        yield event("response.output_item.added", output_index=place, item=item)
        text = json.dumps(arguments)
        where = {"output_index": place, "item_id": item["id"]}
        for piece in _pieces(text):
            yield event("response.function_call_arguments.delta", delta=piece, **where)
        yield event("response.function_call_arguments.done", arguments=text, **where)
        whole = {**item, "arguments": text, "status": "completed"}
        yield event("response.output_item.done", output_index=place, item=whole)

    def _end(self, event: Any, head: dict[str, Any], turn: Turn) -> bytes:
        prompt, cached, output = turn.usage
        usage = {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
            "output_tokens": output,
            "output_tokens_details": {"reasoning_tokens": 5 if turn.thinks else 0},
            "total_tokens": prompt + output,
        }
        reason = {"length": "max_output_tokens", "filter": "content_filter"}.get(turn.stop)
        status = "completed" if reason is None else "incomplete"
        details = None if reason is None else {"reason": reason}
        response = {**head, "status": status, "incomplete_details": details, "usage": usage}
        response["service_tier"] = turn.tier
        return bytes(event(f"response.{status}", response=response))


class Chat(Speaker):
    """POST /v1/chat/completions: as the SDK's `ChatCompletionChunk` describes its chunks."""

    no_key = OPENAI_NO_KEY

    def problems(self, apis: ModelApis, asked: dict[str, Any]) -> Iterator[str]:  # noqa: ARG002
        yield from chat_problems(asked)

    def events(self, turn: Turn) -> Iterator[bytes]:
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "some-model"}
        head["service_tier"] = turn.tier

        def chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
            return _sse({**head, "choices": [choice], "usage": None})

        yield chunk({"role": "assistant", "content": ""})
        if turn.error is not None:
            yield _sse({**head, "choices": [], "error": turn.error})
            return
        if turn.thinks:
            yield chunk({"reasoning_content": "Let me see."})
        for piece in _pieces(turn.text):
            yield chunk({"content": piece})
        for index, (name, arguments) in enumerate(turn.calls):
            first, *others = _pieces(json.dumps(arguments))
            call = {"index": index, "id": f"call_{index}", "type": "function"}
            call["function"] = {"name": name, "arguments": first}
            yield chunk({"tool_calls": [call]})
            for piece in others:
                yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        whole = "tool_calls" if turn.calls else "stop"
        yield chunk({}, {"length": "length", "filter": "content_filter"}.get(turn.stop, whole))
        prompt, cached, output = turn.usage
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "total_tokens": prompt + output,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        yield _sse({**head, "choices": [], "usage": usage})
        yield b"data: [DONE]\n\n"


class Gemini(Speaker):
    """POST …:streamGenerateContent?alt=sse: as the API's GenerateContentResponse describes it."""

    no_key = (
        400,
        {
            "code": 400,
            "message": "API key not valid. Please pass a valid API key.",
            "status": "INVALID_ARGUMENT",
            "details": [{"@type": "…/ErrorInfo", "reason": "API_KEY_INVALID"}],
        },
    )

    def __init__(self, path: str) -> None:
        self.model = path.rpartition("/")[2].partition(":")[0]

    def key(self, request: HttpRequest) -> str:
        return request.headers.get("x-goog-api-key", "")

    def problems(self, apis: ModelApis, asked: dict[str, Any]) -> Iterator[str]:
        yield from generate_problems(asked, needs_signatures=apis.needs_signatures)

    def invalid(self, message: str) -> dict[str, Any]:
        return {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}

    def events(self, turn: Turn) -> Iterator[bytes]:
        head = {"responseId": "r-1", "modelVersion": self.model}

        def chunk(parts: list[dict[str, Any]], reason: str | None = None, **more: Any) -> bytes:
            candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
            if reason is not None:
                candidate["finishReason"] = reason
            return _sse({"candidates": [candidate], **head, **more}, end="\r\n\r\n")

        if turn.thinks:
            yield chunk([{"text": "Let me see.", "thought": True}])
        for piece in _pieces(turn.text):
            yield chunk([{"text": piece}])
        if turn.error is not None:
            yield _sse({"error": turn.error}, end="\r\n\r\n")
            return
        calls: list[dict[str, Any]] = [
            {"functionCall": {"name": name, "args": arguments}} for name, arguments in turn.calls
        ]
        if calls:
            calls[0]["thoughtSignature"] = SIGNED
        prompt, cached, output = turn.usage
        usage = {
            "promptTokenCount": prompt,
            "cachedContentTokenCount": cached,
            "candidatesTokenCount": output - 5 if turn.thinks else output,
            "thoughtsTokenCount": 5 if turn.thinks else 0,
            "totalTokenCount": prompt + output,
        }
        reason = {"length": "MAX_TOKENS", "filter": "SAFETY"}.get(turn.stop, "STOP")
        yield chunk(calls or [{"text": ""}], reason, usageMetadata=usage)


def _pieces(text: str) -> list[str]:
    """Cut a text into three pieces, in the middle of words."""
    size = max(1, -(-len(text) // 3))
    return [text[at : at + size] for at in range(0, len(text), size)]


@contextmanager
def model_apis_beside(
    *turns: Turn | Callable[[dict[str, Any]], Turn],
) -> Iterator[ModelApis]:
    """Serve from a thread, for tests of pods."""
    started: Future[ModelApis] = Future()
    is_over = threading.Event()

    async def serve() -> None:
        async with model_apis(*turns) as apis:
            started.set_result(apis)
            await trio.to_thread.run_sync(is_over.wait)

    thread = threading.Thread(target=trio.run, args=(serve,), daemon=True)
    thread.start()
    try:
        yield started.result(WITHIN_S)
    finally:
        is_over.set()
        thread.join(WITHIN_S)
