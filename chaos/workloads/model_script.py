"""How the scripted model answers programs: with their own step, after the time that they name."""

from cortex.demo.script import Call, Refusal, Reply

CHUNK_COUNT = 4


def first_message(key: str, step: str, takes_ms: int) -> str:
    """The start of a program's conversation: `<job's key>/<step's key> takes <n> ms`."""
    return f"{key}/{step} takes {takes_ms} ms"


def script(call: Call) -> Reply | Refusal:
    """Answer in a few pieces, over the time that the first message names."""
    conversation, _, duration = call.user_text(0).partition(" takes ")
    words = duration.split()
    takes_s = int(words[0]) / 1000 if words else 0.0
    pause_s = takes_s / CHUNK_COUNT
    text = f"answer to {conversation}: all is well"
    return Reply(
        content=({"type": "text", "text": text},),
        chunk_count=CHUNK_COUNT,
        first_delay_s=pause_s,
        delay_s=pause_s,
    )
