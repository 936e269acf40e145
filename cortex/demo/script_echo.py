"""`echo`: answers with what the user said last."""

from cortex.demo.script import Call, Refusal, Reply


def echo(call: Call) -> Reply | Refusal:
    """One text block with the last text a user wrote."""
    return Reply(content=({"type": "text", "text": call.user_text(-1) or "(nothing was said)"},))
