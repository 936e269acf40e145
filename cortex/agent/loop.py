"""The turn loop of an agent: model response, then its tool calls, until it has nothing to call.

A handler like any other, built on `Context`: each finished response is committed before its tools
run, each tool result as it arrives. A killed job goes on where its record ends: whatever the loop
decides by, it reads from recorded steps.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import orjson

from cortex.agent.plain import raw_text
from cortex.agent.spec import AgentSpec
from cortex.agent.tools.tool import ToolInputError
from cortex.domain.canonical import canonical
from cortex.domain.errors import (
    ApprovalExpiredError,
    CortexError,
    DeniedError,
    InvalidOutputError,
    RejectedError,
    TimedOutError,
)
from cortex.domain.model import INVALID_INPUT, Block, ModelRequest, ModelResponse
from cortex.domain.redaction import clean_text
from cortex.durable.codec import input_of
from cortex.durable.context import Context
from cortex.durable.gates import Decision
from cortex.durable.structuring import show

DONE: Final = frozenset({"end_turn", "stop_sequence"})
ERROR: Final = "tool_error"
"""Key of the recorded output of a tool that failed."""
CODE: Final = "code"
"""Beside it, the code of an error that was the model's own."""
MISFITS_MAX: Final = 2
"""So many turns in a row whose tool input does not fit go back to the model; the next one fails."""
CONTINUED_MAX: Final = 3
"""So many times in a row the model is asked to go on; the next stop fails."""

GO_ON: Final = {
    "max_tokens": "Your answer was cut off: it reached the limit of one response. Go on exactly "
    "where it stopped and repeat nothing.",
    "empty": "Your answer was empty. Go on; if you are done, say what came of it.",
    "refusal": "A person has looked at this and wants you to go on with the task.",
}
TOLD: Final = {
    "max_tokens": "stopped with 'max_tokens'",
    "refusal": "stopped with 'refusal'",
    "empty": "gave an empty answer",
}
HINTS: Final = {
    "max_tokens": "raise max_tokens in the agent's specification",
    "refusal": "change what it is asked for",
}


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

    Raises:
        UsageError: the pod does not have one of the agent's tools.
        RejectedError: the agent used up its steps, or the model stopped for a reason of its own.
        InvalidOutputError: the model stopped in a way that the agent's `on_stop` fails, or gave
            tools input that does not fit in three turns in a row, or a required tool returned
            what does not fit its type.
        TimedOutError: a step, which is one response and its tool calls, took too long.
    """
    run = _Run(ctx, spec, prompt=prompt, folder=folder)
    limit_s = (await ctx.limits()).step_s
    for number in range(1, spec.max_steps + 1):
        text: str | None = None
        with ctx.clocked(limit_s) as step:
            text = await run.turn(number)
        if step.cancelled_caught:
            told = f"step {number} of agent {spec.name!r} took longer than {limit_s:g} seconds"
            raise TimedOutError(told, scope="step", limit_s=limit_s)
        if text is not None:
            return _result(ctx, text, number)
    raise RejectedError(
        f"agent {spec.name!r} used all its {spec.max_steps} steps without an end",
        hint="raise max_steps in its specification, or ask for less",
    )


class _Run:
    """One conversation, grown turn by turn."""

    def __init__(self, ctx: Context, spec: AgentSpec, *, prompt: str, folder: Path | None) -> None:
        self._ctx = ctx
        self._spec = spec
        self._folder = folder
        self._offered = ctx.services.tools.offer(spec.tools)
        self._messages: list[Mapping[str, Any]] = [{"role": "user", "content": prompt}]
        # Each request is the one before and what has come since: so is its input, at constant
        # cost. Of the tools only their names (in the specification): a better docstring is no
        # other job.
        self._given = input_of(spec.to_json(), self._messages, what="the agent's prompt")
        self._begun = ""
        """Text of an answer that is being continued."""
        self._continued = 0
        self._misfits = 0

    async def turn(self, number: int) -> str | None:
        """Take one turn; return the agent's last words if it was the last one."""
        request = ModelRequest(
            model=self._spec.model,
            messages=tuple(self._messages),
            system=self._spec.system,
            tools=self._offered,
            max_tokens=self._spec.max_tokens,
        )
        response = await self._ctx.ask(f"{number} model", request, given=self._given)
        stop = self._stop(response)
        if stop is not None:
            await self._judge_stop(stop, response, number)
        if response.tool_calls:
            await self._use_tools(response, number)
        elif stop is not None:
            self._ask_to_go_on(stop, response, number)
        elif response.stop_reason in DONE:
            return self._begun + response.text
        else:
            raise RejectedError(f"the model stopped with {response.stop_reason!r} in step {number}")
        return None

    def _stop(self, response: ModelResponse) -> str | None:
        """Why this response is not valid by itself; None if it is."""
        if response.stop_reason in ("max_tokens", "refusal"):
            return response.stop_reason
        is_end = response.stop_reason in DONE and not response.tool_calls
        return "empty" if is_end and not (self._begun + response.text).strip() else None

    async def _judge_stop(self, stop: str, response: ModelResponse, number: int) -> None:
        """Fail by it, or ask a person whether to go on, as the agent's specification says."""
        is_worn_out = self._continued >= CONTINUED_MAX and not response.tool_calls
        policy = getattr(self._spec.on_stop, stop)
        if policy == "ask":
            await self._ctx.approve(
                f"{number} {stop}",
                detail={"model": self._spec.model, "answer": self._begun + response.text},
                effect="the agent goes on",
                reason=f"the model {TOLD[stop]}",
            )
        elif policy == "fail" or is_worn_out:
            again = f", after being asked {CONTINUED_MAX} times to go on" if is_worn_out else ""
            raise InvalidOutputError(
                f"the model {TOLD[stop]} in step {number}{again}",
                hint=HINTS.get(stop),
                raw=raw_text(self._begun + response.text),
            )

    def _ask_to_go_on(self, stop: str, response: ModelResponse, number: int) -> None:
        self._continued += 1
        said: list[Mapping[str, Any]] = []
        if response.text.strip():  # the API takes no answer without words
            self._begun += response.text
            said.append(response.as_message())
        self._grow([*said, {"role": "user", "content": GO_ON[stop]}], number)

    async def _use_tools(self, response: ModelResponse, number: int) -> None:
        """Call the tools of one response concurrently; grow by it and their results, in order."""
        self._begun, self._continued = "", 0
        uses = response.tool_calls
        said = response.text
        notes: dict[str, str] = {}
        calls = (self._use_tool(use, number, said=said, notes=notes) for use in uses)
        outputs = await self._ctx.gather(*calls)
        pairs = list(zip(uses, outputs, strict=True))
        self._count_misfits(pairs)
        results = [_result_block(use["id"], output, notes.get(use["id"])) for use, output in pairs]
        self._grow([response.as_message(), {"role": "user", "content": results}], number)

    def _use_tool(self, use: Block, number: int, *, said: str, notes: dict[str, str]) -> Any:
        name, key = use["name"], f"{number} {use['name']}"
        if name not in self._spec.tools:
            return self._ctx.step(key, _tell_of_no_tool, name, self._spec.tools)
        return self._ctx.tool(
            key,
            name,
            {INVALID_INPUT: use[INVALID_INPUT]} if INVALID_INPUT in use else use["input"],
            folder=self._folder,
            timeout=self._spec.limits.tool_timeouts.get(name),
            said=said,
            on_edited=lambda decision: notes.update({use["id"]: _edited(decision)}),
            on_error=partial(_tell, is_required=self._ctx.services.tools.is_required(name)),
        )

    def _count_misfits(self, pairs: list[tuple[Block, Any]]) -> None:
        """Fail after too many turns in a row in which the model gave a tool what does not fit."""
        wrong = [(use, output) for use, output in pairs if _is_misfit(output)]
        self._misfits = self._misfits + 1 if wrong else 0
        if self._misfits > MISFITS_MAX:
            use, output = wrong[0]
            raw = use.get(INVALID_INPUT, use["input"])
            raise InvalidOutputError(
                f"the model gave input that does not fit {self._misfits} times in a row, "
                f"the last time to tool {use['name']!r}: {show(raw)}",
                hint=output[ERROR],
                raw=raw_text(raw),
            )

    def _grow(self, turn: list[Mapping[str, Any]], number: int) -> None:
        self._messages += turn
        what = f"transcript after step {number}"
        self._given = input_of(self._given.digest.hex(), turn, what=what)


def _tell(error: Exception, *, is_required: bool) -> dict[str, str]:
    """What the model is told, and the record keeps, of a tool that failed.

    A required tool's failure is raised; input that does not fit is the model's to mend, and so is
    what people denied.
    """
    if isinstance(error, ToolInputError):
        return {ERROR: _told(error), CODE: error.code}
    if is_required and not isinstance(error, DeniedError | ApprovalExpiredError):
        raise error
    return {ERROR: _told(error)}


async def _tell_of_no_tool(name: str, offered: tuple[str, ...]) -> dict[str, str]:
    """The pod may have the tool; this agent was not given it."""
    known = f"you have {', '.join(offered)}" if offered else "you have none"
    return {ERROR: clean_text(f"there is no tool {name!r}; {known}")}


def _told(error: Exception) -> str:
    if isinstance(error, CortexError):
        text = f"{error.message}. {error.hint}" if error.hint else error.message
    else:
        text = f"{type(error).__name__}: {error}"
    return clean_text(text)


def _is_error(output: Any) -> bool:
    return isinstance(output, dict) and output.keys() - {CODE} == {ERROR}


def _is_misfit(output: Any) -> bool:
    return _is_error(output) and output.get(CODE) == ToolInputError.code


def _edited(decision: Decision) -> str:
    """What the model is told of arguments that a person changed."""
    arguments = canonical(decision.arguments)
    return f"{decision.by} changed the arguments before the call to {arguments}"


def _result_block(use_id: str, output: Any, note: str | None) -> Mapping[str, Any]:
    is_error = _is_error(output)
    content = output[ERROR] if is_error else output
    text = content if isinstance(content, str) else orjson.dumps(content).decode()
    if note is not None:
        text = f"{text}\n\n[{note}]"
    block = {"type": "tool_result", "tool_use_id": use_id, "content": text}
    return {**block, "is_error": True} if is_error else block


def _result(ctx: Context, text: str, number: int) -> AgentResult:
    return AgentResult(
        text=text,
        steps=number,
        input_tokens=ctx.usage.prompt_tokens,
        output_tokens=ctx.usage.output_tokens,
        cost_usd=str(ctx.cost_usd),
        workspace=str(ctx.workspace),
    )
