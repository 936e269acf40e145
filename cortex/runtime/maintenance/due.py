"""What a runner returns after a pass over what has become due."""

from cortex.actors.runner import AT_ONCE, TickBudget, TickResult
from cortex.store.passes import DuePass


def result_of(done: DuePass, budget: TickBudget, *, least_s: float, most_s: float) -> TickResult:
    """Return the result; a pass that used its budget up is followed by the next one at once.

    `least_s` and `most_s`: bounds of the pause, in seconds.
    """
    return TickResult(
        items=done.count,
        is_skipped=done.is_skipped,
        next_s=AT_ONCE
        if done.count >= budget.items
        else done.next_s(least_s=least_s, most_s=most_s),
    )
