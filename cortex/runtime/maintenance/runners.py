"""The one list of runners: what any pod does for all pods, and `cortex tick` without a pod.

To add a runner, write it in this folder and name it here.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import attrs

from cortex.actors.runner import Runner
from cortex.domain.clock import Chance
from cortex.domain.job import Suspend
from cortex.postgres.bridge import Port
from cortex.runtime.calls.pending_settlements import PendingSettlements
from cortex.runtime.maintenance.expiries import Expiries
from cortex.runtime.maintenance.hints import EXPIRY, RETRY
from cortex.runtime.maintenance.housekeeping import Housekeeping
from cortex.runtime.maintenance.reconciler import Reconciler
from cortex.runtime.maintenance.retention import Retention
from cortex.runtime.maintenance.retries import Retries
from cortex.runtime.maintenance.schedules import Schedules
from cortex.runtime.maintenance.triage import Triage


@attrs.frozen(kw_only=True)
class Means:
    """What runners are made of."""

    port: Port
    chance: Chance
    unsettled: PendingSettlements
    sweep_s: float
    """The setting of that name."""


RUNNERS: Final[tuple[Callable[[Means], Runner], ...]] = (
    lambda means: Retries(means.port, rng=means.chance.rng),
    lambda means: Expiries(means.port, rng=means.chance.rng),
    lambda means: Schedules(means.port, rng=means.chance.rng),
    lambda means: Triage(means.port, rng=means.chance.rng, chance=means.chance),
    lambda means: Reconciler(means.port, unsettled=means.unsettled, rng=means.chance.rng),
    lambda means: Housekeeping(means.port, rng=means.chance.rng, every_s=means.sweep_s),
    lambda means: Retention(means.port, rng=means.chance.rng, chance=means.chance),
)


def runners(means: Means) -> tuple[Runner, ...]:
    """Return new runners; none of them needs a pod."""
    return tuple(make(means) for make in RUNNERS)


# --- hints


def wake(each_of: Iterable[Runner], hint: str) -> None:
    """Wake the runners that a notification or a local hint concerns."""
    for each in each_of:
        if hint in each.woken_by:
            each.wake()


def suspended(each_of: Sequence[Runner], operations: Iterable[Suspend]) -> None:
    """Hint when jobs that a pod has just suspended become due, so that no runner has to poll."""
    due: dict[str, float] = {}
    for each in operations:
        waits = {RETRY: each.delay_s} if each.delay_s is not None else {}
        if each.requests:
            waits[EXPIRY] = min(request.expires_s for request in each.requests)
        for hint, in_s in waits.items():
            due[hint] = min(in_s, due.get(hint, in_s))
    for hint, in_s in due.items():
        for runner in each_of:
            if hint in runner.woken_by:
                runner.due_in(in_s)
