"""`tools`: the user's first message is the program, as JSON, of the whole conversation.

    {"turns": [
        {"text": "let me look", "tools": [{"name": "list_files", "input": {"pattern": "*"}}]},
        {"fault": "stall", "fault_after": 3, "times": 1, "text": "…", "chunks": 9, "delay_s": 0.1},
        {"status": 429, "error_type": "rate_limit_error", "retry_after": "3", "times": 2},
        {"text": "done"}
    ]}

Turn n of the program answers when the conversation contains n answers. A fault or a status with
`times` affects that many calls of its turn, the first ones; without `times` all of them. After the
last turn the model says "done". A tool call takes `raw_input` to break its JSON. `summary`, beside
`turns`, is the turn that sums the conversation up.
"""

from collections.abc import Sequence
from typing import Any

import orjson
from attrs import field, frozen

from cortex.demo.script import Call, Fault, Refusal, Reply
from cortex.durable.structuring import structure


@frozen(kw_only=True)
class ToolCall:
    """A tool call of the model; `raw_input` is sent verbatim, in place of `input`."""

    name: str
    input: dict[str, Any] = field(factory=dict)
    raw_input: str | None = None


@frozen(kw_only=True)
class Turn:
    """One answer of the program, or the HTTP error `status` in its place."""

    text: str = ""
    tools: list[ToolCall] = field(factory=list)
    chunks: int | None = None
    delay_s: float = 0.0
    first_delay_s: float = 0.0
    stop_reason: str | None = None
    fault: Fault | None = None
    fault_after: int = 0
    ping_s: float = 1.0
    times: int | None = None
    status: int | None = None
    error_type: str = "overloaded_error"
    error_code: str | None = None
    message: str = "scripted refusal"
    retry_after: str | None = None
    retry_after_date_s: float | None = None
    body: str | None = None


@frozen(kw_only=True)
class Program:
    """A whole conversation, turn by turn."""

    turns: list[Turn]
    summary: Turn = field(factory=lambda: Turn(text="All went well so far."))
    """The answer when the conversation is to be summed up."""


def tools(call: Call) -> Reply | Refusal:
    """Play the turn that is due. An invalid program is refused with HTTP 400."""
    try:
        program = parse(call.user_text(0))
    except ValueError as error:
        return Refusal(status=400, message=f"the prompt is not a program for `tools`: {error}")
    due = program.turns[call.turn] if call.turn < len(program.turns) else Turn(text="done")
    due = program.summary if call.asks_for_summary else due
    strikes = due.times is None or call.number <= due.times
    if due.status is not None and strikes:
        return Refusal(
            status=due.status,
            error_type=due.error_type,
            error_code=due.error_code,
            message=due.message,
            retry_after=due.retry_after,
            retry_after_date_s=due.retry_after_date_s,
            body=due.body,
            first_delay_s=due.first_delay_s,
        )
    return _reply(due, call, fault=due.fault if strikes else None)


def parse(text: str) -> Program:
    """Return the program between the first and the last brace of a text."""
    start, end = text.find("{"), text.rfind("}")
    return structure(orjson.loads(text[start : end + 1]), Program)


def _reply(turn: Turn, call: Call, *, fault: Fault | None) -> Reply:
    content: list[dict[str, Any]] = [{"type": "text", "text": turn.text}] if turn.text else []
    content += tool_blocks(turn.tools, call)
    return Reply(
        content=tuple(content),
        chunk_count=turn.chunks,
        delay_s=turn.delay_s,
        first_delay_s=turn.first_delay_s,
        stop_reason=turn.stop_reason,
        fault=fault,
        fault_after=turn.fault_after,
        ping_s=turn.ping_s,
        error_type=turn.error_type,
    )


def tool_blocks(asked: Sequence[ToolCall], call: Call) -> list[dict[str, Any]]:
    """Return the tool_use blocks for these tools."""
    return [
        {
            "type": "tool_use",
            "id": f"toolu_{call.conversation}_{call.turn}_{index}",
            "name": each.name,
            "input": each.input,
            "raw_input": each.raw_input,
        }
        for index, each in enumerate(asked)
    ]
