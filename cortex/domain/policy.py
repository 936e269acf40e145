"""Retries and time limits: the policy of each job type, and its bounds."""

from collections.abc import Mapping
from typing import Any, Final, Self

import attrs
import orjson

from cortex.domain.backoff import Backoff
from cortex.domain.errors import UsageError
from cortex.domain.job import (
    APPROVAL_NOTIFY,
    BULK,
    RUN_AGENT,
    RUN_FLOW,
    SEND_NOTIFICATION,
    Submission,
)
from cortex.domain.prices import PriceTable

_BACKOFF: Final = Backoff()


@attrs.frozen(kw_only=True)
class JobPolicy:
    """How often and how long a job of one type may run. Times are in seconds."""

    worker_attempts: int = 3
    max_retries: int = 3
    backoff: Backoff = _BACKOFF
    timeout_s: int = 3600
    call_s: float = 120.0
    """One model or tool call without a figure of its own."""
    connect_s: float = 30.0

    def check(self, job_type: str) -> None:
        """Raise `UsageError` with the job type, the field, the value and its limits."""
        built_in = POLICIES.get(job_type)
        longest_s = TIMEOUT_MAX_S if built_in is None else JOB_HARD * built_in.timeout_s
        values = {**attrs.asdict(self, recurse=False), **attrs.asdict(self.backoff)}
        limits = {**LIMITS, "timeout_s": (1, longest_s)}
        for field, (low, high) in limits.items():
            value = values[field]
            if not low <= value <= high:
                raise UsageError(
                    f"job type {job_type!r}: {field} is {value:g}, outside {low:g} to {high:g}"
                )

    def to_json(self) -> dict[str, Any]:
        """A plain dict, the inverse of `from_json`."""
        return attrs.asdict(self)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Restore a policy that `to_json` wrote; fields of a newer version are left out."""
        built_in = {name: plain[name] for name in attrs.fields_dict(cls) if name in plain}
        backoff = {n: v for n, v in plain["backoff"].items() if n in attrs.fields_dict(Backoff)}
        return cls(**{**built_in, "backoff": Backoff(**backoff)})


JOB_HARD: Final = 1.5
"""The most that a job may be given, as a multiple of its type's time-out."""
CODE_WAIT_S: Final = 604_800.0
"""How long a job waits for code that fits it."""
TIMEOUT_MAX_S: Final = 604_800
"""The longest time-out of a job type of an app."""

LIMITS: Final[dict[str, tuple[float, float]]] = {
    "worker_attempts": (1, 100),
    "max_retries": (0, 100),
    "base_s": (0.01, 3600),
    "cap_s": (0.01, 86_400),
    "multiplier": (1, 10),
    "call_s": (0.1, 600),
    "connect_s": (0.1, 180),
}

DEFAULT: Final = JobPolicy()
_OF_MODELS: Final = JobPolicy(
    max_retries=5, backoff=Backoff(base_s=5, cap_s=300, multiplier=3), call_s=300
)
_OF_REQUESTS: Final = JobPolicy(
    worker_attempts=5, backoff=Backoff(base_s=1, cap_s=60, multiplier=2), timeout_s=600
)
_OF_NOTIFICATIONS: Final = JobPolicy(
    worker_attempts=10,
    max_retries=5,
    backoff=Backoff(base_s=2, cap_s=60, multiplier=2),
    timeout_s=300,
    call_s=15,
    connect_s=10,
)
_OF_UPKEEP: Final = JobPolicy(
    worker_attempts=2,
    max_retries=0,
    backoff=Backoff(base_s=1, cap_s=1, multiplier=1),
    timeout_s=60,
    call_s=30,
    connect_s=5,
)
POLICIES: Final[dict[str, JobPolicy]] = {
    RUN_AGENT: _OF_MODELS,
    "llm_generate": _OF_MODELS,
    RUN_FLOW: attrs.evolve(_OF_MODELS, timeout_s=1800, call_s=120),
    "execute_tool": JobPolicy(
        backoff=Backoff(base_s=2, cap_s=120, multiplier=2), timeout_s=1200, connect_s=10
    ),
    "http_request": _OF_REQUESTS,
    "webhook_dispatch": _OF_REQUESTS,
    SEND_NOTIFICATION: _OF_NOTIFICATIONS,
    APPROVAL_NOTIFY: _OF_NOTIFICATIONS,
    "sweep_zombies": _OF_UPKEEP,
    "expire_approvals": _OF_UPKEEP,
    BULK: JobPolicy(timeout_s=604_800),
}
"""The built-in job types that need figures of their own."""


def policy_for(job_type: str) -> JobPolicy:
    """Return the policy of a job type; types without a row of their own get the default."""
    return POLICIES.get(job_type, DEFAULT)


# --- The configuration that a job keeps from its first start: policies and prices.


@attrs.frozen(kw_only=True)
class RuntimeConfig:
    """Immutable: a changed configuration is another one."""

    policies: Mapping[str, JobPolicy]
    prices: PriceTable

    def policy(self, job_type: str) -> JobPolicy:
        return self.policies.get(job_type) or policy_for(job_type)

    def to_json(self) -> dict[str, Any]:
        """A plain dict, the inverse of `from_json`."""
        return {
            "policies": {name: policy.to_json() for name, policy in self.policies.items()},
            "prices": self.prices.to_json(),
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """The configuration that `to_json` wrote."""
        return cls(
            policies={name: JobPolicy.from_json(each) for name, each in plain["policies"].items()},
            prices=PriceTable.from_json(plain["prices"]),
        )


# --- Checks of a job before it is submitted, from any client.


NAME_MAX: Final = 100
"""Characters of an agent's, a tenant's or a queue's name."""
KEY_MAX: Final = 500
PRIORITY_MAX: Final = 32_767
"""A Postgres smallint, either side of 0."""
DELAY_MAX_S: Final = 10 * 365 * 86_400.0
RETRIES_MAX: Final = 100


def refuse_bulk(name: str, queue_name: str | None) -> None:
    """Raise `UsageError` for the type of bulk operations, which other requests submit.

    Also for their queue: another job in it would hold all of them up.
    """
    if queue_name == BULK:
        raise UsageError(f"queue {BULK!r} is for bulk operations", hint="name another queue")
    if name == BULK:
        raise UsageError(
            "bulk operations are not submitted by hand",
            hint="cortex jobs cancel --filter …, jobs retry, dead retry or dead discard do so",
        )


def require_agent(name: str, agent: str | None) -> None:
    """Raise `UsageError` for a job that runs an agent and names none."""
    if name == RUN_AGENT and agent is None:
        raise UsageError(f"{RUN_AGENT} needs an agent", hint="name it as the job's agent")


def default_timeout_s(job_type: str, registered_s: int | None) -> int:
    """Return the seconds that a job of this type may run; `registered_s`: as pods have it."""
    built_in = policy_for(job_type).timeout_s
    return built_in if job_type in POLICIES or registered_s is None else registered_s


def hard_timeout_s(job_type: str, timeout_s: int) -> int:
    """Return the longest time-out of a job whose type is registered with this one."""
    return int(JOB_HARD * default_timeout_s(job_type, timeout_s))


def check_timeout(job_type: str, timeout_s: int, *, default_s: int, name: str) -> None:
    """Raise `UsageError` for a time-out beyond the type's hard limit; `name` is its field.

    Seconds; `default_s` is the type's own.
    """
    limit_s = JOB_HARD * default_s
    if timeout_s > limit_s:
        raise UsageError(
            f"{name} {timeout_s} is above the hard limit of {job_type!r}: {limit_s:g} seconds",
            hint=f"a job may run at most {JOB_HARD:g} times its type's {default_s} seconds",
        )


def request_of(submission: Submission) -> dict[str, Any]:
    """Return the request for an idempotency key.

    The id was made here, and a request that is sent again is a span of its own.
    """
    own = ("id", "traceparent")
    fields = attrs.asdict(submission, filter=lambda field, _: field.name not in own)
    if not submission.tags:  # as before there were tags
        del fields["tags"]
    if submission.run_at is None:
        del fields["run_at"]
    if submission.due_by is None:
        del fields["due_by"]
    return fields | {"payload": orjson.loads(submission.payload)}
