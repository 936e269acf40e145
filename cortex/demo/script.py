"""The interface of a script: one call of the Messages API in, one scripted answer out.

A script is a pure function of the `Call` (the conversation and the number of requests for this
turn), so a job that resumes on another pod gets the same answers.
"""

import math
import re
from collections.abc import Mapping
from enum import StrEnum
from hashlib import sha256
from itertools import chain
from typing import Any, Final, Protocol

import orjson
from attrs import evolve, frozen

from cortex.agent.transcript import SUM_UP, SUMMED_UP
from cortex.demo.prompt_cache import CHARS_PER_TOKEN, NOTHING_CACHED, CachedTokens, Place

_SUMMED_UP: Final = re.compile(re.escape(SUMMED_UP).replace(r"\{\}", r"(\d+)"))


@frozen(kw_only=True)
class Call:
    """One POST /v1/messages as a script sees it.

    `number` counts from 1 the calls of this same turn, `ordinal` all calls of the server; `at_s` is
    the time since the server's start. Only a script that injects faults reads these. `messages` are
    Messages-API dicts as received.
    """

    model: str
    system: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    max_tokens: int
    stream: bool
    input_tokens: int
    """The length of the prompt, cached or not."""
    temperature: float | None = None
    places: tuple[Place, ...] = ()
    """The blocks of the prompt, for the cache."""
    cached: CachedTokens = NOTHING_CACHED
    """The part of `input_tokens` that is read from the cache or written to it."""
    number: int = 1
    ordinal: int = 1
    at_s: float = 0.0

    @property
    def conversation(self) -> str:
        """Names the conversation: a digest of the system prompt and the first message."""
        return sha256(orjson.dumps([self.system, self.messages[:1]])).hexdigest()[:16]

    @property
    def turn(self) -> int:
        """How many answers the model has given so far, those in a summary of its own included."""
        summed_up = _SUMMED_UP.search(text_of(self.messages[0])) if self.messages else None
        answers: int = sum(message.get("role") == "assistant" for message in self.messages)
        return answers if summed_up is None else answers + int(summed_up[1])

    @property
    def asks_for_summary(self) -> bool:
        """Whether the model is to sum up the conversation."""
        return text_of(self.messages[-1]).endswith(SUM_UP)

    def user_text(self, index: int) -> str:
        """The text of the user's index-th message (not a tool result); "" if none."""
        texts = [text_of(m) for m in self.messages if m.get("role") == "user"]
        written = [text for text in texts if text]
        return written[index] if -len(written) <= index < len(written) else ""


class Fault(StrEnum):
    """How a streamed answer fails, after `Reply.fault_after` of its chunks."""

    STALL = "stall"  # no more content; pings go on until the client leaves
    SILENCE = "silence"  # nothing more at all until the client leaves
    CUT = "cut"  # the connection is reset
    EARLY_END = "early_end"  # the stream ends cleanly, without message_stop
    MALFORMED = "malformed"  # an event whose data is not JSON
    NOT_UTF8 = "not_utf8"  # an event whose bytes are not UTF-8
    ERROR_EVENT = "error_event"  # an error of type `Reply.error_type`, after HTTP 200
    HTML = "html"  # HTTP 200 with a web page instead of a stream
    EMPTY = "empty"  # HTTP 200 with an event stream that holds nothing
    HANG = "hang"  # the request is read and never answered
    DROP = "drop"  # the connection closes before any answer
    STRANGE_EVENTS = "strange_events"  # events of unknown types among the right ones: harmless


@frozen(kw_only=True)
class Reply:
    """An answer of the model, whole or broken by `fault`.

    `content` contains Messages-API blocks; a tool_use block may carry `raw_input` (a string that is
    sent verbatim) instead of `input`. Text is cut into `chunk_count` pieces (None: about three
    words each), each sent `delay_s` after the previous one; the first byte after `first_delay_s`.
    """

    content: tuple[Mapping[str, Any], ...]
    chunk_count: int | None = None
    delay_s: float = 0.0
    first_delay_s: float = 0.0
    stop_reason: str | None = None
    fault: Fault | None = None
    fault_after: int = 0
    ping_s: float = 1.0
    fault_s: float = math.inf
    """How long a stall, a silence or a hang lasts: then the connection is cut."""
    error_type: str = "overloaded_error"
    rule: str | None = None
    """The matching rule of a fault file, for the log."""

    @property
    def ends_with(self) -> str:
        """The stop reason: the one given, or what the content implies."""
        if self.stop_reason is not None:
            return self.stop_reason
        asks = any(block["type"] == "tool_use" for block in self.content)
        return "tool_use" if asks else "end_turn"

    @property
    def output_tokens(self) -> int:
        """The cost of the content, at `CHARS_PER_TOKEN`."""
        return 1 + sum(map(block_length, self.content)) // CHARS_PER_TOKEN


@frozen(kw_only=True)
class Refusal:
    """An HTTP error instead of an answer. `body` (raw) replaces the API's usual error body.

    `retry_after` is sent verbatim; `retry_after_date_s` as an HTTP date that many seconds later.
    """

    status: int
    error_type: str = "invalid_request_error"
    error_code: str | None = None
    """The API's code for the cause, such as organization_on_hold."""
    message: str = "scripted refusal"
    retry_after: str | None = None
    retry_after_date_s: float | None = None
    body: str | None = None
    first_delay_s: float = 0.0
    rule: str | None = None


class Script(Protocol):
    """Decides how a call is answered. Pure: the same call always gets the same answer."""

    def __call__(self, call: Call, /) -> Reply | Refusal: ...


def at_pace(pace: float, script: Script) -> Script:
    """Return the same script with all delays multiplied: 0 answers as fast as possible."""

    def paced(call: Call, /) -> Reply | Refusal:
        reply = script(call)
        first_delay_s = reply.first_delay_s * pace
        if isinstance(reply, Refusal):
            return evolve(reply, first_delay_s=first_delay_s)
        return evolve(reply, delay_s=reply.delay_s * pace, first_delay_s=first_delay_s)

    return paced


def text_of(message: Mapping[str, Any]) -> str:
    """Return the text of a message, without tool calls and tool results."""
    content = message.get("content", "")
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content if block.get("type") == "text")


def tool_results(call: Call) -> list[tuple[dict[str, Any], str, bool]]:
    """Every finished tool call so far, in order: the tool_use block, its result, is it an error."""
    blocks = list(chain.from_iterable(_blocks(message) for message in call.messages))
    uses = {block["id"]: block for block in blocks if block.get("type") == "tool_use"}
    return [
        (uses[block["tool_use_id"]], text_of(block), bool(block.get("is_error")))
        for block in blocks
        if block.get("type") == "tool_result" and block.get("tool_use_id") in uses
    ]


def block_length(block: Mapping[str, Any]) -> int:
    """How many characters a content block has on the wire."""
    if block["type"] == "text":
        return len(block["text"])
    return len(block["name"]) + len(tool_input(block))


def tool_input(block: Mapping[str, Any]) -> str:
    """The JSON text of a tool_use block's input, or the raw text that replaces it."""
    raw = block.get("raw_input")
    return raw if raw is not None else orjson.dumps(block["input"]).decode()


def _blocks(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return content if isinstance(content, list) else []
