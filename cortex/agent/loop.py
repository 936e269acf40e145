"""The turn loop of an agent: model response, then its tool calls, until there are none.

A handler like any other, built on `Context`: each finished response is committed before its tools
run, each tool result as it arrives. A killed job continues where its record ends: all decisions of
the loop depend only on recorded steps.
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
"""Beside it, the code of an error that the model caused."""
MISFITS_MAX: Final = 2
"""After this many turns in a row whose tool input does not fit, the next one fails."""
CONTINUED_MAX: Final = 3
"""How many times in a row the model is asked to continue; the next stop fails."""

GO_ON: Final = {
    "max_tokens": "Your answer was cut off: it reached the limit of one response. Go on exactly "
    "where it stopped and repeat nothing.",
    "empty": "Your answer was empty. Go on; if you are done, say what came of it.",
    "refusal": "A person has looked at this and wants you to go on with the task.",
}
STOPPED: Final = {
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
    """The result of `run_agent`."""

    text: str
    steps: int
    """Model responses."""
    input_tokens: int
    output_tokens: int
    cost_usd: str
    workspace: str
    """Folder with the files that the agent wrote."""


async def run_agent(
    ctx: Context, spec: AgentSpec, *, prompt: str, folder: Path | None, prefix: str = ""
) -> AgentResult:
    """Run an agent on a prompt until it ends its turn.

    `prefix`: before the names of its steps, if it is one of several in a job.

    Raises:
        UsageError: the pod does not have one of the agent's tools.
        RejectedError: the agent used up its steps, or the model stopped for an unknown reason.
        InvalidOutputError: the model stopped in a way that the agent's `on_stop` fails, or gave
            tools unfit input in three turns in a row, or the result of a required tool does not
            fit its type.
        TimedOutError: a step, which is one response and its tool calls, took too long.
    """
    run = _Run(ctx, spec, prompt=prompt, folder=folder, prefix=prefix)
    limit_s = (await ctx.limits()).step_s
    for number in range(1, spec.max_steps + 1):
        text: str | None = None
        with ctx.clocked(limit_s) as step:
            text = await run.turn(number)
        if step.cancelled_caught:
            message = f"step {number} of agent {spec.name!r} took longer than {limit_s:g} seconds"
            raise TimedOutError(message, scope="step", limit_s=limit_s)
        if text is not None:
            return _result(ctx, text, number)
    raise RejectedError(
        f"agent {spec.name!r} used all its {spec.max_steps} steps without an end",
        hint="raise max_steps in its specification, or give it a smaller task",
    )


class _Run:
    """One conversation that grows turn by turn."""

    def __init__(
        self, ctx: Context, spec: AgentSpec, *, prompt: str, folder: Path | None, prefix: str
    ) -> None:
        self._ctx = ctx
        self._spec = spec
        self._folder = folder
        self._prefix = prefix
        self._offered = ctx.services.tools.offer(spec.tools)
        self._messages: list[Mapping[str, Any]] = [{"role": "user", "content": prompt}]
        # Each request is the previous one and what has come since, and so is its input, at constant
        # cost. Only the names of the tools are part of it (in the specification): a better
        # docstring does not make another job.
        prompted = {"agent": spec.to_json(), "messages": self._messages}
        self._given = input_of(prompted, what="the agent's prompt")
        self._begun = ""
        """Text of an answer that is being continued."""
        self._continued = 0
        self._misfits = 0

    async def turn(self, number: int) -> str | None:
        """Take one turn; return the agent's last text if it was the last one."""
        request = ModelRequest(
            model=self._spec.model,
            messages=tuple(self._messages),
            system=self._spec.system,
            tools=self._offered,
            max_tokens=self._spec.max_tokens,
        )
        response = await self._ctx.ask(f"{self._prefix}{number} model", request, given=self._given)
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
        """Return why the response cannot stand by itself; None if it can."""
        if response.stop_reason in ("max_tokens", "refusal"):
            return response.stop_reason
        is_end = response.stop_reason in DONE and not response.tool_calls
        return "empty" if is_end and not (self._begun + response.text).strip() else None

    async def _judge_stop(self, stop: str, response: ModelResponse, number: int) -> None:
        """Fail, or ask a person whether to go on, as the agent's specification says."""
        is_worn_out = self._continued >= CONTINUED_MAX and not response.tool_calls
        policy = getattr(self._spec.on_stop, stop)
        if policy == "ask":
            await self._ctx.approve(
                f"{self._prefix}{number} {stop}",
                detail={"model": self._spec.model, "answer": self._begun + response.text},
                effect="the agent goes on",
                reason=f"the model {STOPPED[stop]}",
            )
        elif policy == "fail" or is_worn_out:
            again = f", after being asked {CONTINUED_MAX} times to go on" if is_worn_out else ""
            raise InvalidOutputError(
                f"the model {STOPPED[stop]} in step {number}{again}",
                hint=HINTS.get(stop),
                raw=raw_text(self._begun + response.text),
            )

    def _ask_to_go_on(self, stop: str, response: ModelResponse, number: int) -> None:
        self._continued += 1
        answer: list[Mapping[str, Any]] = []
        if response.text.strip():  # the API refuses an answer without text
            self._begun += response.text
            answer.append(response.as_message())
        self._grow([*answer, {"role": "user", "content": GO_ON[stop]}], number)

    async def _use_tools(self, response: ModelResponse, number: int) -> None:
        """Call the tools of one response concurrently; append it and their results, in order."""
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
        name, key = use["name"], f"{self._prefix}{number} {use['name']}"
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
            on_error=partial(_error_output, is_required=self._ctx.services.tools.is_required(name)),
        )

    def _count_misfits(self, pairs: list[tuple[Block, Any]]) -> None:
        """Fail after too many turns in a row in which the model gave a tool unfit input."""
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
        self._given = input_of({"before": self._given.digest.hex(), "turn": turn}, what=what)


def _error_output(error: Exception, *, is_required: bool) -> dict[str, str]:
    """Return a tool's failure for the model and the record.

    A required tool's failure is raised, except for a denial. The model is expected to correct unfit
    input.
    """
    if isinstance(error, ToolInputError):
        return {ERROR: _error_text(error), CODE: error.code}
    if is_required and not isinstance(error, DeniedError | ApprovalExpiredError):
        raise error
    return {ERROR: _error_text(error)}


async def _tell_of_no_tool(name: str, offered: tuple[str, ...]) -> dict[str, str]:
    """The pod may have the tool, but the agent was not given it.

    The name is part of recorded steps.
    """
    available = f"you have {', '.join(offered)}" if offered else "you have none"
    return {ERROR: clean_text(f"there is no tool {name!r}; {available}")}


def _error_text(error: Exception) -> str:
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
    """Return the note for the model about arguments that a person changed."""
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
