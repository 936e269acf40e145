"""The one list of runners: what any pod does for all pods, and `cortex tick` without a pod.

To add a runner, write it in this folder and name it in `RUNNERS`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol
from uuid import UUID

import attrs

from cortex.actors.runner import Runner, TickBudget
from cortex.agent.models.batch_api import BatchModels
from cortex.domain.clock import Chance
from cortex.domain.drain import TroubleReport
from cortex.domain.job import Suspend
from cortex.domain.waiting import BATCH
from cortex.durable.attempt import UpkeepResult
from cortex.durable.message_handlers import MessageHandler
from cortex.durable.tracing import Deliveries
from cortex.postgres.bridge import Port
from cortex.runtime import hints
from cortex.runtime.calls.breakers import BreakerRegistry
from cortex.runtime.calls.pending_settlements import PendingSettlements
from cortex.runtime.hints import EXPIRY, REMINDER, RETRY
from cortex.runtime.liveness.sweeper import Sweeper
from cortex.runtime.maintenance.alarms import Alarms
from cortex.runtime.maintenance.batches import Batches
from cortex.runtime.maintenance.children import Children
from cortex.runtime.maintenance.expiries import Expiries
from cortex.runtime.maintenance.housekeeping import Housekeeping
from cortex.runtime.maintenance.limits import Limits
from cortex.runtime.maintenance.line import Line
from cortex.runtime.maintenance.notifications import Notifications
from cortex.runtime.maintenance.reconciler import Reconciler
from cortex.runtime.maintenance.retention import Retention
from cortex.runtime.maintenance.retries import Retries
from cortex.runtime.maintenance.schedules import Schedules
from cortex.runtime.maintenance.triage import Triage
from cortex.runtime.maintenance.wakes import Wakes
from cortex.runtime.metrics.metrics import Metrics
from cortex.runtime.outbox.outbox import Outbox
from cortex.runtime.self_fence import SelfFence

HOUSEKEEPING_MIN_S: Final = 10.0
"""However often pods sweep: what it deletes was kept for hours, and is ignored by then."""


@attrs.frozen(kw_only=True)
class PodMeans:
    """What the runners of a pod know of it."""

    id: UUID
    self_fence: SelfFence
    metrics: Metrics
    breakers: BreakerRegistry
    trouble: Callable[[], TroubleReport | None]
    """The database trouble of its calls."""
    deliveries: Deliveries
    """Traces the sending of messages."""


class RunnerSettings(Protocol):
    """The settings of these names, see `cortex.config`."""

    @property
    def sweep_s(self) -> float: ...

    @property
    def zombie_s(self) -> float: ...

    @property
    def sweep_max(self) -> int: ...

    @property
    def code_wait_s(self) -> float: ...

    @property
    def outbox_sent_s(self) -> float: ...
    @property
    def logs_s(self) -> float: ...

    @property
    def page_url(self) -> str | None: ...


@attrs.frozen(kw_only=True)
class Means:
    port: Port
    chance: Chance
    unsettled: PendingSettlements
    settings: RunnerSettings
    handlers: Mapping[str, MessageHandler] = attrs.field(factory=dict)
    """Of the application's messages, by name."""
    models: BatchModels | None = None
    """None: a process that calls no models."""
    pod: PodMeans | None = None
    """None: a process without a pod."""
    hint: Callable[[str], None] = lambda _: None
    """Hints to the other runners; set by `runners`."""


def _sweeper(means: Means) -> Runner:
    pod = means.pod
    return Sweeper(
        means.port,
        pod_id=None if pod is None else pod.id,
        self_fence=None if pod is None else pod.self_fence,
        zombie_s=means.settings.zombie_s,
        sweep_s=means.settings.sweep_s,
        batch_max=means.settings.sweep_max,
        rng=means.chance.rng,
        metrics=None if pod is None else pod.metrics,
        trouble=(lambda: None) if pod is None else pod.trouble,
        on_retries=partial(means.hint, RETRY),
    )


def _outbox(means: Means) -> Runner:
    pod, pod_id = means.pod, means.chance.new_id()
    if pod is None:
        alone = BreakerRegistry(means.port, pod_id=pod_id, rng=means.chance.rng)
        return Outbox(
            means.port,
            pod_id=pod_id,
            chance=means.chance,
            breakers=alone,
            handlers=means.handlers,
            page_url=means.settings.page_url,
            read_breakers=alone.tick,
        )
    return Outbox(
        means.port,
        pod_id=pod.id,
        chance=means.chance,
        breakers=pod.breakers,
        handlers=means.handlers,
        page_url=means.settings.page_url,
        meter=pod.metrics,
        deliveries=pod.deliveries,
    )


RUNNERS: Final[dict[str, Callable[[Means], Runner]]] = {
    Sweeper.name: _sweeper,
    Expiries.name: lambda means: Expiries(means.port, rng=means.chance.rng),
    Notifications.name: lambda means: Notifications(means.port, rng=means.chance.rng),
    Schedules.name: lambda means: Schedules(means.port, rng=means.chance.rng),
    Retries.name: lambda means: Retries(means.port, rng=means.chance.rng),
    Wakes.name: lambda means: Wakes(means.port, rng=means.chance.rng),
    Children.name: lambda means: Children(means.port, rng=means.chance.rng),
    Line.name: lambda means: Line(means.port, rng=means.chance.rng),
    Limits.name: lambda means: Limits(means.port, rng=means.chance.rng),
    Triage.name: lambda means: Triage(means.port, rng=means.chance.rng, chance=means.chance),
    Reconciler.name: lambda means: Reconciler(
        means.port, unsettled=means.unsettled, rng=means.chance.rng
    ),
    Batches.name: lambda means: Batches(means.port, models=means.models, chance=means.chance),
    Alarms.name: lambda means: Alarms(
        means.port, rng=means.chance.rng, code_wait_s=means.settings.code_wait_s
    ),
    Outbox.name: _outbox,
    Housekeeping.name: lambda means: Housekeeping(
        means.port,
        rng=means.chance.rng,
        every_s=max(means.settings.sweep_s, HOUSEKEEPING_MIN_S),
        sent_kept_s=means.settings.outbox_sent_s,
        lines_kept_s=means.settings.logs_s,
    ),
    Retention.name: lambda means: Retention(means.port, rng=means.chance.rng, chance=means.chance),
}
"""By name, in the order of a tick: what makes jobs due comes first, then they are dispatched."""


def runners(means: Means, names: Iterable[str] = tuple(RUNNERS)) -> tuple[Runner, ...]:
    """Return new runners, in the order of `RUNNERS`; none of them needs a pod."""
    made: list[Runner] = []
    means = attrs.evolve(means, hint=partial(wake, made))
    chosen = set(names)
    made.extend(make(means) for name, make in RUNNERS.items() if name in chosen)
    return tuple(made)


@attrs.frozen
class RunnerUpkeep:
    """Runs runners of this process once, for jobs."""

    runners: Sequence[Runner]

    async def run_once(self, name: str) -> UpkeepResult:
        (runner,) = (each for each in self.runners if each.name == name)
        result = await runner.run_once(TickBudget(items=runner.items_max))
        return UpkeepResult(items=result.items, is_skipped=result.is_skipped)


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
        if each.waiting_on == BATCH:
            waits[hints.BATCH] = 0.0
        if each.waits:
            waits[hints.WAKE] = 0.0
        if each.requests:
            waits[EXPIRY] = min(request.expires_s for request in each.requests)
            waits[REMINDER] = waits[EXPIRY] / 2
        for hint, in_s in waits.items():
            due[hint] = min(in_s, due.get(hint, in_s))
    for hint, in_s in due.items():
        for runner in each_of:
            if hint in runner.woken_by:
                runner.due_in(in_s)
