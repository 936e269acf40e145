"""When a failure is tried again, at each of the three levels of retries."""

import random
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from math import exp
from typing import Final, Literal, Protocol, TypeAlias

import attrs

from cortex.domain.backoff import Backoff
from cortex.domain.failure import Failure, FailureClass

RETRY_AFTER_MAX_S: Final = 300.0
"""The longest pause that a server may ask for; the setting `retry_after_max_s` has a breaker open
for longer."""
RATE_LIMIT_RETRIES_MAX: Final = 5
"""After this many application retries for a rate limit, a person is notified."""


def worker_delay_s(attempts_spent: int) -> float:
    """Return the pause before the next worker attempt: `exp(min(10, n))` seconds.

    2.7, 7.4, 20.1, 54.6, 148.4 … 22026 s for n = 1, 2, 3 …
    """
    return exp(min(10, attempts_spent))


def app_delay_s(
    backoff: Backoff,
    retry_count: int,
    *,
    rng: random.Random,
    retry_after_s: float | None = None,
) -> float:
    """Return the pause before an application retry; `retry_count` of them were used before.

    Uniform in [0, min(cap, base * multiplier ** retry_count)]: full jitter, always. A server's
    Retry-After raises it, up to 300 s.
    """
    jittered_s = backoff.pause_s(retry_count + 1, rng=rng)
    if retry_after_s is None:
        return jittered_s
    return max(jittered_s, min(retry_after_s, RETRY_AFTER_MAX_S))


@attrs.frozen(kw_only=True)
class CallRetry:
    """Retries of one call inside its step: `base_s * 2 ** n` up to `cap_s`, plus up to half."""

    base_s: float
    cap_s: float
    attempts: int
    """Calls in all, the first one included."""

    def delay_s(self, failures: int, *, rng: random.Random, retry_after_s: float | None) -> float:
        """Return the pause after `failures` failures, the first being 1."""
        backoff = Backoff(base_s=self.base_s, cap_s=self.cap_s)
        jittered_s = backoff.pause_s(failures, rng=rng, least=1.0, most=1.5)
        if retry_after_s is None:
            return jittered_s
        return max(jittered_s, min(retry_after_s, RETRY_AFTER_MAX_S))


Urgency: TypeAlias = Literal["realtime", "default", "background"]
"""How long a caller may be kept waiting."""

CALL_RETRIES: Final[dict[Urgency, CallRetry]] = {
    "realtime": CallRetry(base_s=0.5, cap_s=5, attempts=2),
    "default": CallRetry(base_s=1, cap_s=60, attempts=5),
    "background": CallRetry(base_s=5, cap_s=300, attempts=10),
}
"""Only for calls that may be repeated, while the pause fits in what is left of the step."""


# --- The pause that a server asks for: Retry-After in its three forms.


FALLBACK_S: Final = 60.0
"""For an invalid header: the server did ask for a pause."""
LONGEST_S: Final = 86_400.0
"""More than a day is no pause but a mistake."""

_SECONDS: Final = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18})?")


class Headers(Protocol):
    """Headers of a response, whatever HTTP library they come from."""

    def get(self, name: str, /) -> str | None: ...

    def __iter__(self) -> Iterator[str]: ...


def now_of(headers: Headers, now: datetime | None) -> datetime | None:
    """Return the instant at which a response was sent: its own Date, or else `now`.

    So no clock need agree with the server's.
    """
    sent = headers.get("date")
    return (parse_http_date(sent) if sent else None) or now


def retry_after_of(headers: Headers, *, now: datetime | None) -> float | None:
    """Return the seconds that a response asks for, None if it asks for no pause.

    A date counts from `now_of`; `now` must have a time zone.
    """
    millis = headers.get("retry-after-ms")
    if millis is not None and _SECONDS.fullmatch(millis.strip()):
        return within_a_day(float(millis) / 1000)
    value = headers.get("retry-after")
    return None if value is None else parse_retry_after(value, now=now_of(headers, now))


def should_retry_of(headers: Headers) -> bool | None:
    """Return whether the server says that a retry can help; None if it says nothing."""
    return {"true": True, "false": False}.get((headers.get("x-should-retry") or "").strip().lower())


def within_a_day(seconds: float) -> float:
    """Return a pause that a server asks for; `FALLBACK_S` for one that must be a mistake."""
    return seconds if seconds <= LONGEST_S else FALLBACK_S


def parse_retry_after(value: str, *, now: datetime | None) -> float:
    """Return the seconds that a Retry-After header asks for; `FALLBACK_S` if it is invalid.

    Invalid is a value that is no number and no date, negative, or longer than `LONGEST_S`; also a
    date without `now`. A date in the past is no pause: 0. The result is not capped: the job's
    policy decides how long it waits.
    """
    text = value.strip()
    if _SECONDS.fullmatch(text):
        requested_s = float(text)
    else:
        due = parse_http_date(text)
        if due is None or now is None:
            return FALLBACK_S
        requested_s = max(0.0, (due - now).total_seconds())
    return within_a_day(requested_s)


def parse_http_date(value: str) -> datetime | None:
    """Return the instant of an HTTP date, in any of its three forms; None if it is invalid."""
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 -- slow to import, seldom needed

    try:
        moment = parsedate_to_datetime(value)
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    except (ValueError, TypeError, IndexError, OverflowError):  # fuzzing has produced all of them
        return None


@attrs.frozen(kw_only=True)
class UsedRetries:
    """The tries that a job has used, this attempt included."""

    attempts_spent: int
    max_attempts: int
    retry_count: int
    max_retries: int
    rate_limit_count: int


@attrs.frozen
class Fail:
    """The job has FAILED, for this reason besides its error."""

    why: str


@attrs.frozen
class TryAgain:
    """The worker layer tries again: the job stays RUNNING."""

    delay_s: float


@attrs.frozen
class RetryLater:
    """The application layer tries again: RETRY, one retry used."""

    delay_s: float


@attrs.frozen
class AskPerson:
    """Only a person can help: the job waits for one."""


Decision: TypeAlias = Fail | TryAgain | RetryLater | AskPerson


def decide(
    failure: Failure, used: UsedRetries, backoff: Backoff, *, rng: random.Random
) -> Decision:
    if failure.is_spent:
        return Fail("its own tries are spent")
    match failure.cls:
        case FailureClass.TRANSIENT_INFRA:
            return _worker(used)
        case FailureClass.TRANSIENT_APP:
            return _application(failure, used, backoff, rng=rng)
        case FailureClass.BUDGET:
            return AskPerson()
        case FailureClass.PERMANENT | FailureClass.INVALID_OUTPUT | FailureClass.VALID:
            return Fail("it can never succeed unchanged")


def _worker(used: UsedRetries) -> Decision:
    if used.attempts_spent >= used.max_attempts:
        return Fail(f"all {used.max_attempts} worker attempts are spent")
    return TryAgain(worker_delay_s(used.attempts_spent))


def _application(
    failure: Failure, used: UsedRetries, backoff: Backoff, *, rng: random.Random
) -> Decision:
    if used.retry_count >= used.max_retries:
        return Fail(f"all {used.max_retries} retries are spent")
    if failure.is_rate_limit and used.rate_limit_count >= RATE_LIMIT_RETRIES_MAX:
        return Fail(f"rate-limited {RATE_LIMIT_RETRIES_MAX + 1} times")
    return RetryLater(
        app_delay_s(backoff, used.retry_count, rng=rng, retry_after_s=failure.retry_after_s)
    )
