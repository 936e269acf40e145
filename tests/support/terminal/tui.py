"""The terminal UI under test: a fake cluster, a clock moved by hand, and what the screen shows."""

import asyncio
import functools
import heapq
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Final
from uuid import UUID

import attrs
from textual import events
from textual.keys import _character_to_key
from textual.pilot import Pilot

from cortex.domain.bulk import BulkRequest, BulkVerb
from cortex.domain.errors import ConflictError, CortexError, UnavailableError
from cortex.domain.job import JobStatus
from cortex.domain.job_filter import UNFINISHED, JobCursor, JobFilter, Refusal
from cortex.store.job_choice import JobChoice
from cortex.store.job_pages import JobPage
from cortex.store.job_refresh import ListReading
from cortex.store.screen_head import Head
from cortex_tui.app import CortexApp
from cortex_tui.backend.jobs import StoreJobs
from cortex_tui.backend.store import StoreBackend
from cortex_tui.key_table import KeyTable
from cortex_tui.session import Session
from tests.support.eventually import eventually_asyncio
from tests.support.people import user
from tests.support.records.job_rows import a_listed_job
from tests.support.servers.postgres import run_asyncio
from tests.support.terminal.tui_approvals import FakeApprovals
from tests.support.terminal.tui_dead import FakeDead, FakePulse
from tests.support.terminal.tui_effects import FakeEffects
from tests.support.terminal.tui_job import FakeJob
from tests.support.terminal.tui_logs import FakeLogs
from tests.support.terminal.tui_messages import FakeMessages
from tests.support.terminal.tui_pods import FakeBreakers, FakePods, FakeQueues
from tests.support.terminal.tui_schedules import FakeSchedules

TURNS: Final = 100
"""Turns of the event loop in which everything that was ready has run, at the latest."""
CALM: Final = 3
"""After this many turns without other work, the app is at rest."""
PAINTS: Final = 3
"""A new layout may need another one."""


class ManualClock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self._now = 1_000_000.0
        self.late_s = 0.0
        """How long keys wait before they are handled."""
        self._order = count()
        self._sleepers: list[tuple[float, int, asyncio.Event]] = []

    def now(self) -> float:
        return self._now

    def came(self, waited_s: float) -> float:  # noqa: ARG002 -- by no clock of ours
        return self._now - self.late_s

    async def wait(self, event: asyncio.Event, *, until: float) -> None:
        if until <= self._now:
            await asyncio.sleep(0)
            return
        due = asyncio.Event()
        heapq.heappush(self._sleepers, (until, next(self._order), due))
        waits = [asyncio.ensure_future(each.wait()) for each in (due, event)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    def move(self, seconds: float) -> None:
        """Let time pass, and wake those that wait for an instant until then."""
        self._now += seconds
        while self._sleepers and self._sleepers[0][0] <= self._now:
            heapq.heappop(self._sleepers)[2].set()


def instant(clock: ManualClock) -> datetime:
    return datetime.fromtimestamp(clock.now(), UTC)


@attrs.define
class FakeBackend(StoreBackend, StoreJobs):
    """A cluster as the screens see it, changed by the test; every statement is counted."""

    clock: ManualClock
    rows: dict[UUID, dict[str, Any]] = attrs.field(factory=dict)
    heads: dict[str, Any] = attrs.field(factory=dict)
    """What the head says besides nothing."""
    asked: list[str] = attrs.field(factory=list)
    acted: list[tuple[str, UUID, str]] = attrs.field(factory=list)
    begun: list[tuple[BulkRequest, str]] = attrs.field(factory=list)
    """Bulk operations, and by whom."""
    """Batches: what, on which jobs, by whom and why."""
    reasons: dict[UUID, str] = attrs.field(factory=dict)
    """What keeps jobs from running."""
    error: CortexError | None = None
    """What every call fails with."""
    ahead_s: float = 0.0
    """How far the database's clock is ahead of the one that the test moves."""
    gate: asyncio.Event | None = None
    """Acts wait for it."""
    page_gate: asyncio.Event | None = None
    """Pages that were read wait for it."""
    one: FakeJob = attrs.field(
        default=attrs.Factory(
            lambda s: FakeJob(row=s.rows.get, ask=s._ask, stands_above=s._head), takes_self=True
        )
    )
    """What is asked of a single job."""
    approvals: FakeApprovals = attrs.field(
        default=attrs.Factory(
            lambda self: FakeApprovals(clock=self.clock, check=self.check), takes_self=True
        )
    )
    pods: FakePods = attrs.field(
        default=attrs.Factory(
            lambda self: FakePods(clock=self.clock, check=self.check), takes_self=True
        )
    )
    queues: FakeQueues = attrs.field(
        default=attrs.Factory(
            lambda self: FakeQueues(clock=self.clock, check=self.check), takes_self=True
        )
    )
    breakers: FakeBreakers = attrs.field(
        default=attrs.Factory(
            lambda self: FakeBreakers(clock=self.clock, check=self.check), takes_self=True
        )
    )
    schedules: FakeSchedules = attrs.field(
        default=attrs.Factory(
            lambda self: FakeSchedules(clock=self.clock, check=self.check), takes_self=True
        )
    )
    logs: FakeLogs = attrs.field(
        default=attrs.Factory(
            lambda self: FakeLogs(clock=self.clock, check=self.check), takes_self=True
        )
    )
    messages: FakeMessages = attrs.field(
        default=attrs.Factory(
            lambda self: FakeMessages(clock=self.clock, check=self.check), takes_self=True
        )
    )
    effects: FakeEffects = attrs.field(
        default=attrs.Factory(
            lambda self: FakeEffects(clock=self.clock, check=self.check), takes_self=True
        )
    )
    dead: FakeDead = attrs.field(
        default=attrs.Factory(lambda self: FakeDead(self.clock, self._ask), takes_self=True)
    )
    pulse: FakePulse = attrs.field(
        default=attrs.Factory(lambda self: FakePulse(self.clock, self._ask), takes_self=True)
    )

    jobs: StoreJobs = attrs.field(init=False, repr=False, eq=False)
    job: FakeJob = attrs.field(init=False, repr=False, eq=False)

    # --- the test's side

    def add(self, number: int, **fields: Any) -> UUID:
        """Add a job; a larger number is newer."""
        job_id = UUID(int=number)
        began = datetime.fromtimestamp(1_000_000, UTC)
        status = JobStatus(fields.get("status", JobStatus.PENDING))
        is_over = status in {JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED}
        self.rows[job_id] = {
            "id": job_id,
            "type": "digest",
            "agent": "invoice-bot",
            "status": str(status),
            "attempt": 0,
            "retry_count": 0,
            "max_retries": 3,
            "checkpoint": {},
            "created_at": began + timedelta(milliseconds=number),
            "started_at": None,
            "finished_at": began + timedelta(seconds=1) if is_over else None,
            "next_retry_at": None,
            "heartbeat_at": None,
            "silent_after_s": 95.0,
            "zombie_s": 300.0,
            "run_at": began,
            "cancel_requested_at": None,
            "cancelled_by": None,
            "error_message": None,
            "error_code": None,
            "waiting_on": None,
            "tenant": "default",
            "queue_name": None,
            "last_error": None,
            "awaited": None,
            "pod": None,
            **fields,
        }
        return job_id

    def change(self, job_id: UUID, **fields: Any) -> None:
        self.rows[job_id] = {**self.rows[job_id], **fields}

    def down(self) -> None:
        self.error = UnavailableError("cannot reach the database")

    def check(self) -> None:
        if self.error is not None:
            raise self.error

    def up(self) -> None:
        self.error = None

    # --- the screens' side

    def __attrs_post_init__(self) -> None:
        self.jobs, self.job = self, self.one

    async def head(self) -> Head:
        self._ask("head")
        return self._head()

    def _head(self) -> Head:
        known: dict[str, Any] = {
            "approvals": 0,
            "effects": 0,
            "budgets": 0,
            "persons": 0,
            "pods_lost": 0,
            "first_expiry": None,
            "breakers": 0,
            "is_frozen": False,
            "dead": 0,
            "pods_ready": 5,
            "pods_living": 5,
            "jobs_about": len(self.rows),
        }
        now = instant(self.clock) + timedelta(seconds=self.ahead_s)
        return Head(now=now, **known | self.heads)

    async def page(self, which: JobFilter, *, before: JobCursor | None, limit: int) -> JobPage:
        self._ask("page")
        fits = self._fitting(which)
        if self.page_gate is not None:
            await self.page_gate.wait()
        if before is not None:
            fits = [row for row in fits if (row["created_at"], row["id"]) < (before.at, before.id)]
        return _page(fits[:limit], is_more=len(fits) > limit, last=limit - 1)

    async def page_up(self, which: JobFilter, *, after: JobCursor | None, limit: int) -> JobPage:
        self._ask("page_up")
        fits = self._fitting(which)
        if after is not None:
            fits = [row for row in fits if (row["created_at"], row["id"]) > (after.at, after.id)]
        return _page(fits[-limit:], is_more=len(fits) > limit, last=0)

    async def page_due(self, which: JobFilter, *, after: JobCursor | None, limit: int) -> JobPage:
        self._ask("page_due")
        fits = self._due(which)
        if after is not None:
            fits = [row for row in fits if _due(row) > (after.at, after.id)]
        return _page_due(fits[:limit], is_more=len(fits) > limit, last=limit - 1)

    async def page_due_up(
        self, which: JobFilter, *, before: JobCursor | None, limit: int
    ) -> JobPage:
        self._ask("page_due_up")
        fits = self._due(which)
        if before is not None:
            fits = [row for row in fits if _due(row) < (before.at, before.id)]
        return _page_due(fits[-limit:], is_more=len(fits) > limit, last=0)

    def _due(self, which: JobFilter) -> list[dict[str, Any]]:
        fits = self._fitting(which)
        return sorted((row for row in fits if row["status"] == JobStatus.RETRY), key=_due)

    async def seen(
        self, ids: Sequence[UUID], *, since: JobCursor | None, newer_max: int
    ) -> ListReading:
        self._ask("seen")
        newer = [
            row
            for row in self.rows.values()
            if since is not None and (row["created_at"], row["id"]) > (since.at, since.id)
        ]
        return ListReading(
            jobs=[a_listed_job(self.rows[each]) for each in ids if each in self.rows],
            newer_count=min(len(newer), newer_max),
            head=self._head(),
        )

    async def whys(self, ids: Sequence[UUID]) -> Mapping[UUID, str]:
        self._ask("whys")
        return {each: self.reasons[each] for each in ids if each in self.reasons}

    async def cancel(self, job_id: UUID, *, by: str) -> str:
        await self._act("cancel", job_id, by)
        if JobStatus(self.rows[job_id]["status"]).is_terminal:
            raise ConflictError(f"job {job_id} is {self.rows[job_id]['status']} already")
        self.change(job_id, status="CANCELLED", cancelled_by=by)
        return "cancelled"

    async def signal(self, job_id: UUID, name: str, payload: str, *, by: str) -> str:
        await self._act(f"signal {name} {payload}", job_id, by)
        if JobStatus(self.rows[job_id]["status"]).is_terminal:
            raise ConflictError(f"job {job_id} is {self.rows[job_id]['status']}: it has ended")
        return f"{name} sent"

    async def retry(self, job_id: UUID, *, by: str) -> str:
        await self._act("retry", job_id, by)
        if JobStatus(self.rows[job_id]["status"]).is_terminal:
            raise ConflictError(f"job {job_id} is {self.rows[job_id]['status']}: it has ended")
        return "tries again now"

    async def choose(self, verb: BulkVerb, which: JobFilter, *, limit: int) -> JobChoice:
        if which.is_about_letters:
            return self.dead.chosen(which, limit=limit)
        if not which.statuses:
            which = which.with_states(*UNFINISHED)
        found = [row["id"] for row in self._fitting(which)]
        choice = await self.choose_marked(verb, found)
        has_more = len(choice.job_ids) > limit
        return attrs.evolve(choice, job_ids=choice.job_ids[:limit], has_more=has_more)

    async def choose_marked(self, verb: BulkVerb, job_ids: Sequence[UUID]) -> JobChoice:
        if self.gate is not None:
            await self.gate.wait()
        self._ask(f"choose {verb}")
        failed = [each for each in job_ids if self._is_failed(verb, each)]
        over = [each for each in job_ids if JobStatus(self.rows[each]["status"]).is_terminal]
        chosen = [each for each in job_ids if each not in over or each in failed]
        refused = {Refusal.ENDED: len(over) - len(failed)} if len(over) > len(failed) else {}
        return JobChoice(job_ids=chosen, refused=refused, has_more=False, failed=len(failed))

    def _is_failed(self, verb: BulkVerb, job_id: UUID) -> bool:
        return verb is BulkVerb.RETRY and self.rows[job_id]["status"] == JobStatus.FAILED

    async def begin(self, request: BulkRequest, *, by: str) -> UUID:
        if self.gate is not None:
            await self.gate.wait()
        self._ask("begin")
        request.check()
        self.begun.append((request, by))
        return UUID(int=0xB0 + len(self.begun))

    async def _act(self, what: str, job_id: UUID, by: str) -> None:
        if self.gate is not None:
            await self.gate.wait()
        self._ask(what)
        self.acted.append((what, job_id, by))

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if self.error is not None:
            raise self.error

    def _fitting(self, which: JobFilter) -> list[dict[str, Any]]:
        rows = sorted(self.rows.values(), key=lambda r: (r["created_at"], r["id"]), reverse=True)
        states = which.statuses
        return [row for row in rows if not states or JobStatus(row["status"]) in states]


def _page(rows: list[dict[str, Any]], *, is_more: bool, last: int) -> JobPage:
    place = JobCursor(rows[last]["id"], rows[last]["created_at"]) if is_more else None
    return JobPage(jobs=list(map(a_listed_job, rows)), next=place, is_short=False)


def _page_due(rows: list[dict[str, Any]], *, is_more: bool, last: int) -> JobPage:
    place = JobCursor(rows[last]["id"], rows[last]["next_retry_at"]) if is_more else None
    return JobPage(jobs=list(map(a_listed_job, rows)), next=place, is_short=False)


def _due(row: dict[str, Any]) -> tuple[datetime, UUID]:
    return row["next_retry_at"], row["id"]


@attrs.define
class Seat:
    """Someone in front of the app."""

    app: CortexApp
    pilot: Pilot[int]
    clock: ManualClock

    async def press(self, *keys: str) -> None:
        """Press keys, by their signs or Textual's names, each when the one before is taken in."""
        for key in keys:
            self.app.post_message(pressed(key))
            await self.settle()

    async def type(self, text: str) -> None:
        await self.press(*text)

    async def pass_time(self, seconds: float = 0.25) -> None:
        """Let time pass in steps of a look; after each the app does what is due."""
        while seconds > 0:
            self.clock.move(min(seconds, 0.25))
            seconds -= 0.25
            await self.settle()

    async def until_found(self) -> None:
        """Wait until the palette in front has looked for all that was typed."""
        palette = self.app.screen

        def is_done() -> bool:
            looks = [each for each in self.app.workers if each.node is palette]
            return all(each.is_finished for each in looks)

        await eventually_asyncio(is_done, what="the palette has found what was typed")
        await self.settle()

    async def settle(self) -> None:
        """Let everything run that is ready, and be laid out and painted."""
        for _ in range(PAINTS):
            await calm()
            self.app.screen._on_timer_update()

    @property
    def lines(self) -> list[str]:
        """Lines of the screen."""
        return shown(self.app)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


async def calm() -> None:
    """Let the loop turn until no task is ready; turns cost a sixth of these tests otherwise."""
    ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
    still = 0
    for _ in range(TURNS):
        await asyncio.sleep(0)
        still = 0 if ready else still + 1
        if still == CALM:
            return


async def turns(count: int) -> None:
    """Let the loop turn so often."""
    for _ in range(count):
        await asyncio.sleep(0)


def pressed(key: str) -> events.Key:
    """Return what the driver makes of a key, as far as the tests press some."""
    if len(key) == 1:
        return events.Key(_character_to_key(key), key)
    return events.Key(key, {"enter": "\r", "escape": "\x1b", "backspace": "\x7f"}.get(key))


def shown(app: CortexApp) -> list[str]:
    """Return the lines of the screen in front as they go to the terminal."""
    update = app.screen._compositor.render_update(full=True)
    strips = getattr(update, "strips", [])
    return ["".join(segment.text for segment in strip).rstrip() for strip in strips]


@asynccontextmanager
async def sitting(
    cluster: FakeBackend,
    *,
    size: tuple[int, int] = (120, 40),
    keys: KeyTable | None = None,
    first: str = "jobs",
    **session: Any,
) -> AsyncIterator[Seat]:
    """Run the app on a fake cluster until the first jobs are shown."""
    known: dict[str, Any] = {"identity": user("ana", label="ana"), "clock": cluster.clock}
    known["recall_s"] = 0.0
    app = CortexApp(Session(**known | session), cluster, keys=keys, first=first)
    # Textual paints nothing for 50 ms after a change of screens, by a clock that no test moves.
    app.delay_update = lambda delay=0.0: None  # type: ignore[method-assign] # noqa: ARG005
    async with app.run_test(size=size) as pilot:
        seat = Seat(app, pilot, cluster.clock)
        await seat.settle()
        await seat.pass_time(1)
        yield seat


def on_asyncio(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test in a loop of asyncio: the others are trio's."""

    @functools.wraps(test)
    def run(*args: Any, **fixtures: Any) -> None:
        run_asyncio(lambda: test(*args, **fixtures))

    return run
