"""The history of a run as checkers use it: pods' lives, faults, phases, the clock."""

from collections.abc import Hashable, Iterable, Iterator
from datetime import datetime
from itertools import pairwise
from math import inf
from typing import Any, Final, Self, TypeVar
from uuid import UUID

from attrs import define, evolve, field, frozen

from chaos.evidence import Evidence, Row
from chaos.history import Event

T = TypeVar("T")

TERMINAL = frozenset({"COMPLETED", "FAILED", "CANCELLED"})
AT_REST = ("quiet", "stuck")
OVERLOADED = 4.0
"""Runnable processes per processor above which lateness is blamed on the machine."""
OVERLOAD_S = 5.0
"""How long an overload has effects."""
SETTLED_S = 2.0
"""A pod judges no other pod so soon after its own connection to the database was broken."""
LIFE_EVENTS = frozenset({"start", "ready", "signal", "exit", "worker-ready", "worker-exit"})
HARMLESS = frozenset({"SIGCONT", "SIGUSR1"})
"""Signals that change nothing for a running pod."""
EVERYBODYS = frozenset({"term-without-database", "too-many-connections"})
"""Faults of the database, although they name the pod that met them."""
CALM_AFTER_S = 8.0
"""The longest effect of a fault after its end: reconnect backoff of up to 5 s, and a slow start."""


@define(kw_only=True)
class Life:
    place: str
    life: int
    began_s: float
    ready_s: float | None = None
    record: str | None = None
    pod_id: UUID | None = None
    """Its boot id; None if it never registered."""
    ended_s: float = inf
    code: int | None = None
    signals: list[tuple[float, str]] = field(factory=list)
    pid: int | None = None
    """Of a worker: the pod has several, each with a life of its own."""

    @property
    def pod(self) -> str:
        """The pod, as its log is named."""
        return f"{self.place}.{self.life}"

    @property
    def title(self) -> str:
        return self.pod if self.pid is None else f"{self.pod} (worker {self.pid})"

    @property
    def died_s(self) -> float:
        """When it was killed, or when its end was noticed."""
        kills = [at_s for at_s, name in self.signals if name == "SIGKILL"]
        return min([self.ended_s, *kills])

    def first(self, name: str) -> float | None:
        return next((at_s for at_s, signal in self.signals if signal == name), None)

    def blows(self) -> Iterator[float]:
        """When it got a signal that disturbs it; signals that only report or continue do not."""
        is_stopped = False
        for at_s, name in self.signals:
            if name not in HARMLESS or (name == "SIGCONT" and is_stopped):
                yield at_s
            is_stopped = name == "SIGSTOP" or (is_stopped and name in HARMLESS - {"SIGCONT"})

    def paused(self) -> Iterator[tuple[float, float]]:
        """When it was stopped, as (from, to)."""
        since_s = None
        for at_s, name in self.signals:
            if name == "SIGSTOP" and since_s is None:
                since_s = at_s
            elif name in ("SIGCONT", "SIGKILL") and since_s is not None:
                yield since_s, at_s
                since_s = None
        if since_s is not None:
            yield since_s, self.ended_s


@frozen(kw_only=True)
class Trouble:
    number: int
    nemesis: str
    began_s: float
    ended_s: float
    places: frozenset[str]
    """The pods that it hit; empty for all pods, or the database."""


@frozen(kw_only=True)
class Timeline:
    """What the history contains besides the operations of clients."""

    lives: tuple[Life, ...]
    troubles: tuple[Trouble, ...]
    phases: dict[str, float]
    samples: tuple[Event, ...]
    """The probe's samples that reached the database."""
    _epoch_s: float | None
    """The run's start on the database's clock."""

    @classmethod
    def of(cls, evidence: Evidence) -> Self:
        samples = tuple(e for e in of_kind(evidence, "activity") if e.value.get("up"))
        return cls(
            lives=tuple(_lives(evidence)),
            troubles=tuple(_troubles(evidence)),
            phases={e.value["name"]: e.at_s for e in of_kind(evidence, "phase")},
            samples=samples,
            # A sample is stamped after it was taken, so the quickest sample is the most accurate.
            epoch_s=max((e.value["now"] - e.at_s for e in samples), default=None),
        )

    @property
    def is_at_rest(self) -> bool:
        """Whether the run waited for its jobs to end, rather than being cut short."""
        return any(name in self.phases for name in AT_REST)

    @property
    def has_clock(self) -> bool:
        """Whether the record's times can be compared with the history's."""
        return self._epoch_s is not None

    def at_s(self, at: datetime) -> float:
        """Convert a time of the record to seconds of the run; needs a clock."""
        if self._epoch_s is None:
            raise ValueError("no sample of the probe has the database's clock")
        return at.timestamp() - self._epoch_s

    def life_of(self, pod_id: UUID | None) -> Life | None:
        return next((life for life in self.lives if pod_id and life.pod_id == pod_id), None)

    def troubled(
        self, from_s: float, to_s: float, *, place: str | None = None, after_s: float = CALM_AFTER_S
    ) -> bool:
        """Whether a fault or its aftermath may have affected this pod, or any pod.

        A pod that is paused, killed or draining is in trouble too, and on an overloaded machine all
        are.
        """
        if self.is_overloaded(from_s, to_s):
            return True
        if any(
            trouble.began_s <= to_s
            and from_s <= trouble.ended_s + after_s
            and (place is None or not trouble.places or place in trouble.places)
            for trouble in self.troubles
        ):
            return True
        lives = (life for life in self.lives if place in (None, life.place))
        return any(from_s - after_s <= at_s <= to_s for life in lives for at_s in life.blows())

    def unrest(self) -> Iterator[tuple[float, float]]:
        """When the cluster cannot be judged: `troubled` for all pods, as (from, to)."""
        for trouble in self.troubles:
            yield trouble.began_s, trouble.ended_s + CALM_AFTER_S
        for life in self.lives:
            yield from ((at_s, at_s + CALM_AFTER_S) for at_s in life.blows())
        for sample in self.samples:
            if sample.value["runnable"] >= OVERLOADED:
                yield sample.at_s - OVERLOAD_S, sample.at_s + OVERLOAD_S

    def is_overloaded(self, from_s: float, to_s: float) -> bool:
        """Whether the machine was overloaded then."""
        return any(
            sample.value["runnable"] >= OVERLOADED
            for sample in self.samples
            if from_s - OVERLOAD_S <= sample.at_s <= to_s + OVERLOAD_S
        )

    def late_samples(self) -> Iterator[tuple[float, float, float]]:
        """When the probe waited for a sample, and how much longer than usual."""
        spans = [(one.at_s, next_.at_s) for one, next_ in pairwise(self.samples)]
        usual_s = quantile([end_s - begin_s for begin_s, end_s in spans], 0.5) or 0.0
        for begin_s, end_s in spans:
            yield begin_s, end_s, max(0.0, end_s - begin_s - usual_s)

    def troubled_besides(self, life: Life, from_s: float, to_s: float) -> bool:
        """Whether anything was broken meanwhile besides what ended this pod's work."""
        faults = any(
            trouble.began_s <= to_s
            and from_s <= trouble.ended_s + SETTLED_S
            and trouble.places != {life.place}
            for trouble in self.troubles
        )
        others = (other.signals for other in self.lives if other is not life)
        return faults or any(from_s < at_s <= to_s for all_ in others for at_s, _ in all_)


def of_kind(evidence: Evidence, kind: str, type_: str | None = None) -> Iterator[Event]:
    """Events of one kind, in order."""
    return (e for e in evidence.events if e.kind == kind and type_ in (None, e.type))


def grouped(rows: Iterable[T], key: str) -> dict[Any, list[T]]:
    """Rows grouped by one column, in order."""
    groups: dict[Hashable, list[T]] = {}
    for row in rows:
        groups.setdefault(row[key], []).append(row)  # type: ignore[index]
    return groups


def key_of(job: Row) -> str:
    """The idempotency key of a job of the run, from its payload."""
    payload = job["payload"]
    return str(payload.get("key", "")) if isinstance(payload, dict) else ""


def operations_of(job: Row) -> list[dict[str, Any]]:
    """The program of a job; empty if it runs none."""
    payload = job["payload"]
    return list(payload.get("operations", ())) if isinstance(payload, dict) else []


def effects_in_ledger(evidence: Evidence) -> Iterator[Row]:
    """The effects of programs that call the ledger, except those that a person resolved."""
    programs = {job["id"] for job in evidence.jobs if operations_of(job)}
    for effect in evidence.effects:
        is_a_job = effect["tool"] == "send_notification"  # see I28
        if effect["job_id"] in programs and effect["resolution"] is None and not is_a_job:
            yield effect


KILLED: Final = -9
"""The code of a process that SIGKILL has ended."""
KILLERS: Final = frozenset({"poison", "crash"})
"""Operations of programs that kill their own process."""
LOST: Final = ("pod_died", "lease_expired")
"""Outcomes of attempts whose pod ended without a word."""


def is_ended_by_plan(life: Life, timeline: Timeline, evidence: Evidence) -> bool:
    """Whether a pod was killed where the plan had it: at a crash point, or by a job's program.

    The signals that the run sends are in the life itself.
    """
    if life.code != KILLED:
        return False
    # The pod that dies at the point is started for it.
    at_point = any(
        trouble.nemesis == "point"
        and life.place in trouble.places
        and trouble.began_s <= life.began_s
        and life.ended_s <= trouble.ended_s + SETTLED_S
        for trouble in timeline.troubles
    )
    return at_point or _runs_killer(life, evidence)


def _runs_killer(life: Life, evidence: Evidence) -> bool:
    """Whether a pod had a job that kills its own process when it ended."""
    claimed = {
        (claim["job_id"], claim["attempt"])
        for claim in evidence.claims
        if claim["pod_id"] == life.pod_id
    }
    outcomes = {(row["job_id"], row["attempt"]): row["outcome"] for row in evidence.attempts}
    killers = {
        job["id"] for job in evidence.jobs if any(op["op"] in KILLERS for op in operations_of(job))
    }
    return any(key[0] in killers and outcomes.get(key) in (None, *LOST) for key in claimed)


def may_diverge(job: Row) -> bool:
    """Whether a later attempt of the job's program uses another step name."""
    return any(op["op"] == "renamed" for op in operations_of(job))


def quantile(values: Iterable[float], share: float) -> float | None:
    """The value that this share of them does not exceed; None if there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def instant(value: str | datetime | None) -> datetime | None:
    """Parse a time of the record's JSON."""
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def _lives(evidence: Evidence) -> Iterator[Life]:
    """The life of each pod; in place of a pod with workers, that of each of them."""
    ids = {row["name"]: row["id"] for row in evidence.pods}
    lives: dict[tuple[str, int], Life] = {}
    workers: dict[tuple[str, int], dict[int, Life]] = {}
    for event in evidence.events:
        if event.kind not in LIFE_EVENTS or "life" not in event.value:
            continue
        value, place = event.value, (event.process, event.value["life"])
        life = lives.setdefault(place, Life(place=place[0], life=place[1], began_s=event.at_s))
        own = workers.setdefault(place, {})
        worker = own.get(value.get("pid", 0))
        if event.kind == "worker-ready":
            own[value["pid"]] = evolve(
                life, began_s=event.at_s, ready_s=event.at_s, pid=value["pid"], signals=[]
            )
            own[value["pid"]].pod_id = UUID(value["id"])
        elif event.kind == "worker-exit":
            if worker is not None:
                worker.ended_s, worker.code = event.at_s, value["code"]
        elif event.kind == "signal" and worker is not None:
            worker.signals.append((event.at_s, value["signal"]))
        else:
            for each in (life, *(each for each in own.values() if each.code is None)):
                _apply(event, each)
        if value.get("record"):
            life.record = value["record"]
            life.pod_id = ids.get(value["record"])
    for place, life in lives.items():
        yield from workers[place].values() or (life,)


def _apply(event: Event, life: Life) -> None:
    """Add an event of a pod to its life, or to that of one of its workers."""
    if event.kind == "signal":
        life.signals.append((event.at_s, event.value["signal"]))
    elif event.kind == "exit":
        life.ended_s, life.code = event.at_s, event.value["code"]
    elif event.kind == "ready" and life.pid is None:
        life.ready_s = event.at_s


def _troubles(evidence: Evidence) -> Iterator[Trouble]:
    healed = {e.value["number"]: e for e in of_kind(evidence, "fault") if e.type != "invoke"}
    for begun in of_kind(evidence, "fault", "invoke"):
        number = begun.value["number"]
        end = healed.get(number)
        detail = begun.value | (end.value if end is not None else {})
        yield Trouble(
            number=number,
            nemesis=detail["nemesis"],
            began_s=begun.at_s,
            ended_s=inf if end is None else end.at_s,
            places=frozenset(() if detail["nemesis"] in EVERYBODYS else _places(detail)),
        )


def _places(detail: dict[str, Any]) -> Iterator[str]:
    """The pods named by a fault, in its plan or in its result."""
    for part in (detail, *(v for v in detail.values() if isinstance(v, dict))):
        pods = part.get("pods", part.get("pod"))
        for pod in pods if isinstance(pods, list | tuple) else (pods,):
            if isinstance(pod, str):
                yield pod.partition(".")[0]
