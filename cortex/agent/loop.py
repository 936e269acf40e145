"""The turn loop of an agent: model response, then its tool calls, until it has nothing to call.

A handler like any other, built on `Context`: each finished response is committed before its tools
run, each tool result as it arrives. A killed job goes on where its record ends.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import orjson

from cortex.agent.spec import AgentSpec
from cortex.domain.errors import CortexError, RejectedError
from cortex.domain.model import INVALID_INPUT, ModelRequest, ModelResponse
from cortex.durable.codec import clean_text, digest_of
from cortex.durable.context import Context

DONE: Final = frozenset({"end_turn", "stop_sequence"})
ERROR: Final = "tool_error"
"""Key of the recorded output of a tool that failed."""


@attrs.frozen(kw_only=True)
class AgentResult:
    """What `run_agent` returns."""

    text: str
    steps: int
    """Model responses."""
    input_tokens: int
    output_tokens: int
    cost_usd: str
    workspace: str
    """Folder with the files that the agent wrote."""


async def run_agent(
    ctx: Context, spec: AgentSpec, *, prompt: str, folder: Path | None
) -> AgentResult:
    """Run an agent on a prompt until it ends its turn.

    Raises `UsageError` for a tool that the pod does not have, `RejectedError` when the agent used
    up its steps or the model stopped for another reason than being done.
    """
    offered = ctx.services.tools.offer(spec.tools)
    messages: list[Mapping[str, Any]] = [{"role": "user", "content": prompt}]
    # Each request is the one before and what has come since: so is its digest, at constant cost.
    # Of the tools only their names (in the specification): a better docstring is no other job.
    digest = digest_of(spec.to_json(), messages, what="the agent's prompt")
    for number in range(1, spec.max_steps + 1):
        request = ModelRequest(
            model=spec.model,
            messages=tuple(messages),
            system=spec.system,
            tools=offered,
            max_tokens=spec.max_tokens,
        )
        response = await ctx.ask(f"{number} model", request, digest=digest)
        if not response.tool_calls:
            return _result(ctx, response, number)
        results = await _call_tools(ctx, response, number, folder)
        turn: list[Mapping[str, Any]] = [
            response.as_message(),
            {"role": "user", "content": results},
        ]
        messages += turn
        digest = digest_of(digest.hex(), turn, what=f"transcript after step {number}")
    raise RejectedError(
        f"agent {spec.name!r} used all its {spec.max_steps} steps without an end",
        hint="raise max_steps in its specification, or ask for less",
    )


async def _call_tools(
    ctx: Context, response: ModelResponse, number: int, folder: Path | None
) -> list[Mapping[str, Any]]:
    """Call the tools of one response concurrently; return their result blocks in its order."""
    uses = response.tool_calls
    outputs = await ctx.gather(
        *(
            ctx.tool(
                f"{number} {use['name']}",
                use["name"],
                {INVALID_INPUT: use[INVALID_INPUT]} if INVALID_INPUT in use else use["input"],
                folder=folder,
                on_error=_tell,
            )
            for use in uses
        )
    )
    return [_result_block(use["id"], output) for use, output in zip(uses, outputs, strict=True)]


def _tell(error: Exception) -> dict[str, str]:
    """What the model is told, and the record keeps, of a tool that failed."""
    if isinstance(error, CortexError):
        text = f"{error.message}. {error.hint}" if error.hint else error.message
    else:
        text = f"{type(error).__name__}: {error}"
    return {ERROR: clean_text(text)}


def _result_block(use_id: str, output: Any) -> Mapping[str, Any]:
    is_error = isinstance(output, dict) and output.keys() == {ERROR}
    content = output[ERROR] if is_error else output
    text = content if isinstance(content, str) else orjson.dumps(content).decode()
    block = {"type": "tool_result", "tool_use_id": use_id, "content": text}
    return {**block, "is_error": True} if is_error else block


def _result(ctx: Context, response: ModelResponse, number: int) -> AgentResult:
    if response.stop_reason not in DONE:
        raise RejectedError(
            f"the model stopped with {response.stop_reason!r} in step {number}",
            hint="max_tokens: raise it in the agent's specification"
            if response.stop_reason == "max_tokens"
            else None,
        )
    return AgentResult(
        text=response.text,
        steps=number,
        input_tokens=ctx.usage.prompt_tokens,
        output_tokens=ctx.usage.output_tokens,
        cost_usd=str(ctx.cost_usd),
        workspace=str(ctx.workspace),
    )
