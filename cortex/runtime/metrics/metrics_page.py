"""The page that a pod returns to a scrape: its own counts, and figures of the whole system.

Owns: the last figures of the database. Reads: these figures, in one statement, on a scrape, at most
every five seconds, and more rarely if the statement is slow, however often it is scraped.
Invariants: a scrape waits one second at most, whatever the state of the database.

On failure: the last figures are exported again, with their age and with `up` = 0.
On stop: nothing to do; a later scrape gets the last figures.
"""

import math
import platform
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import structlog
import trio
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

import cortex
from cortex.domain.breaker import BreakerState
from cortex.domain.drain import TroubleReport
from cortex.domain.errors import CortexError, Trouble
from cortex.durable.threads import left_threads
from cortex.postgres.bridge import Port
from cortex.runtime.metrics import metrics_catalogue as catalogue
from cortex.runtime.metrics.metrics import Metrics
from cortex.runtime.metrics.metrics_catalogue import OTHER, Metric
from cortex.runtime.running import RunningJobs
from cortex.store import pulse as store

EVERY_S: Final = 5.0
REST: Final = 50.0
"""Pause after a query, as a multiple of its duration: 2 % of one connection."""
REST_MAX_S: Final = 60.0
PATIENCE_S: Final = 1.0
"""How long a scrape waits for new figures: Prometheus itself waits ten seconds."""
BREAKERS_MAX: Final = 100
"""Names of breakers that a pod exports in its life; the rest is one series, with the worst
state."""

_LEVELS: Final = {BreakerState.CLOSED: 0, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 2}

_log = structlog.get_logger(__name__)


class MetricsPage(Collector):
    """The actor; `exposition` may be called from anywhere in the trio thread."""

    name = "metrics"

    def __init__(
        self,
        port: Port,
        *,
        metrics: Metrics,
        running: RunningJobs,
        breakers: Callable[[], Mapping[str, BreakerState]],
        trouble: Callable[[], TroubleReport | None] = lambda: None,
    ) -> None:
        """`breakers`: those that the pod knows now; `trouble`: the trouble of its own calls."""
        self._port = port
        self._metrics = metrics
        self._running = running
        self._breakers = breakers
        self._trouble = trouble
        self._observed_open: set[str] = set()
        self._figures: store.Figures | None = None
        self._read_at = -math.inf
        self._is_up = False
        self._read_again_at = -math.inf
        self._requested = trio.Event()
        self._answered = trio.Event()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Read the figures on request, until cancelled."""
        task_status.started()
        while True:
            await self._requested.wait()
            await self._read_figures()
            self._requested = trio.Event()
            self._answered.set()
            self._answered = trio.Event()

    async def exposition(self) -> tuple[bytes, str]:
        """Return the page and its content type, within little more than a second."""
        if trio.current_time() >= self._read_again_at:
            self._requested.set()
            with trio.move_on_after(PATIENCE_S) as patience:
                await self._answered.wait()
            if patience.cancelled_caught:
                self._is_up = False
        return generate_latest(self._registry), CONTENT_TYPE_PLAIN_0_0_4

    def collect(self) -> Iterator[Family]:
        """Yield all metrics; called by prometheus-client."""
        yield from self._metrics.families()
        yield _gauge(catalogue.RUNNER_SUCCESS, self._metrics.runner_successes)
        yield _gauge(catalogue.RUNNER_INTERVAL, self._metrics.runner_intervals)
        yield _gauge(catalogue.BUILD, {(cortex.__version__, platform.python_version()): 1})
        yield _gauge(catalogue.SLOTS, {(): self._running.slots})
        yield _gauge(catalogue.RUNNING, {(): len(self._running)})
        yield _gauge(catalogue.THREADS_LEFT, {(): left_threads()})
        yield _gauge(catalogue.BREAKER_STATE, self._breaker_states())
        yield _gauge(catalogue.DATABASE_TROUBLE, self._trouble_s())
        yield _gauge(catalogue.DATABASE_UP, {(): self._is_up})
        if self._figures is not None:
            yield from self._figure_gauges(self._figures)

    async def _read_figures(self) -> None:
        began = trio.current_time()
        try:
            self._figures = await self._port(store.figures)
        except CortexError as error:
            _log.warning("metrics of the database not read", error=error.message)
            self._is_up = False
            self._read_again_at = trio.current_time() + EVERY_S
        else:
            self._is_up = True
            self._read_at = trio.current_time()
            rest_s = REST * (self._read_at - began)
            self._read_again_at = self._read_at + min(max(EVERY_S, rest_s), REST_MAX_S)

    def _figure_gauges(self, figures: store.Figures) -> Iterator[Family]:
        yield _gauge(catalogue.DATABASE_AGE, {(): trio.current_time() - self._read_at})
        yield _gauge(catalogue.JOBS, {(s.value,): n for s, n in figures.jobs.items()})
        yield _gauge(catalogue.DUE, {(): figures.due_count})
        yield _gauge(catalogue.OLDEST_DUE, {(): figures.oldest_due_s})
        yield _gauge(catalogue.STRANDED, {(): figures.stranded_count})
        yield _gauge(catalogue.WAITING, {(w,): n for w, n in figures.waiting.items()})
        yield _gauge(catalogue.PAUSES_OLD, {(): figures.old_pauses})
        yield _gauge(catalogue.LETTERS, {(s.value,): n for s, n in figures.letters.items()})
        yield _gauge(catalogue.OUTBOX, {(s.lower(),): n for s, n in figures.messages.items()})
        yield _gauge(catalogue.OUTBOX_OLDEST, {(): figures.oldest_message_s})
        yield _gauge(catalogue.SCHEDULES_MISSED, {(): figures.missed_schedules})
        yield _gauge(catalogue.RUNNER_LATE, {(r,): late for r, late in figures.is_late.items()})

    def _trouble_s(self) -> dict[tuple[str, ...], float]:
        report = self._trouble()
        return {
            (each.value,): report.for_s if report is not None and report.trouble is each else 0.0
            for each in Trouble
        }

    def _breaker_states(self) -> dict[tuple[str, ...], float]:
        """Return the level of each breaker that is open, or was observed open here."""
        levels = {name: _LEVELS[state] for name, state in self._breakers().items()}
        unwell = (name for name in sorted(levels) if levels[name])
        for name in unwell:
            if len(self._observed_open) < BREAKERS_MAX:
                self._observed_open.add(name)
        states: dict[tuple[str, ...], float] = {
            (name,): levels.get(name, 0) for name in self._observed_open
        }
        rest = [
            level for name, level in levels.items() if level and name not in self._observed_open
        ]
        return states | ({(OTHER,): max(rest)} if rest else {})


def _gauge(metric: Metric, values: Mapping[tuple[str, ...], float]) -> Family:
    family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family
