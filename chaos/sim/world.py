"""Everything of one seed: its machines, the world outside, and the events, to the end."""

import json
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs
import outcome
import trio

from chaos.history import Event, Type
from chaos.sim.clock import HOST, Clock, Turns, seed_trio
from chaos.sim.host import Host
from chaos.sim.machine import Machine
from chaos.sim.notices import Notices
from chaos.sim.outside import Ledger, Model, Receiver
from chaos.sim.pace import Pace
from chaos.sim.people import People
from chaos.sim.places import Place, TickPlace
from chaos.sim.plan import Plan
from chaos.sim.server import Server
from chaos.sim.storm import Storm
from chaos.sim.transcript import Transcript, query_names
from chaos.workloads import app
from chaos.workloads.messages import BY_STEP, HOOK, SUBSCRIBE, config_of_hook
from chaos.workloads.schedules import APPLY, NOW, PAUSE
from cortex.runtime.pod_parts import PodParts, standard_parts

T = TypeVar("T")

SAMPLE_EVERY_S: Final = 10.0
SAMPLE_S: Final = 5.0
REST_WITHIN_S: Final = 6 * 3600.0
"""After healing: an approval alone may take an hour, and an unknown effect may follow it."""
OPEN: Final = """
    SELECT (SELECT count(*) FROM cortex.job
            WHERE status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')) AS jobs,
           (SELECT count(*) FROM cortex.outbox
            WHERE status IN ('PENDING', 'PROCESSING')) AS messages,
           (SELECT count(*) FROM cortex.schedule_instant WHERE outcome = 'QUEUED') AS queued,
           (SELECT count(*) FROM cortex_worker.task) AS tasks
"""
SAMPLE: Final = """
    SELECT extract(epoch FROM cortex.now())::float8 AS now,
           (SELECT count(*) FROM cortex_worker.task WHERE state = 'READY') AS ready,
           (SELECT count(*) FROM cortex_worker.task WHERE state = 'LOCKED') AS locked,
           (SELECT coalesce(sum(slots), 0)::int FROM cortex.pod WHERE state = 'READY') AS slots,
           (SELECT coalesce(jsonb_agg(to_jsonb(s)), '[]')::text FROM (
               SELECT id AS job, extract(epoch FROM cortex.now() - heartbeat_at)::float8 AS for_s
               FROM cortex.job WHERE status = 'RUNNING' AND heartbeat_at IS NOT NULL
               ORDER BY heartbeat_at LIMIT 5) s) AS silent
"""
"""What `chaos.probe` would record, as far as it concerns simulated time."""
UNSEEN: Final[dict[str, Any]] = {
    "idle_in_transaction": 0,
    "slow": [],
    "snapshot_s": 0.0,
    "deadlocks": 0,
    "dead_rows": {},
    "size_bytes": 0,
    "oldest_due_s": 0.0,
    "runnable": 0.0,
}


class World:
    """One simulation, run once."""

    def __init__(
        self, plan: Plan, *, server: Server, clock: Clock, workspaces: Path, keeps: bool = False
    ) -> None:
        """`keeps` the lines of the transcript."""
        self.plan = plan
        self.seed = plan.seed
        self.server = server
        self.clock = clock
        self.transcript = Transcript(clock, is_kept=keeps)
        self.notices = Notices()
        self.pace = Pace(
            clock,
            query=server.sql,
            is_under_way=self._is_under_way,
            is_leaving=lambda: any(place.is_leaving for place in self.places.values()),
        )
        self.events: list[Event] = []
        self.logs: dict[str, list[str]] = {}
        self.problems: list[str] = []
        """What no checker would notice: pods that ended by themselves, no rest."""
        self.is_stormy = False
        self.has_worked = False
        """All jobs have ended once."""
        self.ledger = Ledger(self)
        self.receiver = Receiver(self)
        self.model = Model(self)
        self.parts: PodParts = attrs.evolve(
            standard_parts(apps=[app], workspaces=workspaces), client=self.model, preload=None
        )
        self.places = {name: Place(self, name) for name in plan.pods}
        self.places |= {name: TickPlace(self, name) for name in plan.ticks}
        self._people_machine = Machine(self, "people")
        self.turns: Turns
        self._nursery: trio.Nursery

    def run(self) -> None:
        """Play the plan; return when everything has ended."""
        trio.run(self._play, clock=self.clock)

    # --- used by its parts

    async def sleep(self, seconds: float) -> None:
        """Sleep, and wake exactly at the end."""
        self.pace.appoint(self.clock.now + seconds)
        await trio.sleep(seconds)

    def start_soon(self, work: Callable[..., Awaitable[None]], *args: object) -> None:
        """Run something in the background, until the end."""
        self._nursery.start_soon(work, *args)

    async def elsewhere(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do something outside of all machines: cancelling this only abandons it."""
        done: list[outcome.Outcome[T]] = []
        is_done = trio.Event()

        async def run() -> None:
            HOST.set(None)
            done.append(await outcome.acapture(work))
            is_done.set()

        self._nursery.start_soon(run)
        await is_done.wait()
        return done[0].unwrap()

    def note(self, process: str, kind: str, type_: Type = "info", /, **value: Any) -> None:
        self.pace.moved()
        at_s = round(self.clock.now, 6)
        self.events.append(Event(at_s=at_s, process=process, kind=kind, type=type_, value=value))
        self.transcript.add(process, kind, type_, value)

    def ran(self, machine: Host, query: str, args: tuple[object, ...], result: Any) -> None:
        """A statement ran for a machine."""
        name = query_names().get(query, query)
        self.transcript.ran(machine.name, name, args, result)
        if self.pace.ran(name, result) and (place := self.place_of(machine)) is not None:
            place.spring()

    def place_of(self, machine: Host) -> Place | None:
        """The place of this machine, unless it is the people's or dead."""
        return next((each for each in self.places.values() if each.machine is machine), None)

    def log(self, machine: Machine, level: str, event: MutableMapping[str, Any]) -> None:
        """A pod or a tick has logged a line."""
        error = event.pop("exc_info", None)
        line = " ".join(f"{name}={value}" for name, value in event.items())
        self.logs.setdefault(machine.name, []).append(f"{self.clock.now:.6f} {level} {line}")
        self.transcript.add(machine.name, level, line)
        # Jobs may fail: people deny, and programs do it on purpose. Checkers judge that.
        is_of_job = event.get("event") == "attempt failed" and "escalated" not in event
        if error is not None and level in ("error", "critical") and not is_of_job:
            trace = "".join(traceback.format_exception(error)) if error else ""
            self.problems.append(f"{machine.name} at {self.clock.now:.3f} s: {line}\n{trace}")

    # --- its course

    async def _play(self) -> None:
        self.turns = seed_trio(self.seed)
        with trio.CancelScope() as scope:
            self.clock.on_silence = lambda: self._deadlocked(scope)
            async with trio.open_nursery() as self._nursery:
                people = People(self, self._people_machine, ledger=self.ledger)
                self._nursery.start_soon(people.live)
                self._nursery.start_soon(self._watch)
                self.server.sql(SUBSCRIBE, HOOK, BY_STEP, config_of_hook("http://receiver"))
                self._schedule()
                for place in self.places.values():
                    self._nursery.start_soon(place.occupy)
                self.note("run", "phase", name="load")
                self.is_stormy = True
                await Storm(self, self.places).blow()
                self.is_stormy = False
                self.note("run", "phase", name="heal")
                await self._rest(people)
                people.leave()
                self.note("run", "phase", name="calm")
                await self.sleep(self.plan.calm_s)
                self.server.sql(PAUSE)
                await self._rest(people)
                self.note("run", "phase", name="quiet")
                await self._close()
                self.note("run", "phase", name="end")
                self._nursery.cancel_scope.cancel()

    async def _rest(self, people: People) -> None:
        """Wait until all jobs have ended, and all messages were sent."""
        healed_s = self.clock.now
        while not people.is_all_submitted or any((left := self.server.sql(OPEN)[0]).values()):
            if people.is_all_submitted and not left["jobs"] and not self.has_worked:
                self.has_worked = True  # messages may wait for hours: their receiver may be away
                self.note("run", "phase", name="worked")
            if self.clock.now > healed_s + REST_WITHIN_S:
                self.problems.append(f"no rest {REST_WITHIN_S:g} s after the last fault")
                self.note("run", "phase", name="stuck")
                return
            await trio.sleep(SAMPLE_EVERY_S)

    def _schedule(self) -> None:
        """Apply the schedules: their instants before the beginning are due."""
        for each in self.plan.schedules:
            first = each.first(self.server.sql(NOW)[0]["now"])
            self.server.sql(APPLY, *each.row(first))
            self.note("run", "schedule", **each.event(first))

    async def _close(self) -> None:
        async with trio.open_nursery() as nursery:
            for place in self.places.values():
                nursery.start_soon(place.close)

    def _is_under_way(self) -> bool:
        machines = (self._people_machine, *(place.machine for place in self.places.values()))
        return any(m is not None and not m.is_stopped and m.network.travelling for m in machines)

    async def _watch(self) -> None:
        """Sample the database from outside, repeatedly."""
        while True:
            sample = self.server.sql(SAMPLE)[0]
            sample["silent"] = json.loads(sample["silent"])
            up_s = self.clock.now - self.server.started_s
            at_s = round(self.clock.now, 6)
            value = {"up": True, "started_s": up_s, "sessions": 0, **UNSEEN, **sample}
            self.events.append(
                Event(at_s=at_s, process="probe", kind="activity", type="info", value=value)
            )
            await trio.sleep(SAMPLE_S)

    def _deadlocked(self, scope: trio.CancelScope) -> None:
        self.problems.append(f"every task waits for ever at {self.clock.now:.3f} s")
        scope.cancel()
