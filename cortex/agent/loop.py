"""The turn loop of an agent: model response, then its tool calls, until there are none.

A handler like any other, built on `Context`: each finished response is committed before its tools
run, each tool result as it arrives. A killed job continues where its record ends: all decisions of
the loop depend only on recorded steps. Responses are recorded as they came; `Transcript` turns them
into messages that the API accepts.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import orjson

from cortex.agent.caching import ttl_of
from cortex.agent.compaction import Compactor
from cortex.agent.limits import TOOL_RESULT_TOKENS
from cortex.agent.loops import LoopDetector, LoopWatch, MadeCall, identity_of
from cortex.agent.mcp.questions import InputRequiredError
from cortex.agent.models.repairs import tool_name
from cortex.agent.plain import raw_text
from cortex.agent.refused_files import RefusedFiles
from cortex.agent.spec import AgentSpec
from cortex.agent.tools.answers import QUESTION, answered
from cortex.agent.tools.offered import OfferedTools
from cortex.agent.tools.read_file import read_file
from cortex.agent.tools.tool import CutCallError, ToolInputError
from cortex.agent.transcript import ToolText, Transcript
from cortex.domain.canonical import canonical
from cortex.domain.classification import failure_of, name_and_text
from cortex.domain.errors import (
    ApprovalExpiredError,
    CortexError,
    DeniedError,
    InvalidOutputError,
    RejectedError,
    TimedOutError,
    UsageError,
)
from cortex.domain.failure import PROMPT_TOO_LONG
from cortex.domain.file import StoredFile
from cortex.domain.model import INVALID_INPUT, Block, ModelOptions, ModelRequest, ModelResponse
from cortex.domain.model_options import is_forced
from cortex.domain.redaction import clean_text, redact, secret_in, storable
from cortex.durable.codec import input_of
from cortex.durable.context import Context
from cortex.durable.gates import Decision
from cortex.durable.outputs import Output, UnfitAnswerError, repair_request, unfit
from cortex.durable.structuring import show

DONE: Final = frozenset({"end_turn", "stop_sequence"})
ERROR: Final = "tool_error"
"""Key of the recorded output of a tool that failed."""
CODE: Final = "code"
"""Beside it, the code of an error that the model caused."""
KEPT: Final = frozenset({"artefact", "bytes", "sha256", "beginning"})
"""Keys of the recorded output of a tool that is too large for the record: see `fitting`."""
MISFITS_MAX: Final = 2
"""After this many turns in a row whose tool input does not fit, the next one fails."""
CONTINUED_MAX: Final = 3
"""How many times in a row the model is asked to continue; the next stop fails."""
NAME_CHARS_MAX: Final = 300
"""A tool's name, as a model gives it, is part of the step's name up to this length."""
FULL: Final = frozenset({PROMPT_TOO_LONG, "request_too_large"})
"""Codes of a request that is too long for the model."""

CONTEXT: Final = "model_context_window_exceeded"
PAUSE: Final = "pause_turn"
"""The provider pauses its own tools' long work: the answer goes back as it is, and goes on."""
GO_ON: Final = {
    "max_tokens": "Your answer was cut off: it reached the limit of one response. Go on exactly "
    "where it stopped and repeat nothing.",
    CONTEXT: "Your answer was cut off: the context was full. The oldest tool results are shortened "
    "now. Go on exactly where your answer stopped and repeat nothing.",
    "empty": "Your answer was empty. Go on; if you are done, say what came of it.",
    "refusal": "A person has looked at this and wants you to go on with the task.",
    "tool_use": "Your answer ended for a tool call, but contains none. Make the call, or go on "
    "without it; if you are done, say what came of it.",
    PAUSE: "You have paused. Go on.",
}
STOPPED: Final = {
    "empty": "gave an empty answer",
    "tool_use": "stopped with 'tool_use', but called no tool,",
}
HINTS: Final = {
    "max_tokens": "raise max_tokens in the agent's specification",
    CONTEXT: "give it a smaller task, or lower tool_result_tokens in its limits",
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
    output: Any = None
    """The value of its last answer, if its specification has a schema for that."""


async def run_agent(
    ctx: Context,
    spec: AgentSpec,
    *,
    prompt: str,
    folder: Path | None,
    prefix: str = "",
    files: Sequence[Block] = (),
) -> AgentResult:
    """Run an agent on a prompt until it ends its turn.

    `files`: images and PDF files that the record keeps, before the prompt.
    `prefix`: before the names of its steps, if it is one of several in a job.

    Raises:
        UsageError: the prompt is empty.
        RejectedError: the agent used up its steps, or the model stopped for an unknown reason, or
            its context is full and there is nothing left to shorten.
        InvalidOutputError: the model stopped in a way that the agent's `on_stop` fails, or gave
            tools unfit input in three turns in a row, or the result of a required tool does not
            fit its type.
        TimedOutError: a step, which is one response and its tool calls, took too long.
    """
    if not prompt.strip():
        raise UsageError(f"the prompt of agent {spec.name!r} is empty", hint="say what it is to do")
    offered = await OfferedTools.of(ctx, spec, folder=folder, prefix=prefix)
    whole = [*files, {"type": "text", "text": prompt}] if files else prompt
    run = _Run(ctx, spec, offered, prompt=whole, folder=folder, prefix=prefix)
    limit_s = (await ctx.limits()).step_s
    for number in range(1, spec.max_steps + 1):
        text: str | None = None
        with ctx.clocked(limit_s) as step:
            text = await run.turn(number)
        if step.cancelled_caught:
            message = f"step {number} of agent {spec.name!r} took longer than {limit_s:g} seconds"
            raise TimedOutError(message, scope="step", limit_s=limit_s)
        if text is not None:
            return _result(ctx, text, number, output=run.output)
    raise RejectedError(
        f"agent {spec.name!r} used all its {spec.max_steps} steps without an end",
        hint="raise max_steps in its specification, or give it a smaller task",
    )


class _Run:
    """One conversation that grows turn by turn."""

    def __init__(
        self,
        ctx: Context,
        spec: AgentSpec,
        offered: OfferedTools,
        *,
        prompt: str | Sequence[Block],
        folder: Path | None,
        prefix: str,
    ) -> None:
        self._ctx = ctx
        self._spec = spec
        self._folder = folder
        self._prefix = prefix
        self._offered = offered
        self._cache = ttl_of(spec, ctx.services.tools, has_waited=ctx.has_asked_people)
        self._transcript = Transcript(
            prompt,
            result_tokens=spec.limits.tool_result_tokens or TOOL_RESULT_TOKENS,
            can_read=read_file.name in spec.tools,
        )
        self._compactor = Compactor(ctx, spec, self._transcript, prefix)
        self._refused = RefusedFiles(ctx, self._transcript, prefix)
        self._loops = LoopWatch(ctx, spec.name, LoopDetector(spec.loops))
        # Each request is the previous one and what has come since, and so is its input, at constant
        # cost. Only the names of the tools are part of it (in the specification): a better
        # docstring does not make another job. The input contains responses as recorded, without
        # their repairs.
        prompted = {"agent": spec.to_json(), "messages": list(self._transcript.messages)}
        self._given = input_of(prompted, what="the agent's prompt")
        self._begun = ""
        """Text of an answer that is being continued."""
        self._continued = self._misfits = 0
        self._is_full = False
        """The last answer has filled the context."""
        self._output = None if spec.output is None else Output.of_schema(spec.output)
        self._is_corrected = False
        """The model was asked to correct its last answer."""
        self.output: Any = None

    async def turn(self, number: int) -> str | None:
        """Take one turn; return the agent's last text if it was the last one."""
        response = await self._ask(number)
        stop = self._stop(response)
        if stop is not None:
            await self._judge_stop(stop, response, number)
        if response.tool_calls:
            await self._use_tools(response, number)
        elif stop is not None:
            self._ask_to_go_on(stop, response, number)
        elif response.stop_reason in DONE:
            return self._ended(response, number)
        else:
            raise RejectedError(f"the model stopped with {response.stop_reason!r} in step {number}")
        self._is_full = stop == CONTEXT
        return None

    def _ended(self, response: ModelResponse, number: int) -> str | None:
        """Return the text of the agent's last answer; None if it has to correct that first."""
        text = self._begun + response.text
        if self._output is None:
            return text
        try:
            # An answer that is held to the schema begins anew when it is asked to go on.
            self.output = self._output.read_one_of(text, response.text)
        except UnfitAnswerError as error:
            if self._is_corrected:
                raise unfit(f"agent {self._spec.name!r}, step {number}", error, text) from error
            self._is_corrected = True
            self._begun, request = "", repair_request(error)
            self._transcript.add_answer(response, number)
            self._transcript.add_text(request)
            self._grow([_recorded(response), {"role": "user", "content": request}], number)
            return None
        return text

    # --- the request, and a context that is full

    async def _ask(self, number: int) -> ModelResponse:
        """Ask the model; while the request is too long for it, shorten the oldest tool results.

        A replay finds on record how often that was done, and makes only the request after it.
        """
        await self._make_room(number)
        without = await self._refused.left_out(number)
        times, refusal, is_full = 0, None, self._is_full
        while True:
            while is_full or self._ctx.was_recorded(self._shortening(number, times + 1)):
                times += 1
                await self._shorten(number, times, refusal)
                is_full = False
            name = f"{self._prefix}{number} model{', shortened' if times else ''}{without}"
            request = self._request(number)
            try:
                response = await self._ctx.ask(_again(name, times), request, given=self._given)
            except CortexError as error:
                was = without
                if not without:
                    without = await self._refused.left_out(number, error)  # noqa: ASYNC120 -- a cancellation wins
                if not (is_full := failure_of(error).code in FULL) and without == was:
                    raise
                refusal = error
            else:
                self._compactor.learn(number, request, response)
                return response

    def _request(self, number: int) -> ModelRequest:
        return ModelRequest(
            model=self._spec.model,
            fallback=self._spec.fallback,
            batch=self._spec.batch,
            messages=self._transcript.messages,
            system=self._spec.system,
            tools=self._offered.described,
            max_tokens=self._spec.max_tokens,
            options=self._options(number),
            cache=self._cache,
            output=None if self._output is None else self._output.format,
        )

    async def _make_room(self, number: int) -> None:
        """Shorten or sum up what is old if the request would be too long."""
        room = await self._compactor.make_room(number, self._request(number), self._given)
        if room.shortened is not None:
            await self._shorten_to(room.shortened)
        self._is_full |= room.has_failed

    def _options(self, number: int) -> ModelOptions:
        """A call is only forced in the first answer: else the agent would never end its turn."""
        options = self._spec.options
        if options.tool_choice is None or not is_forced(options):
            return options
        choice = self._offered.as_shown(options.tool_choice) if number == 1 else None
        return attrs.evolve(options, tool_choice=choice)

    async def _shorten(self, number: int, times: int, refusal: CortexError | None) -> None:
        """Shorten the oldest tool results: one recorded step.

        After an answer that filled the context (no `refusal`) there may be nothing to shorten: the
        next one may be shorter. A request that was refused would be refused again.
        """

        async def choose() -> int:
            count = self._transcript.count_to_shorten()
            if count is None and refusal is not None:
                raise self._nothing_left(number, refusal) from refusal
            return self._transcript.shortened if count is None else count

        before = {"shortened": self._transcript.shortened}
        count = await self._ctx.group(self._shortening(number, times), choose, given=before)
        await self._shorten_to(count)

    async def _shorten_to(self, count: int) -> None:
        """Shorten the oldest results; the whole of each is kept in a file."""
        for each in self._transcript.to_shorten(count):
            await self._keep(each)
        self._transcript.shorten(count)

    def _nothing_left(self, number: int, refusal: CortexError) -> RejectedError:
        return RejectedError(
            f"the context of model {self._spec.model!r} is full in step {number}, and no tool "
            f"result is left to shorten: {HINTS[CONTEXT]} ({refusal.message})"
        )

    def _shortening(self, number: int, times: int) -> str:
        return _again(f"{self._prefix}{number} shorten", times)

    # --- answers that cannot stand by themselves

    def _stop(self, response: ModelResponse) -> str | None:
        """Return why the response cannot stand by itself; None if it can."""
        if response.stop_reason in ("max_tokens", CONTEXT, "refusal"):
            return response.stop_reason
        if response.tool_calls:
            return None
        if response.stop_reason in ("tool_use", PAUSE):
            return response.stop_reason
        is_end = response.stop_reason in DONE
        return "empty" if is_end and not (self._begun + response.text).strip() else None

    async def _judge_stop(self, stop: str, response: ModelResponse, number: int) -> None:
        """Fail, or ask a person whether to go on, as the agent's specification says."""
        is_stopped = stop != PAUSE and not response.tool_calls  # a pause is part of long work
        is_worn_out = is_stopped and self._continued >= CONTINUED_MAX
        policy = self._spec.on_stop.policy(stop)
        stopped = STOPPED.get(stop, f"stopped with {stop!r}")
        if policy == "ask":
            await self._ctx.approve_or_end(
                f"{self._prefix}{number} {stop}",
                detail={"model": self._spec.model, "answer": self._begun + response.text},
                effect="the agent goes on",
                reason=f"the model {stopped.rstrip(',')}",
            )
        elif policy == "fail" or is_worn_out:
            again = f", after being asked {CONTINUED_MAX} times to go on" if is_worn_out else ""
            hint = f": {HINTS[stop]}" if stop in HINTS else ""
            raise InvalidOutputError(
                f"the model {stopped} in step {number}{again}{hint}",
                raw=raw_text(self._begun + response.text),
            )

    def _ask_to_go_on(self, stop: str, response: ModelResponse, number: int) -> None:
        self._continued += stop != PAUSE
        request = {"role": "user", "content": GO_ON[stop]}
        answer = [_recorded(response)] if response.text.strip() else []
        if stop != "tool_use":  # its text announced a call and is no part of the result
            self._begun += response.text if response.text.strip() else ""
        repaired = self._transcript.add_answer(response, number, may_pause=stop == PAUSE)
        if not repaired.is_paused:
            self._transcript.add_text(GO_ON[stop])
        self._grow([*answer, request], number)

    # --- tool calls

    async def _use_tools(self, response: ModelResponse, number: int) -> None:
        """Call the tools of one response concurrently; append it and their results, in order."""
        self._begun, self._continued = "", 0
        uses = response.tool_calls
        use_ids = self._transcript.add_answer(response, number).call_ids
        notes: dict[int, str] = {}
        calls = [self._use_tool(response, place, number, notes=notes) for place in range(len(uses))]
        outputs = await self._ctx.gather(*calls)
        self._count_misfits(response, list(zip(uses, outputs, strict=True)))
        texts = [
            _tool_text(f"{self._prefix}{number} {tool_name(use)}", output, notes.get(place))
            for place, (use, output) in enumerate(zip(uses, outputs, strict=True))
        ]
        for each in texts:
            if len(each.text.encode()) > self._transcript.limit_bytes:
                await self._keep(each)
        self._transcript.add_results(use_ids, texts)
        results = [
            _result_block(use.get("id"), text) for use, text in zip(uses, texts, strict=True)
        ]
        self._grow([_recorded(response), {"role": "user", "content": results}], number)
        await self._watch(uses, texts, number)

    async def _watch(self, uses: Sequence[Block], texts: Sequence[ToolText], number: int) -> None:
        """Look for loops in the turns so far; the model, or people, are asked about them."""
        calls = [
            MadeCall(
                tool=tool_name(use),
                arguments=_arguments(use),
                result=text.text,
                identity=identity_of(tool_name(use), text),
            )
            for use, text in zip(uses, texts, strict=True)
        ]
        step, is_past = f"{self._prefix}{number} loop", self._compactor.was_asked(number + 1)
        note = await self._loops.watch(step, calls, is_past=is_past)
        if note is not None:
            self._transcript.add_note(note.text, is_pinned=note.is_pinned)

    def _use_tool(
        self, response: ModelResponse, place: int, number: int, *, notes: dict[int, str]
    ) -> Any:
        use = response.tool_calls[place]
        name = self._offered.called(str(use.get("name") or ""))
        key = f"{self._prefix}{number} {_keyed(name)}"
        is_cut = response.is_cut(use)
        if name not in self._offered.names:
            # Equal inputs: an earlier release may have recorded the other error.
            report = _tell_of_cut if is_cut else _tell_of_no_tool
            return self._ctx.step(key, report, name[:NAME_CHARS_MAX], self._offered.shown)
        defined = self._offered.defined(name)
        call = partial(
            self._ctx.tool,
            tool=name,
            arguments=_arguments(use),
            folder=self._folder,
            timeout=self._spec.limits.tool_timeouts.get(name),
            said=response.text,
            on_edited=lambda decision: notes.update({place: _edited(decision)}),
            on_error=partial(_error_output, is_required=self._ctx.services.tools.is_required(name)),
            refused=CutCallError(name, raw=str(use.get(INVALID_INPUT, ""))) if is_cut else None,
            defined=defined,
        )
        if defined is None:
            return call(key)
        again = lambda step, answers: call(step, answers=answers)  # noqa: E731
        first, step = call(key), f"{key} call {place + 1}"
        return answered(self._ctx, step, first, again, failed=lambda text: {ERROR: text})

    async def _keep(self, text: ToolText) -> None:
        """Keep a whole result in a file of the workspace; without room for it there is none."""
        if text.file is None:
            keep, workspace = self._ctx.services.tools.keep, self._ctx.workspace
            text.file = await keep(workspace, text.name, text.text)

    def _count_misfits(self, response: ModelResponse, pairs: list[tuple[Block, Any]]) -> None:
        """Fail after too many turns in a row in which the model gave a tool unfit input."""
        wrong = [(use, output) for use, output in pairs if _is_misfit(output)]
        self._misfits = self._misfits + 1 if wrong else 0
        if self._misfits <= MISFITS_MAX:
            return
        use, output = next((each for each in wrong if response.is_cut(each[0])), wrong[0])
        raw = use.get(INVALID_INPUT, use.get("input"))
        if response.is_cut(use):
            hint = HINTS.get(response.stop_reason)
            raise InvalidOutputError(
                f"the model's answer ended before the arguments of a tool call {self._misfits} "
                f"times in a row, the last time with {response.stop_reason!r} in a call of tool "
                f"{use.get('name')!r}" + (f": {hint}" if hint else ""),
                raw=raw_text(raw),
            )
        raise InvalidOutputError(
            f"the model gave input that does not fit {self._misfits} times in a row, "
            f"the last time to tool {use.get('name')!r}: {show(raw)}",
            hint=output[ERROR],
            raw=raw_text(raw),
        )

    def _grow(self, turn: list[Mapping[str, Any]], number: int) -> None:
        """Add a recorded turn to the input of the next request."""
        what = f"transcript after step {number}"
        self._given = input_of({"before": self._given.digest.hex(), "turn": turn}, what=what)


def _again(name: str, times: int) -> str:
    return f"{name} {times}" if times > 1 else name


def _arguments(use: Block) -> dict[str, Any]:
    """Return the arguments of a call, or the text in place of them."""
    given = use.get("input") or {}
    if INVALID_INPUT in use:
        return {INVALID_INPUT: use[INVALID_INPUT]}
    return given if isinstance(given, dict) else {INVALID_INPUT: raw_text(given)}


def _recorded(response: ModelResponse) -> Mapping[str, Any]:
    """Return the assistant's message as it came, without what the client added."""
    content = [{k: v for k, v in each.items() if k != INVALID_INPUT} for each in response.content]
    return {"role": "assistant", "content": content}


def _keyed(name: str) -> str:
    """Return a tool's name, as the model gave it, for the name of a step."""
    is_usable = len(name) <= NAME_CHARS_MAX and storable(name) == name and secret_in(name) is None
    return name if is_usable else tool_name({"name": redact(name)})


def _error_output(error: Exception, *, is_required: bool) -> dict[str, Any]:
    """Return a tool's failure for the model and the record.

    A required tool's failure is raised, except for a denial. The model is expected to correct unfit
    input.
    """
    if isinstance(error, ToolInputError):
        return {ERROR: _error_text(error), CODE: error.code}
    if isinstance(error, InputRequiredError):
        return {ERROR: _error_text(error), CODE: error.code, QUESTION: error.question.to_json()}
    if is_required and not isinstance(error, DeniedError | ApprovalExpiredError):
        raise error
    return {ERROR: _error_text(error)}


async def _tell_of_no_tool(name: str, offered: tuple[str, ...]) -> dict[str, str]:
    """The pod may have the tool, but the agent was not given it.

    The name is part of recorded steps.
    """
    available = f"you have {', '.join(offered)}" if offered else "you have none"
    return {ERROR: clean_text(f"there is no tool {name!r}; {available}")}


async def _tell_of_cut(name: str, offered: tuple[str, ...]) -> dict[str, str]:  # noqa: ARG001
    """The name may be cut as well: as with a tool of the agent, the model may call again."""
    return {ERROR: _error_text(CutCallError(name, raw="")), CODE: CutCallError.code}


def _error_text(error: Exception) -> str:
    if isinstance(error, CortexError):
        return clean_text(f"{error.message}. {error.hint}" if error.hint else error.message)
    return name_and_text(error)


def _is_error(output: Any) -> bool:
    return isinstance(output, dict) and output.keys() - {CODE} == {ERROR}


def _is_misfit(output: Any) -> bool:
    return _is_error(output) and output.get(CODE) == ToolInputError.code


def _edited(decision: Decision) -> str:
    """Return the note for the model about arguments that a person changed."""
    arguments = canonical(decision.arguments)
    return f"{decision.by} changed the arguments before the call to {arguments}"


def _result_block(use_id: Any, text: ToolText) -> Mapping[str, Any]:
    """Return the whole result as a block of the next request's input."""
    whole: Any = text.text if text.note is None else f"{text.text}\n\n[{text.note}]"
    if text.files:
        whole = [{"type": "text", "text": whole}, *text.files]
    block = {"type": "tool_result", "tool_use_id": use_id, "content": whole}
    return {**block, "is_error": True} if text.is_error else block


def _tool_text(name: str, output: Any, note: str | None) -> ToolText:
    is_error = _is_error(output)
    content = output[ERROR] if is_error else output
    if isinstance(content, dict) and content.keys() >= KEPT:
        return ToolText(
            name=name,
            text=str(content["beginning"]),
            is_error=is_error,
            note=note,
            file=str(content["artefact"]),
            whole_bytes=int(content["bytes"]),
            whole_sha256=str(content["sha256"]),
        )
    files, text = _shown(content)
    return ToolText(name=name, text=text, is_error=is_error, note=note, files=files)


def _shown(content: Any) -> tuple[tuple[Block, ...], str]:
    """Return the files of a result, and its text, which names them."""
    parts = content if isinstance(content, list) else [content]
    stored = [StoredFile.of(each) for each in parts]
    files = tuple(each.block() for each in stored if each is not None)
    if not files:
        return (), content if isinstance(content, str) else orjson.dumps(content).decode()
    texts = [
        str(file) if file is not None else part if isinstance(part, str) else raw_text(part)
        for file, part in zip(stored, parts, strict=True)
    ]
    return files, "\n".join(texts)


def _result(ctx: Context, text: str, number: int, *, output: Any) -> AgentResult:
    return AgentResult(
        text=text,
        steps=number,
        input_tokens=ctx.usage.prompt_tokens,
        output_tokens=ctx.usage.output_tokens,
        cost_usd=str(ctx.cost_usd),
        workspace=str(ctx.workspace),
        output=output,
    )
