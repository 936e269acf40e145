"""The figures of a run: what was lost, doubled and overwritten, how long takeovers took.

They only count and measure; the checkers decide whether a figure is right.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from attrs import frozen

from chaos.checkers.i26_quick_takeover import is_quiet, takeovers
from chaos.checkers.timeline import TERMINAL, Timeline, of_kind
from chaos.checkers.verdict import Verdict
from chaos.evidence import Evidence

SAFE = frozenset({"idempotent", "reconcilable"})
"""Kinds of effects that must never be doubled."""


@frozen(kw_only=True)
class Figures:
    """Durations are in seconds, sorted."""

    jobs: Counter[str]
    """By state."""
    failed: Counter[str]
    """By error code."""
    effects: Counter[str]
    """Accounts that something was applied to, by kind."""
    doubled: Counter[str]
    """Applications beyond the first, by kind."""
    lost: int
    """Acknowledged jobs that are missing or have not ended."""
    stale_writes: int | None
    """None if they were not counted."""
    faults: Counter[str]
    """Faults that hit a target, by nemesis."""
    missed: Counter[str]
    windows: Counter[str]
    """Faults that hit each window. One may hit several."""
    in_windows: int
    """Faults that hit any window."""
    messages: int
    """Messages to subscriptions, as far as their receivers are watched."""
    sent_again: int
    """Deliveries beyond the first of each."""
    instants: Counter[str]
    """Instants of schedules, by what became of them."""
    model_calls: int
    paid_twice: int
    """Complete answers to a request that had been answered before."""
    takeovers_s: Sequence[float]
    """From a quiet kill to the next claim, for each job that the pod ran."""
    hindered_s: Sequence[float]
    """The same for all other kills, with other faults active."""
    drains_s: Sequence[float]
    """From SIGTERM to the exit, for each pod that left by itself."""
    rest_s: float | None
    """From the last healing until everything had ended."""


def measure(evidence: Evidence, verdicts: Sequence[Verdict]) -> Figures:
    timeline = Timeline.of(evidence)
    healed = [e.value for e in of_kind(evidence, "fault", "info")]
    missed = [value for value in healed if "missed" in value]
    hit = [value for value in healed if "missed" not in value]
    failed = [job for job in evidence.jobs if job["status"] == "FAILED"]
    accounts = Counter(application.account for application in evidence.applications)
    return Figures(
        jobs=Counter(str(job["status"]) for job in evidence.jobs),
        failed=Counter(str(job["error_code"]) for job in failed),
        effects=Counter(_kind(account) for account in accounts),
        doubled=Counter({_kind(account): n - 1 for account, n in accounts.items() if n > 1}),
        lost=_lost(evidence),
        stale_writes=next(
            (v.figures["stale_writes"] for v in verdicts if "stale_writes" in v.figures), None
        ),
        faults=Counter(value["nemesis"] for value in hit),
        missed=Counter(value["nemesis"] for value in missed),
        windows=Counter(str(w) for value in hit for w in value.get("windows", ())),
        in_windows=sum(bool(value.get("windows")) for value in hit),
        messages=_figure(verdicts, "messages"),
        sent_again=_figure(verdicts, "again"),
        instants=Counter(str(row["outcome"]).lower() for row in evidence.instants),
        model_calls=len(evidence.model_calls),
        paid_twice=_paid_twice(evidence),
        takeovers_s=sorted(_takeovers(evidence, timeline, quiet=True)),
        hindered_s=sorted(_takeovers(evidence, timeline, quiet=False)),
        drains_s=sorted(_drains(timeline)),
        rest_s=_rest(timeline),
    )


def _figure(verdicts: Sequence[Verdict], name: str) -> int:
    """What a checker measured; 0 if none did."""
    return next((int(v.figures[name]) for v in verdicts if name in v.figures), 0)


def _kind(account: str) -> str:
    return account.partition(":")[0]


def _lost(evidence: Evidence) -> int:
    acknowledged = {event.value["job"] for event in of_kind(evidence, "submit", "ok")}
    ended = {str(job["id"]) for job in evidence.jobs if job["status"] in TERMINAL}
    return len(acknowledged - ended)


def _paid_twice(evidence: Evidence) -> int:
    answered = Counter(
        (call.conversation, call.turn)
        for call in evidence.model_calls
        if call.outcome == "answered"
    )
    return sum(count - 1 for count in answered.values())


def _takeovers(evidence: Evidence, timeline: Timeline, *, quiet: bool) -> Iterator[float]:
    if not timeline.has_clock:
        return
    for _, life, took_s in takeovers(evidence, timeline):
        to_s = life.died_s + took_s
        is_busy = timeline.is_overloaded(life.died_s, to_s)
        if (is_quiet(timeline, life, to_s) and not is_busy) is quiet:
            yield took_s


def _drains(timeline: Timeline) -> Iterator[float]:
    for life in timeline.lives:
        term_s = life.first("SIGTERM")
        if term_s is not None and life.code == 0 and not list(life.paused()):
            yield life.ended_s - term_s


def _rest(timeline: Timeline) -> float | None:
    if "quiet" not in timeline.phases:
        return None
    return timeline.phases["quiet"] - timeline.phases["heal"]
