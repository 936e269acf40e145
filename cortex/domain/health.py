"""Rules of queue health: what is measured, from where on it is too much, and the word for it."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import attrs


class Word(StrEnum):
    """How something is, the best first."""

    OK = "ok"
    WARN = "warn"
    """It deserves attention."""
    BAD = "bad"
    """Work is lost, stopped or late now."""

    @classmethod
    def worst(cls, words: Iterable["Word"]) -> "Word":
        """Return the worst of them; OK without any."""
        return max(words, key=_ORDER.index, default=cls.OK)


_ORDER: Final = tuple(Word)


class Unit(StrEnum):
    """Of a measure."""

    COUNT = "count"
    SECONDS = "seconds"
    RATIO = "ratio"


@attrs.frozen(kw_only=True)
class Threshold:
    """From where on a measure is not ok."""

    unit: Unit
    warn_over: float
    bad_over: float | None = None
    """None: it is never bad by itself."""


DUE: Final = "due_jobs"
OLDEST_DUE: Final = "oldest_due_s"
STRANDED: Final = "stranded_jobs"
FAILURE_RATE: Final = "failure_rate"
RETRY_CHURN: Final = "retry_churn"
DEAD_LETTER_RATE: Final = "dead_letter_rate"
OUTBOX: Final = "outbox_pending"
OLDEST_MESSAGE: Final = "outbox_oldest_s"
MISSED: Final = "missed_schedules"
FAILING: Final = "failing_subscriptions"

THRESHOLDS: Final = {
    # A long queue that moves is no trouble: the age of its head shows whether it does.
    DUE: Threshold(unit=Unit.COUNT, warn_over=10_000),
    OLDEST_DUE: Threshold(unit=Unit.SECONDS, warn_over=60, bad_over=600),
    # What nobody serves soon makes the oldest due job too old.
    STRANDED: Threshold(unit=Unit.COUNT, warn_over=0),
    # These warn where packaging/prometheus/alerts.yaml does, where it has a rule for them.
    FAILURE_RATE: Threshold(unit=Unit.RATIO, warn_over=0.01, bad_over=0.1),
    RETRY_CHURN: Threshold(unit=Unit.RATIO, warn_over=0.1, bad_over=0.5),
    DEAD_LETTER_RATE: Threshold(unit=Unit.RATIO, warn_over=0.001, bad_over=0.05),
    OUTBOX: Threshold(unit=Unit.COUNT, warn_over=10_000),
    # Messages that wait for their next attempt, or for a failing receiver, are not counted.
    OLDEST_MESSAGE: Threshold(unit=Unit.SECONDS, warn_over=300, bad_over=1_800),
    FAILING: Threshold(unit=Unit.COUNT, warn_over=0),
    MISSED: Threshold(unit=Unit.COUNT, warn_over=0),
}
"""By measure, in the order in which they are shown."""
AMONG_MIN: Final = 20
"""A rate of fewer than this is never worse than WARN: one failure of three says little."""


@attrs.frozen(kw_only=True)
class Measure:
    """One figure with its thresholds."""

    name: str
    unit: Unit
    value: float | None
    """None: nothing to measure."""
    among: int | None = None
    """Of a rate: how many it is a part of."""
    warn_over: float
    bad_over: float | None
    word: Word


def measure(name: str, value: float | None, *, among: int | None = None) -> Measure:
    """Judge a figure by its thresholds."""
    threshold = THRESHOLDS[name]
    word = Word.OK
    if value is not None and value > threshold.warn_over:
        is_bad = threshold.bad_over is not None and value > threshold.bad_over
        is_bad = is_bad and (among is None or among >= AMONG_MIN)
        word = Word.BAD if is_bad else Word.WARN
    return Measure(name=name, value=value, among=among, word=word, **attrs.asdict(threshold))


@attrs.frozen(kw_only=True)
class Rates:
    """What ended in a span of time; what was counted over less of it is extrapolated."""

    completed: float
    """Jobs."""
    failed: float
    """Jobs, for good."""
    attempt_errors: float
    """Attempts that ended with an error."""
    call_retries: float
    """Calls repeated in their step."""
    letters: float
    """Jobs that became dead letters: not those that people's decisions failed."""

    def measures(self) -> list[Measure]:
        attempts = self.completed + self.attempt_errors
        jobs = self.completed + self.failed
        retried = max(0.0, self.attempt_errors - self.failed) + self.call_retries
        return [
            _rate(FAILURE_RATE, self.attempt_errors, attempts),
            _rate(RETRY_CHURN, retried, attempts),
            _rate(DEAD_LETTER_RATE, min(self.letters, jobs), jobs),
        ]


def _rate(name: str, part: float, whole: float) -> Measure:
    return measure(name, part / whole if whole else None, among=round(whole))
