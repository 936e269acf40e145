"""What the steps of a flow may use: the arguments of each kind, and its time limits."""

from collections.abc import Callable, Mapping
from math import ceil
from typing import Any, Final, Literal, TypeAlias, get_type_hints

import attrs

from cortex.domain.approvals.defaults import EXPIRES_DEFAULT_S, RISK_DEFAULT
from cortex.domain.errors import CortexError
from cortex.domain.messages.message import check_key
from cortex.domain.messages.topic import check_topic
from cortex.domain.model import ModelOptions
from cortex.domain.model_options import NO_OPTIONS, fallback_refusal, refusal
from cortex.domain.output_schema import OutputSchemaError, strict
from cortex.domain.timeouts import TIMEOUTS, Limit
from cortex.durable.children import ChildOptions
from cortex.durable.gates import check_expiry, check_people, risk_of
from cortex.durable.generation import check_max_tokens, conversation
from cortex.durable.http_calls import HttpCall
from cortex.durable.structuring import MisfitError, UnfitError, structure, suggestion
from cortex.flows.functions import ExpressionError
from cortex.flows.template import Path, has_expression, url_refusal

HTTP_REQUEST: Final = "http_request"
"""The tool whose URL is filled in as that of a step that uses http."""

Uses: TypeAlias = Literal["tool", "agent", "llm", "http", "job", "approve", "publish"]


@attrs.frozen(kw_only=True)
class ToolStep:
    """A call of a tool of the pod."""

    tool: str
    arguments: dict[str, Any] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class AgentStep:
    """An agent that works on a prompt to the end of its turn."""

    agent: str
    prompt: str
    folder: str | None = None
    """A folder on the pod's machine where its tools read; by default the job's workspace."""
    files: tuple[str, ...] = ()
    """Images and PDF files of that folder that it sees beside its prompt, by their paths."""


@attrs.frozen(kw_only=True)
class LlmStep:
    """One model response, to a prompt or to messages."""

    model: str
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    system: str = ""
    max_tokens: int = 4096
    options: ModelOptions = NO_OPTIONS
    output: dict[str, Any] | None = None
    """The JSON schema of what it answers: the step's result has it as `output`."""
    fallback: list[str] = attrs.field(factory=list)
    """Models that are asked in this order while the first one cannot answer."""

    def __attrs_post_init__(self) -> None:
        conversation(self.prompt, self.messages, what="the model")
        if (wrong := fallback_refusal(self.fallback, model=self.model)) is not None:
            raise UnfitError(wrong[1], path=("fallback", *wrong[0]))
        for model in (self.model, *self.fallback):
            wrong = refusal(self.options, model=model, max_tokens=self.max_tokens, tools=())
            if wrong is not None:
                of_fallback = "" if model == self.model else f" (fallback {model})"
                raise UnfitError(f"{wrong[1]}{of_fallback}", path=("options", *wrong[0]))
        if self.output is not None:
            try:
                strict(self.output)
            except OutputSchemaError as error:
                raise UnfitError(error.reason, path=("output", *error.path)) from error


@attrs.frozen(kw_only=True)
class JobStep:
    """A child of the flow's job, of any type; with `for_each` a child for each item."""

    job: str
    arguments: dict[str, Any] = attrs.field(factory=dict)
    agent: str | None = None
    queue: str | None = None
    priority: int | None = None
    max_retries: int | None = None
    tags: tuple[str, ...] = ()
    budget: dict[str, Any] | None = None

    def options(self, name: str, timeout_s: float | None) -> ChildOptions:
        """Return how the child runs, under the key of its step."""
        share: Any = self.budget
        return ChildOptions(
            name=name,
            agent=self.agent,
            queue=self.queue,
            priority=self.priority,
            max_retries=self.max_retries,
            timeout_s=None if timeout_s is None else ceil(timeout_s),
            tags=self.tags,
            budget=share,
        )

    def __attrs_post_init__(self) -> None:
        self.options("step", None).terms(self.job, traceparent=None)


@attrs.frozen(kw_only=True)
class ApproveStep:
    """A question to people; without their consent the step fails."""

    detail: dict[str, Any] = attrs.field(factory=dict)
    risk: str = RISK_DEFAULT
    people: int | None = None
    expires_s: float = EXPIRES_DEFAULT_S
    reason: str | None = None

    def __attrs_post_init__(self) -> None:
        check_people(self.people, risk_of(self.risk))
        check_expiry(self.expires_s)


@attrs.frozen(kw_only=True)
class PublishStep:
    """A message, written with the record of its step."""

    topic: str
    payload: dict[str, Any] = attrs.field(factory=dict)
    key: str | None = None


@attrs.frozen(kw_only=True)
class Kind:
    """One kind of step."""

    shape: type
    limit: Limit | None
    """None: a step of this kind has no limit of its own."""
    without_limit: str = ""
    """Why, for people."""
    hidden: frozenset[str] = frozenset()
    """Arguments that flows have another word for."""
    written_out: frozenset[str] = frozenset()
    """Arguments without expressions: what a step may do is decided where the flow is applied, not
    by values that may come from the job's submitter."""
    urls: Callable[[Mapping[str, Any]], tuple[Path, ...]] = lambda _: ()
    """Returns the places of URLs in the arguments: what is filled in there is encoded."""
    checks: Mapping[str, Callable[[Any], object]] = attrs.field(factory=dict)
    """By argument: raises `CortexError` for a value that would be refused when the step runs."""
    check_together: Callable[[Mapping[str, Any]], object] = lambda _: None
    """The same for arguments that depend on each other; it gets all as they are written."""

    def refusal(self, given: Mapping[str, Any]) -> tuple[tuple[str | int, ...], str] | None:
        """Return what is wrong with arguments before they are filled in, with its place."""
        fields = {
            field.name: field for field in attrs.fields(self.shape) if field.name not in self.hidden
        }
        for name in given:
            if name not in fields:
                return (name,), f"is unknown; {suggestion(name, tuple(fields))}"
            if name in self.written_out and has_expression(given[name]):
                return (
                    name,
                ), f"must be written out, without an expression, got {given[name]!r:.200}"
        for name, field in fields.items():
            if name not in given and field.default is attrs.NOTHING:
                return (), f"lacks {name}"
        return self._url_refusal(given) or self._value_refusal(given)

    def _url_refusal(self, given: Mapping[str, Any]) -> tuple[tuple[str | int, ...], str] | None:
        for place in self.urls(given):
            url: Any = given
            for depth, key in enumerate(place):
                if depth and not isinstance(url, Mapping) and has_expression(url):
                    return place[:depth], (
                        f"must be written out as an object with {key}, got {url!r:.200}"
                    )
                url = url.get(key) if isinstance(url, Mapping) else None
            if not isinstance(url, str) and has_expression(url):
                return place, f"must be a text, got {url!r:.200}"
            try:
                refusal = url_refusal(url) if isinstance(url, str) else None
            except ExpressionError as error:
                return place, f"has {error.message}"
            if refusal is not None:
                return place, refusal
        return None

    def _value_refusal(self, given: Mapping[str, Any]) -> tuple[tuple[str | int, ...], str] | None:
        """Check the values that hold no expression; the others are known when the step runs."""
        hints = get_type_hints(self.shape)
        place: tuple[str, ...] = ()
        try:
            for name, value in given.items():
                if not has_expression(value):
                    structure({name: value}, _object_of(hints[name]))
                    if name in self.checks:
                        place = (name,)
                        self.checks[name](value)
            place = ()
            self.check_together(given)
            if not has_expression(given):
                structure(dict(given), self.shape)
        except MisfitError as misfit:
            return misfit.problems[0].path, misfit.problems[0].reason
        except CortexError as error:
            hint = f"; {error.hint}" if error.hint else ""
            return place, f"is refused: {error.message}{hint}"
        return None

    def timeout_refusal(self, timeout_ms: int) -> str | None:
        """Return what is wrong with a step's limit."""
        if self.limit is None:
            return self.without_limit
        return self.limit.refusal_ms(timeout_ms)


def _check_question(given: Mapping[str, Any]) -> None:
    risk, people = given.get("risk", RISK_DEFAULT), given.get("people")
    if not has_expression([risk, people]):
        check_people(people, risk_of(risk))


def _check_prompt(given: Mapping[str, Any]) -> None:
    conversation(given.get("prompt"), given.get("messages"), what="the model")


def _check_child(given: Mapping[str, Any]) -> None:
    structure({**given, "arguments": {}}, JobStep)


def _object_of(hint: Any) -> Any:
    return dict.__class_getitem__((str, hint))


def _urls_of_tool(given: Mapping[str, Any]) -> tuple[Path, ...]:
    return (("arguments", "url"),) if given.get("tool") == HTTP_REQUEST else ()


KINDS: Final[Mapping[str, Kind]] = {
    "tool": Kind(
        shape=ToolStep,
        limit=TIMEOUTS["tool_call"],
        written_out=frozenset({"tool"}),
        urls=_urls_of_tool,
    ),
    "agent": Kind(
        shape=AgentStep, limit=TIMEOUTS["flow"], written_out=frozenset({"agent", "folder"})
    ),
    "llm": Kind(
        shape=LlmStep,
        limit=TIMEOUTS["flow_llm_call"],
        written_out=frozenset({"output"}),
        checks={"max_tokens": check_max_tokens},
        check_together=_check_prompt,
    ),
    "http": Kind(
        shape=HttpCall,
        limit=TIMEOUTS["http_call"],
        hidden=frozenset({"timeout_s"}),
        urls=lambda _: (("url",),),
    ),
    "job": Kind(
        shape=JobStep,
        limit=TIMEOUTS["flow"],
        written_out=frozenset(each.name for each in attrs.fields(JobStep)) - {"arguments"},
        check_together=_check_child,
    ),
    "approve": Kind(
        shape=ApproveStep,
        limit=None,
        without_limit="is not for steps that wait for people; their with.expires_s is",
        written_out=frozenset({"risk", "people"}),
        checks={"risk": risk_of, "expires_s": check_expiry},
        check_together=_check_question,
    ),
    "publish": Kind(
        shape=PublishStep,
        limit=None,
        without_limit="is not for steps that publish: they call nothing",
        checks={"topic": check_topic, "key": check_key},
    ),
}
