"""What the scripted model answers the agent: turns with calls of three servers."""

from typing import Any, Final

from cortex.demo.script import Call, Reply

DONE: Final = "all is done"
FIRST_DELAY_S: Final = 0.1
CHUNK_COUNT: Final = 3
CHUNK_DELAY_S: Final = 0.05

LOOK: Final = "notes__look"
APPEND: Final = "ledger__append"
PUT: Final = "once__put"
_BY_TURN: Final = ((LOOK,), (APPEND,), (PUT,), (LOOK, APPEND, PUT))


def prompt_of(key: str, turns: int) -> str:
    """Return the first message of a conversation: its key, and how many answers it takes."""
    return f"{key} takes {turns} turns"


def calls_of(turn: int, turns: int) -> list[tuple[str, str]]:
    """Return the tools that an answer calls, each with its text; none for the last one."""
    if turn >= turns - 1:
        return []
    tools = _BY_TURN[turn % len(_BY_TURN)]
    return [(tool, f"{tool} of turn {turn}") for tool in tools]


def texts_of(tool: str, turns: int) -> list[str]:
    """Return the texts with which an undisturbed agent calls a tool, in order."""
    return [text for turn in range(turns) for name, text in calls_of(turn, turns) if name == tool]


def script(call: Call) -> Reply:
    """Answer in a few pieces."""
    turns = int(call.user_text(0).split()[2])
    blocks: list[dict[str, Any]] = [
        {"type": "tool_use", "id": f"{call.turn}-{tool}", "name": tool, "input": {"text": text}}
        for tool, text in calls_of(call.turn, turns)
    ]
    return Reply(
        content=tuple(blocks or [{"type": "text", "text": DONE}]),
        chunk_count=CHUNK_COUNT,
        first_delay_s=FIRST_DELAY_S,
        delay_s=CHUNK_DELAY_S,
    )
