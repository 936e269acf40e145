"""The alerts of the first screen, one line each: breakers, pods, runners and queues in trouble."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Final, TypeAlias

import attrs

from cortex.domain.drain import PodState
from cortex.domain.health import OLDEST_MESSAGE, THRESHOLDS
from cortex.domain.messages.message import MessageStatus
from cortex.domain.safe import safe
from cortex.store.pulse import Figures, Trouble
from cortex.store.queues import QueueRow
from cortex.view.cells import Cell
from cortex.view.doctor import code_text
from cortex.view.effects import held_text
from cortex.view.pods import ticks_text
from cortex.view.queues import pause_text, queue_shown
from cortex.view.runners import late_text
from cortex_tui.model.pulse import Opens, Pulse, PulseLine
from cortex_tui.render.waits import count
from cortex_tui.render.words import countdown

Alert: TypeAlias = tuple[Callable[[], Cell], Opens | None]
"""Renders one alert; and the screen that enter opens."""

DUE_LONG_S: Final = 60.0
DUE_LONG_TICKED_S: Final = 120.0
"""The same where only ticks run jobs: what is due waits for the next one, usually a minute."""
UNSENT_LONG_S: Final = THRESHOLDS[OLDEST_MESSAGE].warn_over
_MESSAGES: Final = Opens("messages")


@attrs.frozen(kw_only=True)
class Alerts:
    """The alerts, and the faults that occurred while rendering them."""

    shown: Sequence[PulseLine]
    faults: Sequence[Exception]
    """Each has a line in `shown`, without the alert's own text."""


def alerts(pulse: Pulse, now: datetime) -> Alerts:
    """Render the alerts, the gravest first; a failing one does not affect the others."""
    shown: list[PulseLine] = []
    faults: list[Exception] = []
    for text, opens in _alerts(pulse, now):
        try:
            cell = text()
        except Exception as fault:  # noqa: BLE001 -- a fault of one line must not end the program
            faults.append(fault)
            cell = Cell(f"an alert cannot be shown ({type(fault).__name__})", "alarm")
        mark = Cell("· ", "dim") if cell.style == "dim" else Cell("! ", "alarm")
        shown.append(PulseLine((mark, cell), opens))
    return Alerts(shown=shown, faults=faults)


def _alerts(pulse: Pulse, now: datetime) -> Iterator[Alert]:
    head, figures = pulse.head, pulse.figures
    if head is not None and head.is_frozen:
        frozen = partial(Cell, "effects are frozen: no tool call with an effect starts", "alarm")
        yield frozen, Opens("effects")
    if head is not None and head.pods_living == head.pods_lost:
        yield partial(_no_pod, None if figures is None else figures.ticked_s), Opens("pods")
    for each in () if pulse.attention is None else pulse.attention.troubles:
        if each.kind == "breaker":
            yield partial(_breaker, each, now), Opens("breakers", key=each.name)
        elif each.kind == "runner":
            yield partial(Cell, late_text(each, now), "fail"), None
        else:
            yield partial(_silent, each, now), Opens("pods", key=each.name)
    held = [row for row in pulse.queues or () if row.paused_at is not None and row.ready]
    if held:
        yield partial(_held_back, held, now), Opens("pods", key="queues")
    if figures is not None:
        yield from _of_figures(figures)


def _of_figures(figures: Figures) -> Iterator[Alert]:
    if failed := figures.messages[MessageStatus.FAILED]:
        noun = "message" if failed == 1 else "messages"
        yield partial(Cell, f"{count(failed)} {noun} could not be sent", "fail"), _MESSAGES
    if figures.oldest_message_s > UNSENT_LONG_S:
        late = countdown(figures.oldest_message_s)
        yield partial(Cell, f"the oldest message has waited for {late}", "warn"), _MESSAGES
    if figures.stranded_count:
        yield partial(_for_code, figures), Opens("jobs", key="code")
    if is_due_long(figures):
        late = countdown(figures.oldest_due_s)
        yield partial(Cell, f"the oldest due job has waited for {late}", "warn"), Opens("jobs")


def is_due_long(figures: Figures) -> bool:
    """Return whether the oldest due job has waited for longer than it should."""
    limit_s = DUE_LONG_S if figures.ticked_s is None else DUE_LONG_TICKED_S
    return figures.oldest_due_s > limit_s


def _for_code(figures: Figures) -> Cell:
    return Cell(code_text(figures.stranded_count, figures.stranded_types), "warn")


def _no_pod(ticked_s: float | None) -> Cell:
    if ticked_s is None:
        return Cell("no pod is running: start one with cortex up", "alarm")
    return Cell(ticks_text(ticked_s), "dim")


def _held_back(held: Sequence[QueueRow], now: datetime) -> Cell:
    """Name the first queue whose jobs wait because a person paused it."""
    first = held[0]
    others = f", and {len(held) - 1} more" if len(held) > 1 else ""
    return Cell(
        safe(f"queue {queue_shown(first.queue)} is {pause_text(first, now)}{others}"), "warn"
    )


def _breaker(trouble: Trouble, now: datetime) -> Cell:
    if trouble.forced_by is not None:
        return Cell(safe(f"breaker {trouble.name} {held_text(trouble, now)}"), "fail")
    since = "" if trouble.at is None else f" for {_past(trouble.at, now)}"
    word = trouble.word.replace("_", " ").lower()
    return Cell(safe(f"breaker {trouble.name} is {word}{since}"), "fail")


def _silent(trouble: Trouble, now: datetime) -> Cell:
    since = "" if trouble.at is None else f" for {_past(trouble.at, now)}"
    state = "is dead: its session ended" if trouble.word == PodState.DEAD else f"is silent{since}"
    return Cell(safe(f"pod {trouble.name} {state}"), "fail")


def _past(instant: datetime, now: datetime) -> str:
    return countdown((now - instant).total_seconds())
