"""When something that failed is tried again, at each of the three levels that try again."""

import random
from math import exp
from typing import Final, Literal, TypeAlias

import attrs

from cortex.domain.policy import Backoff

RETRY_AFTER_MAX_S: Final = 300.0
"""What a server may ask for, unless its breaker opens for longer."""
RATE_LIMIT_RETRIES_MAX: Final = 5
"""After so many application retries that a rate limit cost, a person is told."""


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
    highest_s = min(backoff.cap_s, backoff.base_s * backoff.multiplier**retry_count)
    jittered_s = rng.uniform(0, highest_s)
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
        """Return the pause after so many failures, the first being 1."""
        pause_s = min(self.cap_s, self.base_s * 2.0 ** (failures - 1))
        jittered_s = pause_s + rng.uniform(0, pause_s / 2)
        return jittered_s if retry_after_s is None else max(jittered_s, retry_after_s)


Urgency: TypeAlias = Literal["realtime", "default", "background"]
"""How long whoever waits for a call may be kept waiting."""

CALL_RETRIES: Final[dict[Urgency, CallRetry]] = {
    "realtime": CallRetry(base_s=0.5, cap_s=5, attempts=2),
    "default": CallRetry(base_s=1, cap_s=60, attempts=5),
    "background": CallRetry(base_s=5, cap_s=300, attempts=10),
}
"""Only for calls that may be repeated, while the pause fits in what is left of the step."""
