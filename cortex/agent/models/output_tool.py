"""Structured output for models without a mode that takes it: they give their answer to a tool.

The record sees no difference: the request has its `output`, and the answer is JSON as text.
"""

from typing import Any, Final

import attrs
import orjson

from cortex.domain.model import (
    INVALID_INPUT,
    Block,
    Capabilities,
    ModelRequest,
    ModelResponse,
    OutputFormat,
)
from cortex.domain.output_schema import counts

NAME: Final = "final_answer"
DESCRIPTION: Final = "Takes your answer, once you have all that it needs. It ends your work."
WITH_TOOLS: Final = "Give your last answer by a call of the tool {name}, and not as text."


def is_for(output: OutputFormat, capabilities: Capabilities) -> bool:
    """Return whether an output has to be given to a tool: its model has no mode that takes it."""
    if not (capabilities.output and capabilities.tools):
        return not capabilities.output
    bounds = (capabilities.optional_max, capabilities.unions_max)
    pairs = zip(counts(output.schema), bounds, strict=True)
    return any(most is not None and count > most for count, most in pairs)


@attrs.frozen(kw_only=True)
class OutputTool:
    """A request whose answer goes to a tool, and the way back."""

    request: ModelRequest
    name: str

    @classmethod
    def of(cls, request: ModelRequest, output: OutputFormat) -> "OutputTool":
        """Return the request with the tool; without other tools the model must call it."""
        names = {each.get("name") for each in (*request.tools, *request.options.server_tools)}
        name = NAME
        while name in names:
            name += "_"
        tool = {"name": name, "description": DESCRIPTION, "input_schema": dict(output.schema)}
        options, system = request.options, request.system
        if not names and options.thinking in (None, "off"):
            options = attrs.evolve(options, tool_choice=name)
        else:  # thinking goes with no forced call
            system = "\n\n".join(filter(None, (system, WITH_TOOLS.format(name=name))))
        made = attrs.evolve(
            request, output=None, system=system, tools=(*request.tools, tool), options=options
        )
        return cls(request=made, name=name)

    def restore(self, response: ModelResponse) -> ModelResponse:
        """Return the answer as text; beside calls of other tools it was given too early."""
        calls = [each for each in response.tool_calls if each.get("name") == self.name]
        others = [each for each in response.content if each not in calls]
        if not calls:
            return response
        if any(each["type"] == "tool_use" for each in others):
            return attrs.evolve(response, content=tuple(others))
        kept = [each for each in others if each["type"] != "text"]
        stop = "end_turn" if response.stop_reason == "tool_use" else response.stop_reason
        answer = {"type": "text", "text": _text(calls[0])}
        return attrs.evolve(response, content=(*kept, answer), stop_reason=stop)


def _text(call: Block) -> str:
    raw: Any = call.get(INVALID_INPUT)
    return raw if isinstance(raw, str) and raw else orjson.dumps(call.get("input") or {}).decode()
