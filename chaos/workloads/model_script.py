"""How the scripted model answers programs: with their own step, after the time that they name."""

from typing import Any, Final

from chaos.workloads.program import Op
from cortex.demo.script import Call, Refusal, Reply

CHUNK_COUNT = 4
AGENT_TOOL: Final = "chaos_note"


def first_message(key: str, step: str, takes_ms: int) -> str:
    """The start of a program's conversation: `<job's key>/<step's key> takes <n> ms`."""
    return f"{key}/{step} takes {takes_ms} ms"


def answer(conversation: str, turn: int) -> tuple[list[dict[str, Any]], str]:
    """Return the blocks and the stop reason of an answer.

    Those of an agent are cut and odd: a call without arguments at the end of max_tokens, blank
    text, an id used twice, a name of no tool, a call that is announced and missing.
    """
    done = [_text(f"answer to {conversation}: all is well")]
    if not conversation.endswith(f":{Op.AGENT}"):
        return done, "end_turn"
    calls = [_call("call", words=f"{conversation} {turn}"), _call("call")]
    turns = (
        ([_text(" "), *calls], "max_tokens"),
        ([_text(""), {**calls[0], "id": "call/2", "name": "functions.note"}], "tool_use"),
        ([_text("I note it.")], "tool_use"),
        ([calls[0]], "end_turn"),
    )
    return turns[turn] if turn < len(turns) else (done, "end_turn")


def script(call: Call) -> Reply | Refusal:
    """Answer in a few pieces, over the time that the first message names."""
    conversation, _, duration = call.user_text(0).partition(" takes ")
    words = duration.split()
    takes_s = int(words[0]) / 1000 if words else 0.0
    pause_s = takes_s / CHUNK_COUNT
    blocks, stop_reason = answer(conversation, call.turn)
    return Reply(
        content=tuple(_streamed(block) for block in blocks),
        stop_reason=stop_reason,
        chunk_count=CHUNK_COUNT,
        first_delay_s=pause_s,
        delay_s=pause_s,
    )


def _text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def _call(id_: str, **arguments: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": id_, "name": AGENT_TOOL, "input": arguments}


def _streamed(block: dict[str, Any]) -> dict[str, Any]:
    """A call without arguments was cut before them: nothing of them is sent."""
    return block if block.get("input") != {} else {**block, "raw_input": ""}
