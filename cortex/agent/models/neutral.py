"""The messages of a record for one provider: without what only others understand.

Thoughts are encrypted or signed for the account, or by the server, that had them: another one of
the same provider refuses them. So a named endpoint of the settings is a provider of its own in the
record.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from cortex.domain.model import PROVIDER, Block

DEFAULT: Final = "anthropic"
"""Whose a block is that names no provider and is none of the neutral ones."""
NEUTRAL: Final = frozenset({"text", "tool_use", "tool_result", "image", "document"})


def is_for(block: Mapping[str, Any], provider: str) -> bool:
    """Return whether a block is neutral, or the provider's own."""
    if PROVIDER not in block and block.get("type") in NEUTRAL:
        return True
    return str(block.get(PROVIDER, DEFAULT)) == provider


def signed(content: Sequence[Block], endpoint: str) -> tuple[Block, ...]:
    """Return an answer's blocks for the record: those of its own belong to a named endpoint."""
    return tuple(
        block
        if PROVIDER not in block and block.get("type") in NEUTRAL
        else {**block, PROVIDER: endpoint}
        for block in content
    )


def given_back(
    messages: Sequence[Mapping[str, Any]], endpoint: str, provider: str
) -> tuple[Mapping[str, Any], ...]:
    """Return messages of the record as those of a provider, for its named endpoint."""

    def given(block: Block, role: str) -> Block | None:
        if PROVIDER in block:
            return {**block, PROVIDER: provider} if block[PROVIDER] == endpoint else None
        # What a prompt has in it no account has signed.
        is_theirs = role == "assistant" and block.get("type") not in NEUTRAL
        return None if is_theirs else block

    def kept(message: Mapping[str, Any]) -> Mapping[str, Any]:
        content, role = message["content"], str(message["role"])
        if isinstance(content, str):
            return message
        found = (given(block, role) for block in content)
        return {**message, "content": [block for block in found if block is not None]}

    return tuple(map(kept, messages))


def blocks_of(message: Mapping[str, Any], provider: str) -> list[Block]:
    """Return the blocks of a message that a provider understands, without the provider's name."""
    content = message["content"]
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [
        {key: value for key, value in block.items() if key != PROVIDER}
        for block in content
        if is_for(block, provider)
    ]


def messages_for(
    messages: Sequence[Mapping[str, Any]], provider: str
) -> Iterator[tuple[str, list[Block]]]:
    """Yield role and blocks of each message; one of which nothing is left is left out."""
    for message in messages:
        if blocks := blocks_of(message, provider):
            yield str(message["role"]), blocks


def result_text(block: Mapping[str, Any]) -> str:
    """Return the text of a tool result; an error says so itself, for APIs without a flag."""
    content = block.get("content") or ""
    if not isinstance(content, str):
        texts = (str(each.get("text", "")) for each in content if each.get("type") == "text")
        content = "\n\n".join(filter(None, texts))
    return f"Error: {content}" if block.get("is_error") else content
