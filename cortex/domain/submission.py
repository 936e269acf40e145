"""What is checked of a job before it is submitted, wherever it comes from."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs
import orjson

from cortex.domain.errors import UsageError
from cortex.domain.job import Submission
from cortex.domain.policy import JOB_HARD, POLICIES, policy_for

NAME_MAX: Final = 100
"""Characters of an agent's, a tenant's or a queue's name."""
KEY_MAX: Final = 500
PRIORITY_MAX: Final = 32_767
"""A Postgres smallint, either side of 0."""
DELAY_MAX_S: Final = 10 * 365 * 86_400.0
TIMEOUT_MAX_S: Final = 604_800
RETRIES_MAX: Final = 100


def check_type(name: str, known: Iterable[str], *, way_out: str) -> None:
    """Raise `UsageError` unless the job type is known; `way_out`: how it would become so."""
    names = sorted(set(known))
    if name not in names:
        close = difflib.get_close_matches(name, names, n=1)
        raise UsageError(
            f"unknown job type {name!r}", hint=f"did you mean {close[0]!r}?" if close else way_out
        )


def default_timeout_s(job_type: str, registered: Mapping[str, int]) -> int:
    """Return the seconds that a job of this type may run; `registered`: types as pods have them."""
    known = policy_for(job_type).timeout_s
    return known if job_type in POLICIES else registered.get(job_type, known)


def hard_timeout_s(job_type: str, timeout_s: int) -> int:
    """Return the longest time-out of a job whose type is registered with this one."""
    return int(JOB_HARD * default_timeout_s(job_type, {job_type: timeout_s}))


def check_timeout(job_type: str, timeout_s: int, *, default_s: int, name: str) -> None:
    """Raise `UsageError` for a time-out that no job of the type may be given; `name` is its field.

    Seconds; `default_s` is the type's own.
    """
    limit_s = JOB_HARD * default_s
    if timeout_s > limit_s:
        raise UsageError(
            f"{name} {timeout_s} is above the hard limit of {job_type!r}: {limit_s:g} seconds",
            hint=f"a job may run at most {JOB_HARD:g} times its type's {default_s} seconds",
        )


def request_of(submission: Submission) -> dict[str, Any]:
    """Return what was asked for, under an idempotency key: all but the id, which was made here."""
    asked = attrs.asdict(submission, filter=lambda field, _: field.name != "id")
    return asked | {"payload": orjson.loads(submission.payload)}
