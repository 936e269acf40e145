"""Rules of a job type about its submits: singleton, debounce, throttle.

Invariants: the database applies them (`cortex.submit_jobs`), so that every way in obeys them; this
module only declares and checks them.
"""

import math
import re
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

import attrs

from cortex.domain.errors import InvalidValueError, UsageError
from cortex.domain.phrases import parse_span, span

KEY_MAX: Final = 200
PERIOD_MAX_S: Final = 30 * 86_400.0
PUSHES: Final = 10
"""How many periods a debounce may move a job at most, unless it says otherwise."""
_ARGUMENT: Final = re.compile(r"\{([^{}]*)\}")
_QUEUE_OF_KEY: Final = re.compile(r"singleton:[0-9a-f]{32}")


class OnConflict(StrEnum):
    """What a submit does while a job with the same key has not ended."""

    RETURN = "return"
    """It names that job; nothing is submitted."""
    REPLACE = "replace"
    """It cancels that job if it waits; a running one ends its attempt, and is not tried again."""
    QUEUE = "queue"
    """It runs after that job."""
    REFUSE = "refuse"
    """It raises `ConflictError`."""


def _on_conflict(value: object) -> OnConflict:
    try:
        return OnConflict(value)  # type: ignore[arg-type]  # any value: the error names it
    except ValueError:
        known = ", ".join(OnConflict)
        raise UsageError(
            f"when {value!r:.80} is none of {known}", hint='such as when="replace"'
        ) from None


def _key(value: object) -> str:
    if not isinstance(value, str) or len(value) > KEY_MAX or not value.isprintable():
        raise UsageError(
            f"key {value!r:.80} is not printable text of at most {KEY_MAX} characters",
            hint="such as '{customer}': names of arguments in braces",
        )
    if _ARGUMENT.sub("", value).strip("{}") != _ARGUMENT.sub("", value):
        raise UsageError(
            f"key {value!r:.80} has a brace without its pair",
            hint="such as '{customer}': names of arguments in braces",
        )
    return value


def _period(value: object) -> float:
    """Return the seconds of a period, given as a number or as text such as 30s."""
    seconds = math.nan
    if isinstance(value, str):
        try:
            seconds = parse_span(value)
        except UsageError as error:
            raise UsageError(error.message, hint="such as 30s, 5m or 2h") from error
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    if not 1 <= seconds <= PERIOD_MAX_S:
        raise UsageError(
            f"{value!r:.80} is not a time from 1s to {span(PERIOD_MAX_S)}",
            hint="such as 30s, 5m or 2h",
        )
    return seconds


@attrs.frozen
class Singleton:
    """One unfinished job for each `key`, a template of arguments such as `"{customer}"`."""

    key: str = attrs.field(converter=_key)
    when: OnConflict = attrs.field(default=OnConflict.RETURN, converter=_on_conflict, kw_only=True)
    """What a submit does while there is one."""

    @property
    def fields(self) -> dict[str, Any]:
        return {"kind": "singleton", "key": self.key, "on_conflict": self.when.value}


@attrs.frozen
class Debounce:
    """A burst of submits becomes one job, with the arguments of the last one.

    The job starts when no submit has come for `period`, in seconds or such as `"30s"`; `longest`
    after the first one it starts anyway, by default after ten periods.
    """

    period: float = attrs.field(converter=_period)
    key: str = attrs.field(default="", converter=_key, kw_only=True)
    longest: float = attrs.field(
        default=None, converter=attrs.converters.optional(_period), kw_only=True
    )

    def __attrs_post_init__(self) -> None:
        if self.longest is None:
            longest = min(PUSHES * self.period, PERIOD_MAX_S)
            object.__setattr__(self, "longest", longest)
        elif self.longest < self.period:
            raise UsageError(
                f"longest {self.longest:g} s is less than the period {self.period:g} s"
            )

    @property
    def fields(self) -> dict[str, Any]:
        return {
            "kind": "debounce",
            "key": self.key,
            "period_s": self.period,
            "longest_s": self.longest,
        }


@attrs.frozen
class Throttle:
    """At most one job for each `key` and period: a submit within it names the job that there is."""

    period: float = attrs.field(converter=_period)
    key: str = attrs.field(default="", converter=_key, kw_only=True)

    @property
    def fields(self) -> dict[str, Any]:
        return {"kind": "throttle", "key": self.key, "period_s": self.period}


SubmitRule = Singleton | Debounce | Throttle


def submit_rule(
    job_type: str,
    *,
    parameters: Collection[str],
    singleton: Singleton | str | None,
    debounce: Debounce | str | float | None,
    throttle: Throttle | str | float | None,
) -> SubmitRule | None:
    """Return the one rule that a job type declares. Raises `UsageError` that names the type."""
    given = {"singleton": singleton, "debounce": debounce, "throttle": throttle}
    chosen = {name: value for name, value in given.items() if value is not None}
    if not chosen:
        return None
    if len(chosen) > 1:
        raise UsageError(
            f"job type {job_type!r}: {' and '.join(chosen)} exclude each other", hint="choose one"
        )
    (name,) = chosen
    try:
        rule = _made(name, chosen[name])
    except UsageError as error:
        raise UsageError(
            f"job type {job_type!r}: {name}: {error.message}", hint=error.hint
        ) from error
    if unknown := [each for each in arguments_of(rule) if each not in parameters]:
        raise UsageError(
            f"job type {job_type!r}: {name} {rule.key!r} names {unknown[0]!r}, no argument of it",
            hint=f"its arguments: {', '.join(sorted(parameters)) or 'none'}",
        )
    return rule


def _made(name: str, value: Any) -> SubmitRule:
    kinds: dict[str, type[SubmitRule]]
    kinds = {"singleton": Singleton, "debounce": Debounce, "throttle": Throttle}
    return value if isinstance(value, kinds[name]) else kinds[name](value)


def arguments_of(rule: SubmitRule) -> list[str]:
    """Return the arguments that the key names, in the order in which it names them."""
    return list(dict.fromkeys(_ARGUMENT.findall(rule.key)))


def check_arguments(
    job_type: str, rule: SubmitRule | None, payload: Mapping[str, Any], *, is_child: bool = False
) -> None:
    """Raise `InvalidValueError` for a job that a submit would refuse because of its type's rule."""
    if is_child:
        refuse_child(job_type, rule)
    if rule is None:
        return
    kind = rule.fields["kind"]
    if missing := [name for name in arguments_of(rule) if name not in payload]:
        raise InvalidValueError(
            f'job type "{job_type}" is a {kind} by {rule.key}: its payload has no "{missing[0]}"',
            hint="give the argument: the key is made of it",
        )


def is_queue_of_key(queue: str) -> bool:
    """Return whether the database named a queue, for the jobs of one key of a singleton."""
    return _QUEUE_OF_KEY.fullmatch(queue) is not None


def refuse_child(job_type: str, rule: SubmitRule | None) -> None:
    """Raise `InvalidValueError` for a type with a rule: a child is its parent's own."""
    if rule is not None:
        raise InvalidValueError(
            f'job type "{job_type}" has a {rule.fields["kind"]}: its jobs cannot be children',
            hint="submit it with a client, or drop the rule",
        )


@attrs.frozen
class Submitted:
    """What a batch of submits led to."""

    new: frozenset[UUID]
    existing: Mapping[UUID, UUID] = attrs.field(factory=dict)
    """Submits that a rule of their type merged into another job, which this names."""

    def job_of(self, submitted: UUID) -> UUID:
        """Return the job that a submit stands for."""
        return self.existing.get(submitted, submitted)
