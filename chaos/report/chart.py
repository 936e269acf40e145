"""The run as a drawing: a lane per pod's place, with faults and attempts, and takeovers between.

This module only positions shapes; the style of the page determines how they look.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from math import ceil, inf
from typing import Final
from uuid import UUID

from attrs import evolve, frozen

from chaos.checkers.timeline import Life, Timeline, key_of
from chaos.evidence import Evidence, Row

WIDTH: Final = 1600.0
LEFT: Final = 60.0
TOP: Final = 28.0
ROW: Final = 7.0
GAP: Final = 22.0
ROWS_MAX: Final = 40
NEAR: Final = 60.0
"""Marks need this distance for each to have its name beside it."""
BEFORE_LOAD_S: Final = 1.0
TICKS_MAX: Final = 20
TAKEN: Final = {
    "pod_died": "died",
    "process_died": "died",
    "lease_expired": "swept",
    "handed_back": "handed",
}
"""Outcomes of attempts that continue elsewhere."""


@frozen(kw_only=True)
class Shape:
    """A rectangle with a style class and a title."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    title: str


@frozen(kw_only=True)
class Link:
    """A job's way from one pod to the next."""

    x1: float
    y1: float
    x2: float
    y2: float
    kind: str
    title: str


@frozen(kw_only=True)
class Mark:
    """An instant of the whole run."""

    x: float
    name: str

    @property
    def is_last(self) -> bool:
        """Its name fits only before it."""
        return self.x > WIDTH - 2 * NEAR


@frozen(kw_only=True)
class Chart:
    """The whole drawing, in its own units."""

    width: float
    height: float
    lanes: tuple[Shape, ...]
    lives: tuple[Shape, ...]
    faults: tuple[Shape, ...]
    attempts: tuple[Shape, ...]
    links: tuple[Link, ...]
    ticks: tuple[Mark, ...]
    phases: tuple[Mark, ...]


@frozen(kw_only=True)
class _Attempt:
    """One attempt of one job, from its claim to its end."""

    job: Row
    number: int
    life: Life
    from_s: float
    to_s: float
    outcome: str


def chart_of(evidence: Evidence) -> Chart:
    """Lay a run out; without the observer's claims it has faults and pods only."""
    last_s = max((event.at_s for event in evidence.events), default=1.0)
    return _Layout(evidence, last_s).chart()


class _Layout:
    """Computes all positions."""

    def __init__(self, evidence: Evidence, last_s: float) -> None:
        self._timeline = Timeline.of(evidence)
        self._last_s = last_s
        # The time to build everything is of no interest.
        self._first_s = max(0.0, self._timeline.phases.get("load", 0.0) - BEFORE_LOAD_S)
        self._scale = (WIDTH - LEFT) / max(last_s - self._first_s, 1.0)
        self._places = sorted({life.place for life in self._timeline.lives})
        attempts = _attempts(evidence, self._timeline, last_s)
        self._attempts = sorted(attempts, key=lambda attempt: attempt.from_s)
        self._rows: dict[str, list[tuple[_Attempt, int]]] = {}
        self._tops: dict[str, float] = {}
        self._height = TOP
        for place in self._places:
            self._rows[place] = _packed([a for a in self._attempts if a.life.place == place])
            self._tops[place] = self._height
            self._height += self._tall(place) + GAP

    def chart(self) -> Chart:
        packed = chain.from_iterable(self._rows.values())
        shapes = {(a.job["id"], a.number): self._attempt(a, row) for a, row in packed}
        whole = (self._first_s, self._last_s)
        return Chart(
            width=WIDTH,
            height=self._height,
            lanes=tuple(
                self._bar(whole, self._lane(p), kind="lane", title=p) for p in self._places
            ),
            lives=tuple(map(self._life, self._timeline.lives)),
            faults=tuple(self._faults()),
            attempts=tuple(shapes.values()),
            links=tuple(self._links(shapes)),
            ticks=tuple(
                Mark(x=self._x(s), name=f"{s} s") for s in _seconds(self._first_s, self._last_s)
            ),
            phases=tuple(self._phases()),
        )

    def _x(self, at_s: float) -> float:
        within_s = min(max(at_s, self._first_s), self._last_s)
        return round(LEFT + (within_s - self._first_s) * self._scale, 1)

    def _phases(self) -> Iterator[Mark]:
        """Phases that start close to each other share a mark."""
        marks: list[Mark] = []
        for name, at_s in self._timeline.phases.items():
            x = self._x(at_s)
            if marks and x - marks[-1].x < NEAR:
                marks[-1] = evolve(marks[-1], name=f"{marks[-1].name}, {name}")
            else:
                marks.append(Mark(x=x, name=name))
        yield from marks

    def _tall(self, place: str) -> float:
        return 12 + ROW * (1 + max((row for _, row in self._rows[place]), default=0))

    def _lane(self, place: str) -> tuple[float, float]:
        return self._tops[place], self._tall(place)

    def _bar(
        self, span_s: tuple[float, float], place: tuple[float, float], *, kind: str, title: str
    ) -> Shape:
        """Position a span of time in a lane."""
        x, y, height = self._x(span_s[0]), *place
        width = max(1.0, round(self._x(span_s[1]) - x, 1))
        return Shape(x=x, y=y, width=width, height=height, kind=kind, title=title)

    def _life(self, life: Life) -> Shape:
        how = "" if life.code is None else f", ended with {life.code}"
        until = "" if life.ended_s == inf else f" to {life.ended_s:.1f}"
        title = f"{life.title} from {life.began_s:.1f}{until} s{how}"
        place = (self._tops[life.place], 4.0)
        return self._bar((life.began_s, life.ended_s), place, kind="life", title=title)

    def _attempt(self, attempt: _Attempt, row: int) -> Shape:
        place = (self._tops[attempt.life.place] + 8 + row * ROW, ROW - 1.5)
        label = f"{key_of(attempt.job)} attempt {attempt.number}: {attempt.outcome}"
        title = f"{label}, {attempt.from_s:.1f} to {attempt.to_s:.1f} s"
        kind = f"attempt {TAKEN.get(attempt.outcome, attempt.outcome.lower())}"
        return self._bar((attempt.from_s, attempt.to_s), place, kind=kind, title=title)

    def _faults(self) -> Iterator[Shape]:
        for trouble in self._timeline.troubles:
            span_s = (trouble.began_s, trouble.ended_s)
            title = f"{trouble.nemesis} from {trouble.began_s:.1f} to {trouble.ended_s:.1f} s"
            for place in self._places:
                if not trouble.places or place in trouble.places:
                    yield self._bar(span_s, self._lane(place), kind="fault", title=title)

    def _links(self, shapes: dict[tuple[UUID, int], Shape]) -> Iterator[Link]:
        """From attempts that were cut off to those that continued."""
        for attempt in self._attempts:
            before = shapes[attempt.job["id"], attempt.number]
            after = shapes.get((attempt.job["id"], attempt.number + 1))
            if attempt.outcome not in TAKEN or after is None:
                continue
            label = f"{key_of(attempt.job)}: attempt {attempt.number}, {attempt.outcome}"
            yield Link(
                x1=before.x + before.width,
                y1=before.y + before.height / 2,
                x2=after.x,
                y2=after.y + after.height / 2,
                kind=TAKEN[attempt.outcome],
                title=f"{label}, continues here",
            )


def _attempts(evidence: Evidence, timeline: Timeline, last_s: float) -> Iterator[_Attempt]:
    if not timeline.has_clock:
        return
    jobs = {job["id"]: job for job in evidence.jobs}
    ended = {(row["job_id"], row["attempt"]): row for row in evidence.attempts}
    for claim in evidence.claims:
        life, job = timeline.life_of(claim["pod_id"]), jobs.get(claim["job_id"])
        if life is None or job is None:
            continue
        end = ended.get((claim["job_id"], claim["attempt"]))
        at = job["finished_at"] if end is None else end["ended_at"]
        outcome = job["status"] if end is None else end["outcome"]
        to_s = last_s if at is None else timeline.at_s(at)
        # An attempt ends with its pod, not when another pod notices.
        to_s = min(to_s, life.died_s) if outcome == "pod_died" else to_s
        yield _Attempt(
            job=job,
            number=claim["attempt"],
            life=life,
            from_s=timeline.at_s(claim["at"]),
            to_s=to_s,
            outcome=outcome,
        )


def _packed(attempts: Sequence[_Attempt]) -> list[tuple[_Attempt, int]]:
    """Put attempts, in their order, into the fewest rows in which none covers another."""
    free_s: list[float] = []
    packed = []
    for attempt in attempts:
        row = next((n for n, at_s in enumerate(free_s) if at_s <= attempt.from_s), len(free_s))
        if row == len(free_s):
            free_s.append(0.0)
        free_s[row] = max(attempt.to_s, attempt.from_s + 0.05)
        packed.append((attempt, min(row, ROWS_MAX)))
    return packed


def _seconds(first_s: float, last_s: float) -> range:
    whole_s = last_s - first_s
    step = next((step for step in (1, 2, 5, 10, 20, 60) if whole_s / step <= TICKS_MAX), 300)
    return range(ceil(first_s / step) * step, int(last_s) + 1, step)
