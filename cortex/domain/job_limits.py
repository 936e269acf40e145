"""Limits of a job type: how many of its jobs run at once, or begin in a span of time, by key."""

import re
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, TypeAlias

import attrs

from cortex.domain.canonical import find
from cortex.domain.errors import InvalidValueError, UsageError

LIMITS_MAX: Final = 10
KEY_CHARS_MAX: Final = 200
AMOUNT_MAX: Final = 10**12
RUNNING: Final = "running"
LIMIT: Final = "limit:"
"""Prefix of what a job waits for whose call has to wait for room in a limit of tokens."""
TENANT: Final = "tenant"
AGENT: Final = "agent"
QUEUE: Final = "queue"
MODEL: Final = "model"
"""Of a limit of tokens: the model that is called."""

_KEY: Final = re.compile(r"(?=.{1,100}\Z)[^\s.:]+(?:\.[^\s.:]+)*")


class Per(StrEnum):
    """A span of time that ends at any moment: not one of the calendar."""

    SECOND = "second"
    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"

    @property
    def seconds(self) -> int:
        """Its length."""
        return {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400}[self.value]


class Unit(StrEnum):
    """What a rate counts."""

    JOBS = "jobs"
    TOKENS = "tokens"


def _check_amount(limit: object, what: str) -> None:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= AMOUNT_MAX:
        raise UsageError(
            f"{what}: {limit!r:.80} is not a limit", hint="write a whole number, one or more"
        )


def _check_key(key: object, what: str) -> None:
    is_path = isinstance(key, str) and _KEY.fullmatch(key) and key.isprintable()
    if key is not None and not is_path:
        raise UsageError(
            f"{what}: key {key!r:.120} is not tenant, agent, queue or a field of the payload",
            hint='such as key="customer" or key="order.region"; leave it out to limit all jobs '
            "of the type together",
        )


@attrs.frozen
class Concurrency:
    """At most `limit` jobs of the type run at once for each value of `key`.

    A job counts from the moment it is let through until it ends or waits. `key` is `tenant`,
    `agent` or `queue` of the job, or a dotted path into its payload; without it all jobs of the
    type share the limit. Raises `UsageError` for others.
    """

    limit: int
    key: str | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        what = f"Concurrency({self.limit!r:.80})"
        _check_amount(self.limit, what)
        _check_key(self.key, what)

    @property
    def kind(self) -> str:
        """Name of the limit among those of its type; jobs wait for `limit:TYPE:KIND`."""
        return RUNNING if self.key is None else f"{RUNNING}:{self.key}"


@attrs.frozen
class Rate:
    """At most `limit` jobs begin, or tokens are used, in any span `per`, for each value of `key`.

    `unit` is `jobs` or `tokens`. A job is counted when it begins, not for its retries. Tokens are
    those of calls of models, and `key="model"` is then the model that is called. Raises
    `UsageError` for others.
    """

    limit: int
    per: str = attrs.field(kw_only=True)
    key: str | None = attrs.field(default=None, kw_only=True)
    unit: str = attrs.field(default=Unit.JOBS.value, kw_only=True)

    def __attrs_post_init__(self) -> None:
        what = f"Rate({self.limit!r:.80})"
        _check_amount(self.limit, what)
        for name, value, known in (("per", self.per, Per), ("unit", self.unit, Unit)):
            if value not in list(known):  # unhashable values, too
                raise UsageError(
                    f"{what}: {name} {value!r:.80} is not one of {', '.join(known)}",
                    hint=f"write {name}={next(iter(known)).value!r}",
                )
        _check_key(self.key, what)

    @property
    def kind(self) -> str:
        """Name of the limit among those of its type; jobs wait for `limit:TYPE:KIND`."""
        counted = f"{self.unit}/{self.per}"
        return counted if self.key is None else f"{counted}:{self.key}"


JobLimit: TypeAlias = Concurrency | Rate


def of_agent(name: str) -> str:
    """Return what the limits of an agent are declared for, in the place of a job type."""
    return f"{AGENT}:{name}"


def declaration(limit: JobLimit) -> dict[str, Any]:
    """Return a limit as pods declare it."""
    if isinstance(limit, Concurrency):
        return {"unit": RUNNING, "per": None, "key": limit.key, "amount": limit.limit}
    return {"unit": limit.unit, "per": limit.per, "key": limit.key, "amount": limit.limit}


def limits_of(
    job_type: str, given: Iterable[object], *, parameters: Collection[str]
) -> tuple[JobLimit, ...]:
    """Return the limits of a job type.

    Raises `UsageError` for what is none, or there twice, and for a key that is no argument of it.
    """
    what = f"job type {job_type!r}"
    if isinstance(given, str | bytes | Mapping | Concurrency | Rate) or not isinstance(
        given, Iterable
    ):
        raise UsageError(
            f"{what}: limits is {given!r:.120}",
            hint='write a list: limits=[Concurrency(5, key="tenant")]',
        )
    limits: list[JobLimit] = []
    for each in given:
        if not isinstance(each, Concurrency | Rate):
            raise UsageError(
                f"{what}: {each!r:.120} is not a limit", hint="write Concurrency(…) or Rate(…)"
            )
        if each.kind in {other.kind for other in limits}:
            raise UsageError(
                f"{what}: two limits of {each.kind}", hint="keep the one that is meant"
            )
        argument = None if (path := _payload_path(each)) is None else path.partition(".")[0]
        if argument is not None and argument not in parameters:
            raise UsageError(
                f"{what}: limit {each.kind} names {argument!r:.80}, no argument of it",
                hint=f"its arguments: {', '.join(sorted(parameters)) or 'none'}; keys that are "
                "none: tenant, agent, queue",
            )
        limits.append(each)
    if len(limits) > LIMITS_MAX:
        raise UsageError(
            f"{what}: {len(limits)} limits, more than {LIMITS_MAX}", hint="leave some out"
        )
    return tuple(limits)


def _payload_path(limit: JobLimit) -> str | None:
    """Return the dotted path by which a limit counts; None: by nothing of the payload."""
    if limit.key in (None, TENANT, AGENT, QUEUE):
        return None
    if limit.key == MODEL and isinstance(limit, Rate) and limit.unit == Unit.TOKENS:
        return None
    return str(limit.key).removeprefix("payload.")


def check_keys(job_type: str, limits: Iterable[JobLimit], payload: Mapping[str, Any]) -> None:
    """Raise `InvalidValueError` for a payload that lacks the key of a limit, as a submit does."""
    for limit in limits:
        if (path := _payload_path(limit)) is None:
            continue
        value = find(payload, path)
        if not isinstance(value, str | int | float) or not 1 <= len(str(value)) <= KEY_CHARS_MAX:
            raise InvalidValueError(
                f'payload.{path} of job type "{job_type}" must be a text, number or boolean of 1 '
                f"to {KEY_CHARS_MAX} characters: limit {job_type}:{limit.kind} counts by it",
                hint="add it to the payload",
            )
