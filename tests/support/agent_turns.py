"""Turns of a model, and a script of them for the loop of an agent."""

from collections.abc import Sequence
from typing import Any

import attrs

from cortex.demo.validation import refusal_of
from cortex.domain.model import Capabilities, ModelRequest, ModelResponse
from cortex.domain.usage import Usage
from cortex.durable.calls import Caller
from cortex.durable.step_outcome import StepOutcome

Turn = dict[str, Any]


def says(text: str, stop_reason: str = "end_turn") -> Turn:
    content = ({"type": "text", "text": text},) if text else ()
    return {"content": content, "stop_reason": stop_reason}


def calls(*uses: tuple[str, Any], stop_reason: str = "tool_use") -> Turn:
    """A turn that calls tools; input that is text is what the model sent in place of JSON."""
    content = []
    for number, (name, given) in enumerate(uses):
        parsed = (
            {"input": {}, "invalid_input": given} if isinstance(given, str) else {"input": given}
        )
        content.append({"type": "tool_use", "id": f"use{number}", "name": name, **parsed})
    return {"content": tuple(content), "stop_reason": stop_reason}


@attrs.define
class Script:
    """Plays its turns, one a request; keeps the requests, which the API must take."""

    turns: Sequence[Turn | Exception]
    asked: list[ModelRequest] = attrs.field(factory=list)

    async def capabilities(self, model: str) -> Capabilities:  # noqa: ARG002
        return Capabilities()

    async def respond(self, request: ModelRequest, caller: Caller) -> StepOutcome:  # noqa: ARG002
        turn = self.turns[len(self.asked)]
        self.asked.append(request)
        assert refusal_of(request.to_json()) is None
        if isinstance(turn, Exception):
            raise turn
        response = ModelResponse(model="m", usage=Usage(), message_id="id", **turn)
        return StepOutcome(value=response.to_json(), usage=Usage())

    @property
    def last_results(self) -> list[str]:
        """The tool results that the last request brought, or the text of its last message."""
        content = self.asked[-1].messages[-1]["content"]
        return [content] if isinstance(content, str) else [each["content"] for each in content]
