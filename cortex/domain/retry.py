"""When a failed attempt is tried again by the worker layer."""

from math import exp


def worker_delay_s(attempts_spent: int) -> float:
    """Return the pause before the next worker attempt: `exp(min(10, n))` seconds.

    2.7, 7.4, 20.1, 54.6, 148.4 … 22026 s for n = 1, 2, 3 …
    """
    return exp(min(10, attempts_spent))
