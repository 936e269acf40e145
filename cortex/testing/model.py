"""A model that answers as a test says."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import attrs
import orjson

from cortex.agent.models.client import DEFAULT_LIMITS, CallLimits
from cortex.agent.models.output_tool import NAME as OUTPUT_TOOL
from cortex.domain.control_flow import LeaseLost
from cortex.domain.errors import UsageError
from cortex.domain.file import StoredFile
from cortex.domain.model import Block, Capabilities, ModelRequest, ModelResponse
from cortex.domain.output_schema import VALUE
from cortex.domain.usage import Usage
from cortex.durable.structuring import converter
from cortex.testing.clock import RunClock

HOW: Final = (
    'write a text, {"tool": "NAME", "input": {…}}, {"output": VALUE}, an exception or a '
    "ModelResponse"
)
Answer = str | ModelResponse | Exception | dict[str, Any]


@attrs.define
class Model:
    """The answers that all jobs of a test get.

    An answer is a text, `{"tool": NAME, "input": {…}}` for a tool call, `{"output": VALUE}` for the
    output that is asked for, an exception to raise, or a `ModelResponse`.
    """

    requests: list[ModelRequest] = attrs.field(factory=list, init=False)
    """All calls so far."""
    capabilities: Capabilities = attrs.field(factory=Capabilities, init=False)
    """What the model can take; set it to test a job with a lesser one."""
    _script: list[Answer] = attrs.field(factory=list, init=False)
    _always: Answer | None = attrs.field(default=None, init=False)

    def says(self, text: Answer) -> None:
        """Answer every call so, after those of the script."""
        self._always = _checked(text)

    def script(self, answers: Iterable[Answer]) -> None:
        """Answer the next calls of a run in this order; each run begins with the first."""
        self._script = [_checked(each) for each in answers]

    def begin(self) -> "ScriptedModel":
        """Return the model of one run."""
        return ScriptedModel(self, [*self._script])

    def answer_after(self, script: list[Answer]) -> Answer | None:
        """Take the next answer; None: there is none."""
        return script.pop(0) if script else self._always


def _checked(answer: Answer) -> Answer:
    if isinstance(answer, dict) and answer.keys() - {"input"} not in ({"tool"}, {"output"}):
        raise UsageError(f"no answer of a model: {answer!r:.200}", hint=HOW)
    if not isinstance(answer, str | ModelResponse | Exception | dict):
        raise UsageError(f"no answer of a model: {answer!r:.200}", hint=HOW)
    return answer


@attrs.define
class KeptFiles:
    """The images and PDF files of one run."""

    kept: dict[str, bytes] = attrs.field(factory=dict, init=False)

    async def keep(self, lineage_id: UUID, file: StoredFile, content: bytes) -> None:  # noqa: ARG002
        self.kept[file.sha256] = content

    async def content(self, lineage_id: UUID, sha256: str) -> bytes | None:  # noqa: ARG002
        return self.kept.get(sha256)


@attrs.define
class ScriptedModel:
    """The model of one run. Concurrent calls are answered in the order of their steps."""

    model: Model
    left: list[Answer]
    answered: dict[str, Answer] = attrs.field(factory=dict, init=False)
    """By the step: the same call after a crash gets the same answer."""
    files: KeptFiles = attrs.field(factory=KeptFiles, init=False)
    _waiting: list[str] = attrs.field(factory=list, init=False)
    _taken: dict[str, Answer | None] = attrs.field(factory=dict, init=False)

    async def answer(
        self, key: str, *, requested: Callable[[], Sequence[str]], clock: RunClock
    ) -> Answer | None:
        """Return the answer for a step; None: the script has none left."""
        if key in self.answered:
            return self.answered[key]
        self._waiting.append(key)
        await clock.until_all_wait()
        if self._waiting:
            for each in sorted(self._waiting, key=requested().index):
                self._taken[each] = self.model.answer_after(self.left)
            self._waiting.clear()
        found = self._taken.pop(key)
        if found is not None and not isinstance(found, Exception):
            self.answered[key] = found
        return found


@attrs.frozen
class StepModel:
    """The client of one call: it knows its step, which a model client does not."""

    scripted: ScriptedModel
    key: str
    requested: Callable[[], Sequence[str]]
    """Returns the steps of the attempt so far."""
    clock: RunClock
    stuck: Callable[[str], None]
    """Ends the job, with a reason for people."""

    def provider_of(self, model: str) -> str:  # noqa: ARG002 -- a test's model answers for all
        return "test"

    def capabilities(self, model: str) -> Capabilities:  # noqa: ARG002
        return self.scripted.model.capabilities

    async def respond(
        self,
        request: ModelRequest,
        *,
        on_text: Callable[[str], None] | None = None,
        on_open: Callable[[], None] | None = None,
        on_usage: Callable[[Usage], None] | None = None,
        limits: CallLimits = DEFAULT_LIMITS,  # noqa: ARG002 -- it answers at once
    ) -> ModelResponse:
        self.scripted.model.requests.append(request)
        answer = await self.scripted.answer(self.key, requested=self.requested, clock=self.clock)
        if answer is None:
            self.stuck(
                f"waits for an answer of model {request.model!r} in step {self.key!r}, and the "
                "script has none left: call cortex.model.says(…) or cortex.model.script([…])"
            )
            raise LeaseLost("no answer")
        if isinstance(answer, Exception):
            raise answer
        response = _response(answer, request, self.key)
        if on_open is not None:
            on_open()
        if on_text is not None and response.text:
            on_text(response.text)
        if on_usage is not None:
            on_usage(response.usage)
        return response


def _response(
    answer: str | ModelResponse | dict[str, Any], request: ModelRequest, key: str
) -> ModelResponse:
    if isinstance(answer, ModelResponse):
        return answer
    block: Block
    if isinstance(answer, dict) and "output" in answer:
        answer = _written(answer["output"], request)
    if isinstance(answer, str):
        block, reason = {"type": "text", "text": answer}, "end_turn"
    else:
        block = {
            "type": "tool_use",
            "id": f"call {key}",
            "name": answer["tool"],
            "input": answer.get("input", {}),
        }
        reason = "tool_use"
    return ModelResponse(
        model=request.model,
        content=(block,),
        stop_reason=reason,
        usage=Usage(input_tokens=10, output_tokens=5),
        message_id=f"message {key}",
    )


def _written(value: Any, request: ModelRequest) -> str | dict[str, Any]:
    """Return an output as the model would give it: as text, or by the tool that takes it.

    One that is no object stands in one.
    """
    plain = converter.unstructure(value)
    tool = next((each for each in request.tools if each["name"].startswith(OUTPUT_TOOL)), None)
    schema: Mapping[str, Any] = {} if tool is None else tool["input_schema"]
    if request.output is not None:
        schema = request.output.schema
    if not isinstance(plain, dict) and [*schema.get("properties", ())] == [VALUE]:
        plain = {VALUE: plain}
    if request.output is None and tool is not None:
        return {"tool": tool["name"], "input": plain}
    return orjson.dumps(plain).decode()
