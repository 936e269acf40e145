"""Requests to a model and its responses, as plain values without any SDK."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from attrs import frozen

from cortex.domain.usage import Usage

Block = dict[str, Any]
"""A content block of the Messages API, as plain JSON."""

INVALID_INPUT: Final = "invalid_input"
"""Key of a recorded tool call: the raw text in place of arguments."""
ENDED: Final = frozenset({"end_turn", "tool_use"})
"""Stop reasons of an answer that the model itself ended: nothing of it is cut."""


@frozen(kw_only=True)
class ModelRequest:
    """One call. `messages` and `tools` are dicts as the Messages API defines them."""

    model: str
    messages: Sequence[Mapping[str, Any]]
    max_tokens: int
    system: str = ""
    tools: Sequence[Mapping[str, Any]] = ()
    temperature: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the body of the request, without unset fields: equal bodies are equal requests."""
        optional = {"system": self.system, "tools": list(self.tools)}
        body = {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "messages": list(self.messages),
            **{name: value for name, value in optional.items() if value},
        }
        return body if self.temperature is None else {**body, "temperature": self.temperature}


@frozen(kw_only=True)
class ModelResponse:
    """A complete answer with the model's own stop reason.

    `content` contains blocks as the API sends them; the loop uses text and tool_use, the others
    (thinking …) go back to the model unchanged. A tool call whose input was not a JSON object has
    `input` {} and the raw text under "invalid_input", which is empty if no arguments arrived.
    """

    model: str
    content: tuple[Block, ...]
    stop_reason: str
    usage: Usage
    message_id: str

    @property
    def text(self) -> str:
        return "".join(block["text"] for block in self.content if block["type"] == "text")

    @property
    def tool_calls(self) -> tuple[Block, ...]:
        """The tool_use blocks, in the model's order."""
        return tuple(block for block in self.content if block["type"] == "tool_use")

    def is_cut(self, call: Block) -> bool:
        """Return whether the arguments of a tool call did not arrive whole: it must not run.

        No text of an object is whole before its last brace, so arguments that parse are whole.
        Empty ones are also what a call begins with: they count only if the model ended its answer.
        """
        raw = call.get(INVALID_INPUT)
        if self.stop_reason in ENDED:
            return raw == ""
        return raw is not None or not call.get("input")

    def as_message(self) -> dict[str, Any]:
        """Return the assistant message for the next request, with only what the API takes."""
        content = [{k: v for k, v in each.items() if k != INVALID_INPUT} for each in self.content]
        return {"role": "assistant", "content": content}

    def to_json(self) -> dict[str, Any]:
        """A plain dict, the inverse of `from_json`."""
        return {
            "model": self.model,
            "content": list(self.content),
            "stop_reason": self.stop_reason,
            "usage": self.usage.to_json(),
            "message_id": self.message_id,
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        return cls(
            model=plain["model"],
            content=tuple(plain["content"]),
            stop_reason=plain["stop_reason"],
            usage=Usage.from_json(plain["usage"]),
            message_id=plain["message_id"],
        )
