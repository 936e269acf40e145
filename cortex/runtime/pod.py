"""The composition root: builds the actors of a pod, nests the phases of its shutdown.

    island and pool > liveness {database watch, heartbeat; for running jobs: deadlines, listener,
        control, drain requests, breakers; outbox; for clients: result waiters, feeds, answers} >
        writers {committer} > http {server, if configured} > the application's resources >
        hand_back {job actors} > intake {dispatcher, takeover, and the runners of
        `cortex.runtime.maintenance`}

Shutdown goes from the inside out: claiming stops; jobs go on to their next checkpoint and are
handed back there; at the abort all others are handed back; the API is closed, the committer is
flushed, the pod signs off, the pool is closed. From the first signal on the API reports that the
pod is not ready, and takes no more work. Deadlines count from the signal: see
`cortex.runtime.liveness.drain`.

Long because it alone knows all actors of a pod.
"""

import gc
import os
import random
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

import psutil
import structlog
import trio

import cortex
from cortex.actors.phases import Outcome, Phase, PhaseRecord, ShutdownLog, phase
from cortex.actors.restart import RestartPolicy
from cortex.actors.runner import Run
from cortex.actors.supervisor import Supervisor, open_supervisor
from cortex.actors.ticker import Pacer
from cortex.config import Settings, host_and_port
from cortex.crash_points import crash_point
from cortex.domain.clock import Chance
from cortex.domain.drain import DrainPhase, Liveness, ReadyChecks
from cortex.domain.policy import RuntimeConfig
from cortex.durable.attempt import Services
from cortex.durable.threads import left_threads
from cortex.postgres.bridge import OpensPort, Port, open_port
from cortex.postgres.database import Profile
from cortex.runtime.calls.arrivals import StoreArrivals
from cortex.runtime.calls.breakers import BreakerRegistry
from cortex.runtime.calls.pending_settlements import PendingSettlements
from cortex.runtime.clients.answer_listener import AnswerListener
from cortex.runtime.clients.answer_sender import AnswerSender
from cortex.runtime.clients.job_feeds import JobFeeds
from cortex.runtime.clients.result_waiters import ResultWaiters
from cortex.runtime.commit.committer import Committer
from cortex.runtime.hints import POD_LOST
from cortex.runtime.interpreter_hooks import hooked
from cortex.runtime.isolation.fork_server import ForkServer
from cortex.runtime.isolation.isolation import Isolation
from cortex.runtime.jobs.deadlines import JobDeadlines
from cortex.runtime.jobs.deaf_handlers import DeafHandlers
from cortex.runtime.jobs.dispatcher import Dispatcher
from cortex.runtime.jobs.idle_actors import IdleActors
from cortex.runtime.jobs.job_actor import JobActors
from cortex.runtime.jobs.policies import Policies, begin
from cortex.runtime.jobs.receipts import Receipts
from cortex.runtime.liveness.database_watch import DatabaseWatch
from cortex.runtime.liveness.drain import Drain, Shutdown, sign_off
from cortex.runtime.liveness.heartbeat import Heartbeat
from cortex.runtime.liveness.listener import BREAKER, CONTROL, LIMIT, OUTBOX, WAKES, Listener
from cortex.runtime.liveness.takeover import TakeOver
from cortex.runtime.logs.capture import captured
from cortex.runtime.logs.writer import LogWriter
from cortex.runtime.loop_lag import LoopLag
from cortex.runtime.maintenance.control import Control
from cortex.runtime.maintenance.drain_requests import DrainRequests
from cortex.runtime.maintenance.limits import Limits
from cortex.runtime.maintenance.recorder import RunRecorder
from cortex.runtime.maintenance.runners import Means, PodMeans, runners, suspended, wake
from cortex.runtime.maintenance.schedules import declare
from cortex.runtime.maintenance.step_reports import StepReports
from cortex.runtime.metrics.metrics import Metrics
from cortex.runtime.metrics.metrics_page import MetricsPage
from cortex.runtime.open_resources import OpenResources
from cortex.runtime.pod_parts import PodParts, preload
from cortex.runtime.pod_ready import EVERYTHING, Intake, Ready, Worker, own_name
from cortex.runtime.pod_services import services_of
from cortex.runtime.running import RunningJobs
from cortex.runtime.self_fence import SelfFence
from cortex.runtime.tick_pod import end_when_idle
from cortex.runtime.tracing.start import log_exporter, span_exporter
from cortex.store import pods
from cortex.store.background.runners import DISPATCH
from cortex.store.pods import Vitals

RESTART: Final = RestartPolicy(is_permanent=True)
GC_THRESHOLDS: Final = (50_000, 2, 30)
"""For the collector of cycles. A batch of 500 jobs allocates about 15,000 objects, which live until
its ends are recorded: several batches must not be scanned in vain. The second generation comes
soon, since it scans what a thousand new connections hold, and nothing runs meanwhile."""
POOLED: Final = "behind a pooler: no notifications, and only silence shows that a pod has died"
_log = structlog.get_logger(__name__)


async def run_pod(
    settings: Settings,
    *,
    dsn: str,
    parts: PodParts,
    chance: Chance,
    shutdown: Shutdown,
    on_ready: Callable[[Ready], None] = lambda _: None,
    opens_port: OpensPort = open_port,
    fork_server: ForkServer | None = None,
    name: str | None = None,
    worker: Worker | None = None,
    intake: Intake = EVERYTHING,
    http_socket: socket.socket | None = None,
) -> ShutdownLog:
    """Run a pod until shutdown is requested; return how each phase of it ended.

    `name` is for people, HOST:PID by default; `opens_port` opens the database; `fork_server` makes
    the processes of isolated jobs: without it every job runs in this one. `worker`: it is one of
    several processes with this name. `http_socket` listens already on the address of setting
    `http`.

    Raises what starting raises (`CortexError`), or an exception group when an actor crashed too
    often. Jobs of a pod that ends in any way go on elsewhere.
    """
    profile = Profile.of_pod(dsn, name := name or own_name())
    log = ShutdownLog()
    with shutdown.starting, hooked(), captured():
        async with opens_port(profile, rng=chance.rng) as port:
            pod = _Pod(
                settings,
                port=port,
                parts=parts,
                chance=chance,
                shutdown=shutdown,
                log=log,
                name=name,
                fork_server=fork_server,
                worker=worker,
                intake=intake,
            )
            await pod.run(on_ready, http_socket)
            began, left_s = trio.current_time(), pod.drain.left_s(DrainPhase.SIGN_OFF)
        log.add(PhaseRecord("pool", Outcome.CLEAN, trio.current_time() - began, left_s))
    return log


class _Pod:
    """Builds the actors and opens the phases around them."""

    _isolation: Isolation | None = None
    _has_signed_off = False
    _claimed_count = 0

    def __init__(
        self,
        settings: Settings,
        *,
        port: Port,
        parts: PodParts,
        chance: Chance,
        shutdown: Shutdown,
        log: ShutdownLog,
        name: str,
        fork_server: ForkServer | None,
        worker: Worker | None,
        intake: Intake,
    ) -> None:
        rng = chance.rng
        self._intake = intake
        self._worker = worker
        self._fork_server = fork_server
        self._settings = settings
        self._port = port
        self._parts = parts
        self._chance = chance
        self._rng = rng
        self._shutdown = shutdown
        self._log = log
        self._supervisor = partial(open_supervisor, rng=rng, restart=RESTART, log=log, grace_s=0)
        self._record = self._introduction(name)
        running = self._running = RunningJobs(slots=settings.slots)
        self._self_fence = _self_fence(settings)
        self._metrics = Metrics(job_types=parts.registry.names, prices=parts.prices)
        self._watch = port.watch = DatabaseWatch(
            on_failure=self._metrics.database_failed,
            on_change=lambda: self._heartbeat.beat_soon(),  # noqa: PLW0108 -- made below
        )
        self._loop_lag = LoopLag(self._metrics.loop_late)
        self._process = psutil.Process()
        self._build_writers()
        self._receipts = Receipts(port, workspaces=parts.workspaces, unix_ms=chance.unix_ms)
        self._arrivals = StoreArrivals(port)
        self._control = Control(port, pod_id=self._record.id, running=self._running, rng=rng)
        self._step_reports = StepReports(port, pod_id=self._record.id, running=running, rng=rng)
        self._heartbeat = Heartbeat(
            port,
            pod=self._record,
            running=self._running,
            self_fence=self._self_fence,
            vitals=self._vitals,
            interval_s=settings.heartbeat_s,
            rng=rng,
        )
        beat = self._heartbeat.beat_soon
        self.drain = Drain(
            drain_s=settings.drain_s, close_s=settings.close_s, running=running, on_change=beat
        )
        self.drain.finishing = [r.finish for r in self._own_runners if r.runs_until_sign_off]
        self._drain_requests = DrainRequests(
            port, pod_id=self._record.id, running=self._running, on_change=beat, rng=rng
        )
        self._dispatcher: Dispatcher | None = None
        self._idle_actors = IdleActors()
        self._listener = self._hint_listener()
        self._open_to_clients(rng)
        self._observe()

    def _hint_listener(self) -> Listener:
        return Listener(
            self._port,
            pod_id=self._record.id,
            rng=self._rng,
            on_task=self._work_came,
            on_control=partial(self._notified, CONTROL),
            on_breaker=partial(self._notified, BREAKER),
            on_outbox=partial(self._notified, OUTBOX),
            on_wakes=partial(self._notified, WAKES),
            on_limit=partial(self._notified, LIMIT),
        )

    def _observe(self) -> None:
        """List what acts on changes of the running jobs; the dispatcher follows with the intake."""
        self._deadlines = JobDeadlines(self._running)
        self._running.observers += [
            self._deadlines,
            self._heartbeat,
            self._deaf_handlers,
            self._drain_requests,
            self._waiters,
        ]

    def _build_writers(self) -> None:
        """Build what writes to the record: for running jobs, and for the jobs of all pods."""
        self._breakers = BreakerRegistry(
            self._port,
            pod_id=self._record.id,
            rng=self._rng,
            on_opened=self._metrics.breaker_opened,
            retry_after_max_s=self._settings.retry_after_max_s,
        )
        self._unsettled = PendingSettlements(self._port)
        self._deaf_handlers = DeafHandlers(
            self._port,
            pod_id=self._record.id,
            running=self._running,
            on_worn_out=self._wear_out,
        )
        self._tracing = span_exporter(self._port, pod=self._record, chance=self._chance)
        exporter = log_exporter(pod=self._record, chance=self._chance)
        self._log_writer = LogWriter(self._port, exporter, rng=self._rng, metrics=self._metrics)
        self._runners = runners(
            Means(
                port=self._port,
                chance=self._chance,
                unsettled=self._unsettled,
                settings=self._settings,
                handlers=self._parts.handlers,
                models=self._parts.batch_models,
                pod=PodMeans(
                    id=self._record.id,
                    self_fence=self._self_fence,
                    metrics=self._metrics,
                    breakers=self._breakers,
                    trouble=lambda: self._watch.report,
                    deliveries=self._tracing,
                ),
            ),
        )
        self._recorder = RunRecorder(self._port, holder=self._record.name, rng=self._rng)
        for each in self._runners:
            each.on_run = self._ran
        # The pod of a tick starts none, the tick runs each by itself: except what lets the next
        # jobs through when others end.
        self._own_runners = tuple(
            each
            for each in self._runners
            if self._intake.claims_max is None or each.name == Limits.name
        )
        self._committer = Committer(
            self._port,
            pod_id=self._record.id,
            rng=self._rng,
            metrics=self._metrics,
            code_wait_s=self._settings.code_wait_s,
            on_suspended=partial(suspended, self._runners),
        )

    def _wear_out(self) -> None:
        self._shutdown.is_worn_out = True
        if not self._shutdown.stop.is_set():
            self._shutdown.request()

    def _ran(self, run: Run) -> None:
        if run.name == DISPATCH:
            self._claimed_count += run.items
        self._recorder.add(run)
        self._metrics.runner_ran(run, unix_s=self._chance.unix_ms() / 1000)

    def _introduction(self, name: str) -> pods.Pod:
        self._code = self._parts.code
        return pods.Pod(
            id=self._chance.new_id(),
            lock_key=self._rng.getrandbits(63),
            name=name,
            version=cortex.__version__,
            job_types=self._parts.registry.names,
            slots=self._settings.slots,
            liveness=Liveness.of(is_pooled=self._port.is_pooled),
            confinement=self._parts.confinement,
            tools=tuple(self._parts.tools.names),
            peer_check_s=self._settings.peer_check_s,
            heartbeat_s=self._settings.heartbeat_s,
            zombie_s=self._settings.zombie_s,
            sweep_s=self._settings.sweep_s,
            group_id=None if self._worker is None else self._worker.group_id,
            worker=None if self._worker is None else self._worker.number,
            code=self._code,
        )

    def _open_to_clients(self, rng: random.Random) -> None:
        """Build the services for clients that wait for jobs, follow them, and read the metrics."""
        port = self._port
        self._metrics_page = MetricsPage(
            port,
            metrics=self._metrics,
            running=self._running,
            breakers=self._breakers.states,
            trouble=lambda: self._watch.report,
        )
        self._waiters = ResultWaiters(port)
        self._answers = AnswerListener(port, new_id=self._chance.new_id, rng=rng)
        self._feeds = JobFeeds(port, watch=self._answers.watch, unwatch=self._answers.unwatch)
        self._answers.hear = self._feeds.hear
        self._sender = AnswerSender(
            port,
            pod_id=self._record.id,
            running=self._running,
            receipts=self._receipts,
            rng=rng,
        )

    @property
    def _config(self) -> RuntimeConfig:
        return RuntimeConfig(policies=self._parts.registry.policies, prices=self._parts.prices)

    async def run(
        self, on_ready: Callable[[Ready], None], http_socket: socket.socket | None
    ) -> None:
        policies = await begin(
            self._port,
            config=self._config,
            code=self._code,
            limits=self._parts.registry.limits,
            rules=self._parts.registry.rules,
            rng=self._rng,
        )
        left = self.drain.left_s
        async with AsyncExitStack() as stack:
            liveness = await stack.enter_async_context(
                self._supervisor("liveness", bound_s=partial(left, DrainPhase.SIGN_OFF))
            )
            stack.push_async_callback(self._sign_off)
            if self._port.is_pooled:
                _log.warning(POOLED, zombie_s=self._settings.zombie_s)
            for first in (
                *(self._loop_lag, self._deaf_handlers, self._deadlines),
                *(self._watch, self._metrics_page, self._recorder, self._tracing),
                *(self._log_writer.exporter, self._log_writer, self._heartbeat),
            ):
                await liveness.start(first)
            if self._intake.only is None:
                schedules = self._parts.registry.schedules
                await declare(self._port, schedules, self._record, rng=self._rng)
            self._isolation = await self._isolate(liveness)
            for each in (self._waiters, self._feeds, self._answers, self._sender):
                await liveness.start(each)
            for hears in (self._listener, self._control, self._drain_requests, self._breakers):
                await liveness.start(hears)
            await liveness.start(self._step_reports)
            for runner in filter(lambda one: one.runs_until_sign_off, self._own_runners):
                await liveness.start(runner)
            writers = await stack.enter_async_context(
                self._supervisor("writers", grace_s=partial(left, DrainPhase.FLUSH))
            )
            await writers.start(self._committer, restart=RestartPolicy())
            stack.callback(self._committer.close)
            stack.callback(self.drain.enter, DrainPhase.FLUSH)
            url = await self._serve_http(stack, http_socket)
            await self._open_resources(stack, liveness)
            stack.push_async_callback(self._parts.tools.close)
            level = await stack.enter_async_context(
                phase("hand_back", grace_s=partial(left, DrainPhase.HAND_BACK), log=self._log)
            )
            async with self._supervisor(
                "intake", bound_s=partial(left, DrainPhase.INTAKE)
            ) as intake:
                await self._start_intake(intake, level, policies)
                # imports stay in memory: the collector need not scan them again and again
                gc.freeze()
                gc.set_threshold(*GC_THRESHOLDS)
                record, worker = self._record, self._worker  # workers share the log
                at = {} if worker is None else {"worker": worker.number, "pid": os.getpid()}
                _log.info("pod ready", pod=record.name, id=str(record.id), slots=record.slots, **at)
                on_ready(self._ready(liveness.level.nursery, url))
                if (work := self._parts.preload) is not None:
                    liveness.level.nursery.start_soon(preload, work, name="preload")
                await self._shutdown.stop.wait()
            # Beside the drain: a claim that hangs must not hold up the running jobs.
            self.drain.enter(DrainPhase.JOBS)
            await self.drain.is_over.wait()
            self._idle_actors.close()

    def _ready(self, nursery: trio.Nursery, url: str | None) -> Ready:
        return Ready(
            port=self._port,
            pod=self._record.name,
            job_types=self._record.job_types,
            nursery=nursery,
            waiters=self._waiters,
            feeds=self._feeds,
            metrics=self._metrics_page,
            claimed=lambda: self._claimed_count,
            checks=self._ready_checks,
            http=url,
        )

    async def _open_resources(self, stack: AsyncExitStack, level: Supervisor) -> None:
        """Open the application's resources until the stack ends."""
        resources = OpenResources(
            self._parts.registry.resources,
            level.level.nursery,
            on_failure=self._wear_out,
            left_s=partial(self.drain.left_s, DrainPhase.FLUSH),
        )
        stack.push_async_callback(resources.close)
        await resources.open()

    async def _serve_http(
        self, stack: AsyncExitStack, listening: socket.socket | None
    ) -> str | None:
        """Serve the API, if configured; return its address."""
        if self._settings.http is None:
            return None
        # Without the API the pod does not load a web server: that saves a tenth of a second.
        from cortex.http.framework.api import PodView  # noqa: PLC0415
        from cortex.http.server import api_server  # noqa: PLC0415

        host, number = host_and_port(self._settings.http)
        worker = self._worker
        server = api_server(
            self._port,
            chance=self._chance,
            pod=PodView(
                name=self._record.name,
                checks=self._ready_checks,
                are_workers_ready=(lambda: True) if worker is None else worker.are_all_ready,
                trouble=lambda: self._watch.report,
                draining=self._shutdown.stop,
                drain=lambda: self.drain.status,
                drain_request=lambda: self._running.drain_request,
                result=self._waiters.result,
                follow=self._feeds.follow,
                exposition=self._metrics_page.exposition if worker is None else worker.exposition,
                answered=self._metrics.http_answered,
                find_type=self._parts.registry.find,
                workspaces=self._parts.workspaces,
                folder_roots=self._settings.folder_roots,
                proxies=self._settings.proxies,
            ),
            host=host,
            number=number,
            listening=listening,
        )
        level = await stack.enter_async_context(
            self._supervisor("http", bound_s=partial(self.drain.left_s, DrainPhase.FLUSH))
        )
        await level.start(server)
        stack.push_async_callback(server.close)
        return server.url

    def _ready_checks(self) -> ReadyChecks:
        stays, is_answered = not self._shutdown.stop.is_set(), self._watch.report is None
        may_claim = self._dispatcher is not None and self._dispatcher.may_claim
        return ReadyChecks(
            database=self._self_fence.is_sure and is_answered,
            claiming=may_claim and is_answered and stays,
            not_draining=stays and not self._running.is_drain_requested,
        )

    def _services(self, policies: Policies) -> Services:
        return services_of(
            parts=self._parts,
            port=self._port,
            pod_id=self._record.id,
            policies=policies,
            breakers=self._breakers,
            unsettled=self._unsettled,
            receipts=self._receipts,
            committer=self._committer,
            self_fence=self._self_fence,
            arrivals=self._arrivals,
            runners=self._runners,
            metrics=self._metrics,
            tracing=self._tracing,
            log=self._log_writer.buffer,
            chance=self._chance,
            signer=self._settings.signer,
        )

    async def _start_intake(self, intake: Supervisor, level: Phase, policies: Policies) -> None:
        settings, port, pod_id = self._settings, self._port, self._record.id
        actors = JobActors(
            port=port,
            committer=self._committer,
            registry=self._parts.registry,
            services=self._services(policies),
            policies=policies,
            receipts=self._receipts,
            running=self._running,
            rng=self._rng,
            deaths_max=settings.deaths_max,
            isolation=self._isolation,
            metrics=self._metrics,
            idle=self._idle_actors,
        )
        dispatcher = Dispatcher(
            port,
            pod_id=pod_id,
            config_id=policies.config_id,
            tools=self._parts.tools.names,
            actors=actors,
            jobs_nursery=level.nursery,
            self_fence=self._self_fence,
            pacer=Pacer(rng=self._rng),
            poll_s=settings.poll_s,
            on_run=self._ran,
            only=self._intake.only,
        )
        self._running.observers.append(dispatcher)
        for each in (one for one in self._own_runners if not one.runs_until_sign_off):
            await intake.start(each)
        takeover = TakeOver(
            port,
            pod_id=pod_id,
            self_fence=self._self_fence,
            peer_check_s=settings.peer_check_s,
            settle_s=settings.settle_s,
            deaths_max=settings.deaths_max,
            rng=self._rng,
            metrics=self._metrics,
            on_taken=partial(wake, self._runners, POD_LOST),
        )
        await intake.start(takeover)
        self._shutdown.has_started = True  # from now on there may be something to drain
        level.nursery.start_soon(self.drain.run, self._shutdown, self._log, name="drain")
        if self._intake.claims_max is not None:
            dispatcher.claims_left = self._intake.claims_max
            watch = partial(
                end_when_idle,
                running=self._running,
                dispatcher=dispatcher,
                takeover=takeover,
                shutdown=self._shutdown,
            )
            intake.level.nursery.start_soon(watch, name="end when idle")
        await intake.start(dispatcher)
        self._dispatcher = dispatcher

    async def _isolate(self, level: Supervisor) -> Isolation | None:
        """Start to run jobs in processes of their own, if there is a fork server."""
        if self._fork_server is None:
            return None
        isolation = Isolation(
            self._fork_server,
            slots=self._settings.isolated_slots,
            memory_mb=self._settings.isolated_mb,
            committer=self._committer,
            running=self._running,
        )
        await level.start(self._fork_server)
        await level.start(isolation)
        return isolation

    def _work_came(self, hint: str) -> None:
        if self._dispatcher is not None:
            self._dispatcher.hint(promote=hint == "queued")

    def _notified(self, channel: str) -> None:
        wake((self._control, self._drain_requests, self._breakers, *self._runners), channel)
        if channel == CONTROL:
            self._sender.wake()
        if channel == WAKES:
            self._arrivals.wake()

    async def _sign_off(self) -> None:
        """Sign off, also when the start is cut short, so that no other pod waits for this one.

        The jobs that the pod stopped while it was not sure of itself are still its own, and this is
        no pod death: while the database does not answer, the pod keeps trying as long as it may.
        """
        self.drain.enter(DrainPhase.SIGN_OFF)
        self._running.give_up_posted()
        is_answered = self._self_fence.is_sure or self._watch.report is None
        may_owe = self._running.lost_count > 0
        if is_answered or may_owe or not self._shutdown.has_started:
            with trio.move_on_after(self.drain.left_s(DrainPhase.SIGN_OFF), shield=True):
                await sign_off(self._say_goodbye, may_owe=may_owe, rng=self._rng)
        if not self._has_signed_off:
            self.drain.log_left_behind()
        await self._log_writer.flush(self.drain.left_s(DrainPhase.SIGN_OFF))
        await self._tracing.flush(self.drain.left_s(DrainPhase.SIGN_OFF))

    async def _say_goodbye(self) -> None:
        if self._dispatcher is not None:
            await self._dispatcher.release_orphans()
        await self._unsettled.settle()
        crash_point("before_sign_off")
        await self._port(pods.leave, self._record.id, has_run=self._running.has_run)
        self._has_signed_off = True
        crash_point("after_sign_off")

    def _vitals(self) -> Vitals:
        is_draining = self._shutdown.stop.is_set() or self._running.is_drain_requested
        return Vitals(
            state="DRAINING" if is_draining else "READY",
            loop_lag_ms=self._loop_lag.take_ms(),
            rss_bytes=self._process.memory_info().rss,
            hint_latency_ms=self._listener.latency_ms,
            drain=self.drain.status,
            trouble=self._watch.report,
            has_run=self._running.has_run,
            threads_lost=left_threads(),
        )


def _self_fence(s: Settings) -> SelfFence:
    return SelfFence(fence_s=s.fence_s, settle_s=s.settle_s, lease_s=s.lease_s, fresh_s=s.fresh_s)
