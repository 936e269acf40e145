"""Describes the health of the system: each measure with its thresholds, each runner."""

from collections.abc import Iterator
from typing import Final

from cortex.domain import health as rules
from cortex.domain.health import Measure, Unit, Word
from cortex.domain.phrases import span
from cortex.domain.safe import safe
from cortex.store.background.subscriptions import FailingSubscription
from cortex.store.health import Health, RunnerHealth
from cortex.view.phrases import NOTHING

TITLES: Final = {
    rules.DUE: "due jobs",
    rules.OLDEST_DUE: "oldest due job",
    rules.STRANDED: "stranded jobs",
    rules.FAILURE_RATE: "failure rate",
    rules.RETRY_CHURN: "retry churn",
    rules.DEAD_LETTER_RATE: "dead-letter rate",
    rules.OUTBOX: "messages to send",
    rules.OLDEST_MESSAGE: "oldest message",
    rules.FAILING: "failing channels",
    rules.MISSED: "late schedules",
}
PARTS: Final = {
    rules.FAILURE_RATE: "attempts",
    rules.RETRY_CHURN: "attempts",
    rules.DEAD_LETTER_RATE: "ended jobs",
}
"""What a rate is a part of."""
STYLES: Final = {Word.OK: "done", Word.WARN: "warn", Word.BAD: "fail"}


def value_text(measure: Measure) -> str:
    """Return the figure, such as `2m 31s` or `0.3 % of 1,200 attempts`; `—` if there is none."""
    is_age = measure.unit is Unit.SECONDS
    if measure.value is None or (is_age and not measure.value):
        return NOTHING
    text = _figure(measure.value, measure.unit)
    part = PARTS.get(measure.name)
    return text if part is None else f"{text} of {measure.among:,} {part}"


def threshold_text(measure: Measure) -> str:
    """Return its thresholds: `warn over 1 %, bad over 10 %`."""
    texts = [f"warn over {_figure(measure.warn_over, measure.unit)}"]
    if measure.bad_over is not None:
        texts.append(f"bad over {_figure(measure.bad_over, measure.unit)}")
    return ", ".join(texts)


def runner_text(runner: RunnerHealth) -> str:
    """Return what a runner last did, already safe: `12 items in 3ms, success 4s ago`."""
    if runner.error is not None:
        return safe(f"failed: {runner.error}")
    if runner.items is None or runner.duration_s is None:
        return "only skipped so far"
    success = runner.succeeded_ago_s
    ago = "" if success is None else f", success {span(success)} ago"
    items = "1 item" if runner.items == 1 else f"{runner.items:,} items"
    return f"{items} in {span(runner.duration_s)}{ago}, {runner.item_count:,} in all"


def runner_threshold(runner: RunnerHealth) -> str:
    """Return when a runner is late: `bad after 2m 30s without success`."""
    return f"bad after {span(runner.bad_over_s)} without success"


def subscription_text(failing: FailingSubscription) -> str:
    """Return what is wrong with a subscription: `for 2h 5m: 3 messages wait; HOST answered …`."""
    for_s = (failing.now - failing.since).total_seconds()
    return f"for {span(for_s)}: {waiting_text(failing.pending)}; {failing.last_error}"


def waiting_text(count: int) -> str:
    """Return how many messages wait."""
    if not count:
        return "no message waits"
    return "1 message waits" if count == 1 else f"{count:,} messages wait"


def troubles(health: Health) -> Iterator[tuple[Word, str]]:
    """Yield each word that is not ok with the names that it is said of, the worst first."""
    for word in (Word.BAD, Word.WARN):
        names = [TITLES[each.name] for each in health.measures if each.word is word]
        names += [f"runner {safe(each.name)}" for each in health.runners if each.word is word]
        if names:
            yield word, ", ".join(names)


def _figure(value: float, unit: Unit) -> str:
    match unit:
        case Unit.COUNT:
            return f"{value:,.0f}"
        case Unit.SECONDS:
            return span(value)
        case Unit.RATIO:
            return f"{100 * value:.3g} %"
