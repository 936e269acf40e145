"""Flows as a person writes them in YAML and as the database stores them.

name: invoices
inputs:
  day: {required: true}
  limit: {default: 10}
steps:
- name: fetch
  uses: http
  with: {url: "https://erp.example/invoices?day=${{ inputs.day }}"}
  retry: {max: 3, base_ms: 2000}
- name: check
  uses: llm
  for_each: ${{ steps.fetch.result.json.items }}
  with: {model: claude-sonnet-4-5, prompt: "Is this plausible? ${{ item }}"}
- name: agree
  uses: approve
  when: ${{ length(steps.fetch.result.json.items) > inputs.limit }}
  with: {detail: {count: "${{ length(steps.fetch.result.json.items) }}"}}
result: ${{ steps.check.result }}
---
name: the-next-flow-in-the-same-file

A step begins after the one above it, or after those that `needs` names.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import attrs

from cortex.agent.limits import named, within
from cortex.domain.errors import InvalidValueError, MisfitKind, UnfitCodeError
from cortex.domain.timeouts import TIMEOUTS
from cortex.durable.structuring import MisfitError, Problem, UnfitError, show, structure, suggestion
from cortex.flows.expression import Path, paths
from cortex.flows.step_kinds import KINDS, Uses
from cortex.flows.template import TemplateError, expressions, is_expression

if TYPE_CHECKING:
    from cortex.agent.yaml_source import Document

NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}")
STEP_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
"""As a path of an expression names it."""
STEPS_MAX: Final = 200
INPUTS_MAX: Final = 64
CONCURRENCY: Final = 10
CONCURRENCY_MAX: Final = 100
TRIES_MAX: Final = 20
PAUSE_MAX_MS: Final = 86_400_000
ROOTS: Final = frozenset({"inputs", "steps", "flow", "job"})
ITEM_ROOTS: Final = frozenset({"item", "index"})
"""Known inside a step with `for_each`."""


@attrs.frozen(kw_only=True)
class FlowInput:
    """One input of a flow."""

    required: bool = False
    default: Any = None
    description: str = ""

    def __attrs_post_init__(self) -> None:
        if self.required and self.default is not None:
            raise UnfitError("is required and has a default: choose one")


@attrs.frozen(kw_only=True)
class StepRetry:
    """How often a step is tried again after a transient failure. The pause doubles each time."""

    max: int = attrs.field(validator=within(1, TRIES_MAX))
    """Tries after the first one."""
    base_ms: int = attrs.field(default=1_000, validator=within(1, PAUSE_MAX_MS))
    cap_ms: int = attrs.field(default=300_000, validator=within(1, PAUSE_MAX_MS))


@attrs.frozen(kw_only=True)
class FlowStep:
    """One step of a flow."""

    name: str = attrs.field(validator=named(STEP_NAME))
    uses: Uses
    with_: dict[str, Any] = attrs.field(factory=dict)
    """What stands under `with`."""
    needs: list[str] | None = None
    """Steps that must have ended before; None: the step above."""
    when: Any = True
    """A step whose condition does not hold is skipped, and has no result."""
    for_each: Any = None
    """A list: the step runs once for each item, and its result is the list of results."""
    concurrency: int = attrs.field(default=CONCURRENCY, validator=within(1, CONCURRENCY_MAX))
    """Items at a time."""
    retry: StepRetry | None = None
    timeout_ms: int | None = None
    on_error: Literal["fail", "continue"] = "fail"
    """`continue`: a step that failed has no result, its error stands beside, and the flow goes
    on."""

    def __attrs_post_init__(self) -> None:
        kind = KINDS[self.uses]
        if (wrong := kind.refusal(self.with_)) is not None:
            path, reason = wrong
            raise UnfitError(reason, path=("with_", *path))
        if self.timeout_ms is not None and (refusal := kind.timeout_refusal(self.timeout_ms)):
            raise UnfitError(refusal, path=("timeout_ms",))
        if self.for_each is None and self.concurrency != CONCURRENCY:
            raise UnfitError("is for steps with for_each", path=("concurrency",))
        if not (
            self.for_each is None or isinstance(self.for_each, list) or is_expression(self.for_each)
        ):
            reason = f"must be a list or one expression, got {show(self.for_each)}"
            raise UnfitError(reason, path=("for_each",))
        if not (isinstance(self.when, bool) or is_expression(self.when)):
            reason = f"must be true, false or one expression, got {show(self.when)}"
            raise UnfitError(reason, path=("when",))


@attrs.frozen(kw_only=True)
class FlowLimits:
    """A flow's overrides of its job type's limits."""

    timeout_ms: int | None = None
    """The whole flow, from its first start."""

    def __attrs_post_init__(self) -> None:
        if self.timeout_ms is not None:
            refusal = TIMEOUTS["flow"].refusal_ms(self.timeout_ms)
            if refusal:
                raise UnfitError(refusal, path=("timeout_ms",))


def _limited(scope: str) -> Any:
    """Return a field for a limit in milliseconds, checked against the hard one of its scope."""

    def check(_: object, field: "attrs.Attribute[int | None]", value: int | None) -> None:
        if value is not None and (refusal := TIMEOUTS[scope].refusal_ms(value)):
            raise UnfitError(refusal, path=(field.name,))

    return attrs.field(default=None, validator=check)


@attrs.frozen(kw_only=True)
class FlowTimeouts:
    """Limits of all steps that have no `timeout_ms` of their own, in milliseconds."""

    step: int | None = _limited("step")
    llm_call: int | None = _limited("flow_llm_call")
    """The limit of steps that use `llm`, within `step`."""


@attrs.frozen(kw_only=True)
class FlowSpec:
    """One flow: steps that form a graph without circles."""

    name: str = attrs.field(validator=named(NAME))
    steps: tuple[FlowStep, ...]
    description: str = ""
    inputs: dict[str, FlowInput] = attrs.field(factory=dict)
    limits: FlowLimits = FlowLimits()
    timeouts: FlowTimeouts = FlowTimeouts()
    result: Any = None
    """What the job returns; None: the result of the last step."""

    def __attrs_post_init__(self) -> None:
        if not 1 <= len(self.steps) <= STEPS_MAX:
            raise UnfitError(f"has {len(self.steps)} steps, 1 to {STEPS_MAX}", path=("steps",))
        if len(self.inputs) > INPUTS_MAX:
            raise UnfitError(
                f"has {len(self.inputs)} inputs, at most {INPUTS_MAX}", path=("inputs",)
            )
        for name in self.inputs:
            if not STEP_NAME.fullmatch(name):
                raise UnfitError(f"must match {STEP_NAME.pattern}", path=("inputs", name))
        names = [step.name for step in self.steps]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise UnfitError(
                    f"{show(name)} is taken by a step above", path=("steps", index, "name")
                )
        self._check_timeouts()
        self._check_graph()
        self._check_expressions()

    def inputs_of(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return all inputs. Raises `InvalidValueError` for one that is missing or unknown."""
        missing = [
            name for name, each in self.inputs.items() if each.required and name not in given
        ]
        problems = [f"lacks input {', '.join(map(repr, missing))}"] if missing else []
        if unknown := [name for name in given if name not in self.inputs]:
            problems.append(f"has no input {', '.join(f'{name!r:.100}' for name in unknown)}")
        if problems:
            known = ", ".join(self.inputs) or "none"
            raise InvalidValueError(
                f"flow {self.name!r} {'; '.join(problems)}", hint=f"its inputs: {known}"
            )
        return {name: given.get(name, each.default) for name, each in self.inputs.items()}

    def needs(self, index: int) -> tuple[str, ...]:
        """Return the steps that must have ended before this one begins."""
        given = self.steps[index].needs
        if given is not None:
            return tuple(given)
        return (self.steps[index - 1].name,) if index else ()

    def timeout_s(self, step: FlowStep) -> float | None:
        """Return the limit of a step's call; None: the default of its kind.

        A limit of all steps is no higher than the hard one of the step's kind.
        """
        hard = KINDS[step.uses].limit
        if step.timeout_ms is not None or hard is None:
            return None if step.timeout_ms is None else step.timeout_ms / 1000
        given = [self.timeouts.step, self.timeouts.llm_call if step.uses == "llm" else None]
        seconds = [each / 1000 for each in given if each is not None]
        return min(*seconds, hard.hard_s) if seconds else None

    def before(self) -> dict[str, frozenset[str]]:
        """Return, by step, all that has ended when it begins."""
        needs = {step.name: self.needs(index) for index, step in enumerate(self.steps)}
        closed: dict[str, frozenset[str]] = {}
        left = dict(needs)
        while left:
            ready = [name for name, each in left.items() if all(need in closed for need in each)]
            if not ready:
                raise _Circle(next(iter(left)), tuple(left))
            for name in ready:
                del left[name]
                direct = frozenset(needs[name])
                closed[name] = direct.union(*(closed[need] for need in direct))
        return closed

    def to_json(self) -> dict[str, Any]:
        """Return the stored form: what the file says, without the defaults."""
        return {
            **_plain(self, skipped=("steps", "inputs", "limits", "timeouts")),
            **({"inputs": _inputs(self.inputs)} if self.inputs else {}),
            **({"limits": _plain(self.limits)} if self.limits != FlowLimits() else {}),
            **({"timeouts": _plain(self.timeouts)} if self.timeouts != FlowTimeouts() else {}),
            "steps": [_plain_step(step) for step in self.steps],
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Restore what `to_json` returned; raises `UnfitCodeError` for anything else."""
        try:
            return structure(_renamed(dict(stored)), cls)
        except MisfitError as misfit:
            message = f"stored flow {show(stored.get('name'))}: {misfit}"
            raise UnfitCodeError(message, kind=MisfitKind.FLOW) from misfit

    def _check_timeouts(self) -> None:
        """Refuse limits of steps above the limit of the flow."""
        flow_ms = self.limits.timeout_ms or round(TIMEOUTS["flow"].default_s * 1000)
        given: list[tuple[tuple[str | int, ...], int | None]] = [
            (("timeouts", "step"), self.timeouts.step),
            (("timeouts", "llm_call"), self.timeouts.llm_call),
        ]
        given += [
            (("steps", index, "timeout_ms"), step.timeout_ms)
            for index, step in enumerate(self.steps)
        ]
        for path, value in given:
            if value is not None and value > flow_ms:
                raises = "" if self.limits.timeout_ms else " raises it"
                limit = f"at most {flow_ms}, the limit of the flow in milliseconds"
                limit += f" (limits.timeout_ms{raises})"
                raise UnfitError(f"must be {limit}, got {value}", path=path)

    def _check_graph(self) -> None:
        names = [step.name for step in self.steps]
        for index, step in enumerate(self.steps):
            for position, need in enumerate(step.needs or ()):
                path = ("steps", index, "needs", position)
                if need not in names:
                    reason = f"is no step of the flow; {suggestion(need, tuple(names))}"
                    raise UnfitError(f"{show(need)} {reason}", path=path)
        try:
            self.before()
        except _Circle as circle:
            index = names.index(circle.name)
            members = ", ".join(circle.members)
            raise UnfitError(
                f"makes a circle: none of {members} can begin", path=("steps", index, "needs")
            ) from None

    def _check_expressions(self) -> None:
        before = self.before()
        for index, step in enumerate(self.steps):
            for field in ("when", "for_each", "with_"):
                roots = ROOTS if field == "for_each" or step.for_each is None else _EACH_ROOTS
                self._check_value(
                    getattr(step, field), ("steps", index, field), before[step.name], roots
                )
        self._check_value(self.result, ("result",), frozenset(before), ROOTS)

    def _check_value(
        self,
        value: Any,
        place: tuple[str | int, ...],
        ended: frozenset[str],
        roots: frozenset[str],
    ) -> None:
        try:
            for where, node in expressions(value):
                for path in paths(node):
                    if reason := self._refusal(path, ended, roots):
                        raise UnfitError(reason, path=(*place, *where))
        except TemplateError as error:
            raise UnfitError(f"has {error.message}", path=(*place, *error.path)) from error

    def _refusal(self, path: Path, ended: frozenset[str], roots: frozenset[str]) -> str | None:
        if path.root not in roots:
            return (
                f"has the unknown name {path.root!r}; {suggestion(path.root, tuple(sorted(roots)))}"
            )
        name = path.first
        if path.root == "inputs" and name is not None and name not in self.inputs:
            return f"has the unknown input {name!r}; {suggestion(name, tuple(self.inputs))}"
        if path.root == "steps" and name is not None and name not in ended:
            names = [step.name for step in self.steps]
            if name in names:
                return f"names step {name!r}, which may not have ended by then: add it to needs"
            return f"names the unknown step {name!r}; {suggestion(name, tuple(names))}"
        return None


_EACH_ROOTS: Final = ROOTS | ITEM_ROOTS


class _Circle(Exception):
    def __init__(self, name: str, members: tuple[str, ...]) -> None:
        super().__init__(name)
        self.name = name
        self.members = members


# --- to and from YAML and JSON: `with` is a word of Python


def _renamed(value: Any) -> Any:
    """Return a document whose steps say `with_` for `with`."""
    if not isinstance(value, dict) or not isinstance(value.get("steps"), list):
        return value
    return {**value, "steps": [_renamed_step(each) for each in value["steps"]]}


def _renamed_step(step: Any) -> Any:
    if not isinstance(step, dict):
        return step
    # Written as `with_` it would be taken for the field's own name: it stays an unknown key.
    return {_WORDS.get(key, key): each for key, each in step.items()}


_WORDS: Final = {"with": "with_", "with_": "with_ "}
_BACK: Final = {field: word for word, field in _WORDS.items()}


def _plain(value: Any, *, skipped: tuple[str, ...] = ()) -> dict[str, Any]:
    return attrs.asdict(
        value,
        recurse=False,
        filter=lambda field, each: field.name not in skipped and each != _default(field),
    )


def _default(field: "attrs.Attribute[Any]") -> Any:
    default = field.default
    return default.factory() if isinstance(default, attrs.Factory) else default  # type: ignore[arg-type,union-attr]


def _inputs(inputs: Mapping[str, FlowInput]) -> dict[str, Any]:
    return {name: _plain(each) for name, each in inputs.items()}


def _plain_step(step: FlowStep) -> dict[str, Any]:
    stored = _plain(step)
    if step.retry is not None:
        stored["retry"] = _plain(step.retry)
    return {_BACK.get(name, name): each for name, each in stored.items()}


JobCheck = Callable[[str, Iterable[str]], tuple[str, str] | None]
"""Takes a job type and names of arguments; returns the field that is wrong, and why."""


def parse_flows(text: str, source: str, *, check_job: JobCheck | None = None) -> list[FlowSpec]:
    """Return the flows of a YAML file, at least one; `source` is the file's name in errors.

    `check_job`: checks steps that use jobs, where their types are known. Raises `UsageError` with
    file, line, field and value for the first problem.
    """
    from cortex.agent.yaml_source import parse_definitions  # noqa: PLC0415 -- a pod needs no YAML

    def parse(document: "Document") -> FlowSpec:
        spec = _parse_flow(document)
        if check_job is not None and (found := list(_unfit(spec, check_job))):
            raise document.refused(found, noun="flow")
        return spec

    return parse_definitions(text, source, parse=parse, noun="flow", fields="name and steps")


def _unfit(spec: FlowSpec, check: JobCheck) -> Iterator[Problem]:
    for index, step in enumerate(spec.steps):
        if step.uses != "job":
            continue
        given = step.with_.get("arguments", {})
        if isinstance(given, Mapping) and (found := check(step.with_["job"], given)) is not None:
            field, reason = found
            place = (field,) if field in step.with_ else ()
            yield Problem(("steps", index, "with", *place), reason)


def _parse_flow(document: "Document") -> FlowSpec:
    try:
        return structure(_renamed(document.value), FlowSpec)
    except MisfitError as misfit:
        problems = [
            Problem(tuple(_written(each.path)), each.reason.replace("with_", "with"))
            for each in misfit.problems
        ]
        raise document.refused(problems, noun="flow") from misfit


def _written(path: tuple[str | int, ...]) -> Iterator[str | int]:
    """Yield a path as the file has it."""
    for depth, part in enumerate(path):
        is_step_field = depth == 2 and path[0] == "steps"  # noqa: PLR2004 -- steps, 3, with
        yield _BACK.get(part, part) if is_step_field and isinstance(part, str) else part
