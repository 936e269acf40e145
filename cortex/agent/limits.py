"""What an agent may override: limits of its job, its calls and its tools, its budget, its stops."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import attrs

from cortex.domain.budget import TOKENS_MAX, USD_MAX, USD_MIN
from cortex.domain.errors import UsageError
from cortex.domain.job_limits import LIMITS_MAX, MODEL, Concurrency, JobLimit, Rate, Unit
from cortex.domain.policy import JOB_HARD, LIMITS, POLICIES
from cortex.domain.timeouts import TIMEOUTS
from cortex.durable.structuring import UnfitError, show

JOB_TIMEOUT_MAX_S: Final = int(POLICIES["run_agent"].timeout_s * JOB_HARD)
WORKER_ATTEMPTS_MAX: Final = 25
RETRIES_MAX: Final = 100
TOOL_RESULT_TOKENS: Final = 25_000
"""Tokens of one tool result that a model gets at most, if its agent sets no other limit."""
TOOL_RESULT_TOKENS_LIMITS: Final = (500, 1_000_000)
LOOPS: Final = (2, 1_000)
COMPACTION_AT: Final = (0.1, 0.95)

Validator = Callable[[Any, "attrs.Attribute[Any]", Any], None]


def within(low: float, high: float) -> Validator:
    """Return a validator for a range; None passes."""

    def check(_: object, attribute: "attrs.Attribute[Any]", value: float | None) -> None:
        if value is not None and not low <= value <= high:
            reason = f"must be from {low:.15g} to {high:.15g}, got {show(value)}"
            raise UnfitError(reason, path=(attribute.name,))

    return check


def named(pattern: re.Pattern[str]) -> Validator:
    """Return a validator for a name, which all of the pattern matches."""

    def check(_: object, attribute: "attrs.Attribute[Any]", value: str) -> None:
        if not pattern.fullmatch(value):
            reason = f"must match {pattern.pattern}, got {show(value)}"
            raise UnfitError(reason, path=(attribute.name,))

    return check


def _of(scope: str) -> Validator:
    """Return a validator for the hard limit of a scope; None passes."""

    def check(_: object, attribute: "attrs.Attribute[Any]", value: float | None) -> None:
        if value is not None and (refusal := TIMEOUTS[scope].refusal(value)):
            raise UnfitError(refusal, path=(attribute.name,))

    return check


def _tool_timeouts(
    _: object, attribute: "attrs.Attribute[Any]", value: Mapping[str, float]
) -> None:
    for tool, timeout_s in value.items():
        if refusal := TIMEOUTS["tool_call"].refusal(timeout_s):
            raise UnfitError(refusal, path=(attribute.name, tool))


@attrs.frozen(kw_only=True)
class AgentBackoff:
    """Pause before an application retry, as far as the agent overrides it."""

    base_seconds: float | None = attrs.field(default=None, validator=within(*LIMITS["base_s"]))
    cap_seconds: float | None = attrs.field(default=None, validator=within(*LIMITS["cap_s"]))
    multiplier: float | None = attrs.field(default=None, validator=within(*LIMITS["multiplier"]))

    def __attrs_post_init__(self) -> None:
        base, cap = self.base_seconds, self.cap_seconds
        if base is not None and cap is not None and base > cap:
            raise UnfitError(f"base_seconds {show(base)} is above cap_seconds {show(cap)}")


@attrs.frozen(kw_only=True)
class AgentJobLimit:
    """How many of the agent's jobs run at once, begin in a span of time, or use how many tokens."""

    concurrency: int | None = None
    rate: int | None = None
    per: Literal["second", "minute", "hour", "day"] | None = None
    unit: Literal["jobs", "tokens"] | None = None
    key: Literal["tenant", "queue", "folder", "model"] | None = None
    """Attribute whose values are counted apart; the jobs of an agent differ in no other."""

    def __attrs_post_init__(self) -> None:
        if (self.concurrency is None) == (self.rate is None):
            raise UnfitError("must have either concurrency or rate")
        if self.concurrency is not None and (self.per is not None or self.unit is not None):
            raise UnfitError("has concurrency, which is not per time and has no unit")
        if self.rate is not None and self.per is None:
            raise UnfitError("has no per: second, minute, hour or day")
        if self.key == MODEL and self.unit != "tokens":
            raise UnfitError("has the key model, which only a rate of unit tokens can have")
        try:
            self.declared  # noqa: B018 -- checks the figures
        except UsageError as error:
            raise UnfitError(f"is refused: {error.message}: {error.hint}") from error

    @property
    def declared(self) -> JobLimit:
        """The limit as one of a job type."""
        if self.rate is None:
            return Concurrency(self.concurrency or 0, key=self.key)
        unit = self.unit or Unit.JOBS.value
        return Rate(self.rate, per=self.per or "", key=self.key, unit=unit)


def _job_limits(
    _: object, attribute: "attrs.Attribute[Any]", value: tuple[AgentJobLimit, ...]
) -> None:
    if len(value) > LIMITS_MAX:
        raise UnfitError(f"has {len(value)} limits, at most {LIMITS_MAX}", path=(attribute.name,))
    kinds = [each.declared.kind for each in value]
    for index, kind in enumerate(kinds):
        if kind in kinds[:index]:
            same = f"{attribute.name}[{kinds.index(kind)}]"
            raise UnfitError(
                f"counts the same as {same}: keep one of them", path=(attribute.name, index)
            )


@attrs.frozen(kw_only=True)
class AgentLimits:
    """The agent's overrides of its job type's limits; None keeps the job type's own."""

    timeout_seconds: int | None = attrs.field(default=None, validator=within(1, JOB_TIMEOUT_MAX_S))
    worker_attempts: int | None = attrs.field(
        default=None, validator=within(1, WORKER_ATTEMPTS_MAX)
    )
    max_retries: int | None = attrs.field(default=None, validator=within(0, RETRIES_MAX))
    backoff: AgentBackoff | None = None
    step_timeout_seconds: float | None = attrs.field(default=None, validator=_of("step"))
    """One model response and the tool calls that it requests."""
    call_timeout_seconds: float | None = attrs.field(default=None, validator=_of("llm_call"))
    """One model call; so are the next two."""
    idle_timeout_seconds: float | None = attrs.field(default=None, validator=_of("llm_idle"))
    connect_timeout_seconds: float | None = attrs.field(default=None, validator=_of("llm_connect"))
    tool_timeouts: dict[str, float] = attrs.field(factory=dict, validator=_tool_timeouts)
    """Seconds by the tool's name; each replaces the tool's own figure."""
    tool_result_tokens: int | None = attrs.field(
        default=None, validator=within(*TOOL_RESULT_TOKENS_LIMITS)
    )
    """Tokens of one tool result at most, by an estimate; None: `TOOL_RESULT_TOKENS`."""
    jobs: tuple[AgentJobLimit, ...] = attrs.field(default=(), validator=_job_limits)
    """Over all pods; those of the newest version hold for all jobs of the agent."""


@attrs.frozen(kw_only=True)
class AgentBudget:
    """What the agent may spend, per run or for all its jobs in a day (UTC)."""

    usd: float | None = attrs.field(default=None, validator=within(USD_MIN, USD_MAX))
    tokens: int | None = attrs.field(default=None, validator=within(1, TOKENS_MAX))
    per: Literal["run", "day"] = "run"

    def __attrs_post_init__(self) -> None:
        if self.usd is None and self.tokens is None:
            raise UnfitError("has neither usd nor tokens")


def _worded(value: object) -> object:
    return "off" if value is False else value


@attrs.frozen(kw_only=True)
class CacheTerms:
    """How long the provider is to keep the agent's prompt; None: as `chosen_ttl` chooses."""

    ttl: Literal["5m", "1h", "off", False] | None = attrs.field(default=None, converter=_worded)
    """False is how YAML reads `off`."""


def _never_or_share(_: object, attribute: "attrs.Attribute[Any]", value: float) -> None:
    low, high = COMPACTION_AT
    if value and not low <= value <= high:
        reason = f"must be 0, or from {low:g} to {high:g}, got {show(value)}"
        raise UnfitError(reason, path=(attribute.name,))


@attrs.frozen(kw_only=True)
class CompactionTerms:
    """When and how the agent's context is made smaller."""

    at: float = attrs.field(default=0.8, validator=_never_or_share)
    """Share of the window from which on; 0: only what the model refuses is shortened."""
    keep_turns: int = attrs.field(default=4, validator=within(1, 1_000))
    """The last turns that stay as they are."""


def _never_or_often(_: object, attribute: "attrs.Attribute[Any]", value: int) -> None:
    if value and not LOOPS[0] <= value <= LOOPS[1]:
        reason = f"must be 0, or from {LOOPS[0]} to {LOOPS[1]}, got {show(value)}"
        raise UnfitError(reason, path=(attribute.name,))


@attrs.frozen(kw_only=True)
class LoopTerms:
    """When the agent counts as going round in circles. 0: never for this reason."""

    same_call: int = attrs.field(default=4, validator=_never_or_often)
    """The same tool call with the same result so many times."""
    no_news: int = attrs.field(default=10, validator=_never_or_often)
    """Turns in a row whose tool calls and results were all there before."""


@attrs.frozen(kw_only=True)
class OnStop:
    """The reaction when the model stops before it is done: go on, ask people, or fail the job.

    To go on, the model is asked to continue, at most three times in a row. A refusal is never
    continued: it would only be repeated.
    """

    max_tokens: Literal["continue", "ask", "fail"] = "continue"
    """The model stopped with `max_tokens`."""
    refusal: Literal["ask", "fail"] = "fail"
    empty: Literal["continue", "ask", "fail"] = "continue"
    """The model ended its turn with an empty answer."""
    context_window: Literal["continue", "ask", "fail"] = "continue"
    """The model stopped because its context is full; it goes on with shortened tool results."""

    def policy(self, stop: str) -> str:
        """Return the reaction to a stop; a stop without a policy is continued."""
        name = "context_window" if stop == "model_context_window_exceeded" else stop
        return str(getattr(self, name, "continue"))
