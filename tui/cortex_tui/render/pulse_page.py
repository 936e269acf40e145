"""The pulse: five numbers, what the last quarter of an hour looked like, and what is wrong."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Final, TypeAlias

import attrs
from rich.cells import cell_len

from cortex.domain.job import JobStatus
from cortex.domain.phrases import NOTHING, age, money
from cortex.domain.safe import safe
from cortex.store.operator import COUNT_MAX
from cortex.store.pods import DEAD
from cortex.store.pulse import TROUBLES_MAX, Bucket, Recent, Trouble
from cortex.store.queues import QueueRow
from cortex.view.cells import Cell
from cortex.view.effects import held_told
from cortex.view.pods import pause_told, queue_shown
from cortex_tui.model.pulse import Pulse
from cortex_tui.render.queue_lines import queue_lines
from cortex_tui.render.sparks import digits, spark
from cortex_tui.render.table import fit
from cortex_tui.render.waits import count, wait_cells
from cortex_tui.render.words import countdown, span

Lines = Sequence[tuple[Cell, ...]]
Alert: TypeAlias = Callable[[], Cell]
"""Puts one alert into words."""

DEAD_MANY: Final = 100
DUE_LONG_S: Final = 60.0
RATE_SPAN_MIN_S: Final = 5.0
"""A bucket that has just begun says nothing of a rate."""
_HOUR_S: Final = 3_600.0
_LABEL: Final = 14
_FIGURE: Final = 10
_EACH_MAX: Final = 3
_TALL: Final = 24
"""Lines below which what is wrong needs the room of the second-best figures."""
_WIDE: Final = 20
"""Cells for a number: there is room between its digits."""


def pulse_lines(pulse: Pulse, now: datetime, width: int, *, height: int) -> Lines:
    """Return the page, for lines of `width` cells; queues get what is left of `height` lines."""
    sparks = _sparks(pulse, width, is_brief=height < _TALL)
    above = [*_numbers(pulse, now, width), (), *sparks, ()]
    wrong = list(_alerts(pulse, now, width))
    left = max(1, height - len(above) - len(wrong) - 1)
    queues = list(queue_lines(pulse.queues, now, width, lines_max=left))
    is_tight = len(above) + len(queues) + 1 + len(wrong) > height
    return [*above, *queues, *(() if is_tight else ((),)), *wrong]


def headline(pulse: Pulse, now: datetime) -> Cell:
    """Say in one line whether somebody has to do something."""
    if pulse.troubles is None or pulse.head is None or pulse.figures is None:
        return Cell("reading …", "dim")
    told = [cell.text for cell in wait_cells(attrs.evolve(pulse.head, first_expiry=None), now)]
    if pulse.head.approvals:
        told[0] += " (A)"
    if pulse.head.dead:
        told.append(f"✗ {count(pulse.head.dead)} dead (5)")
    number = len(alerts(pulse, now).shown)
    if number:
        told.insert(0, "! 1 alert" if number == 1 else f"! {number} alerts")
    if not told:
        return Cell("✓ nothing needs you", "done")
    return Cell("   ".join(told), "alarm" if number else "appr")


# --- five numbers


def _numbers(pulse: Pulse, now: datetime, width: int) -> Iterator[tuple[Cell, ...]]:
    shown = list(_figures(pulse, now))
    room = width // len(shown)
    yield tuple(Cell(fit(_label(label, room), room), "dim") for label, _, _ in shown)
    gap = int(room >= _WIDE)
    big = [(digits(text, gap=gap), style) for _, text, style in shown]
    for line in range(3):
        yield tuple(Cell(fit(text[line], room), style) for text, style in big)


def _label(label: str, room: int) -> str:
    """Leave out what there is no room for: the top bar has it, too."""
    return label if cell_len(label) < room else label.split(" in ", maxsplit=1)[0]


def _figures(pulse: Pulse, now: datetime) -> Iterator[tuple[str, str, str]]:
    """Yield label, number and style."""
    figures, head = pulse.figures, pulse.head
    if figures is None:
        yield from ((label, NOTHING, "dim") for label in ("running", "due", "oldest due"))
    else:
        running = figures.jobs[JobStatus.RUNNING]
        yield "running", _count(running), "run" if running else "dim"
        yield "due", _count(figures.due_count), "" if figures.due_count else "dim"
        late = figures.oldest_due_s
        yield "oldest due", _brief(late), _warns(late > DUE_LONG_S, is_zero=late < 1)
    if head is None:
        yield from ((label, NOTHING, "dim") for label in ("approvals", "dead"))
        return
    left = "" if head.first_expiry is None else f" in {_left(head.first_expiry, now)}"
    yield f"approvals{left}", _count(head.approvals), "appr" if head.approvals else "dim"
    yield "dead", _count(head.dead), _warns(head.dead > DEAD_MANY, is_zero=not head.dead)


def _count(number: int) -> str:
    return str(number) if number < COUNT_MAX else f"{COUNT_MAX}+"


def _brief(seconds: float) -> str:
    """Return an age in at most four signs."""
    return "0s" if seconds < 1 else age(seconds)


def _warns(is_bad: bool, *, is_zero: bool) -> str:  # noqa: FBT001 -- what it is about
    return "alarm" if is_bad else "dim" if is_zero else ""


# --- the last quarter of an hour


def _sparks(pulse: Pulse, width: int, *, is_brief: bool) -> Iterator[tuple[Cell, ...]]:
    if pulse.recent is None:
        yield (Cell("last 15 min   reading …", "dim"),)
        return
    recent = pulse.recent
    buckets = recent.buckets
    each = max(1, min(_EACH_MAX, (width - _LABEL - 3 * _FIGURE) // len(buckets)))
    title = f"{fit('last 15 min', _LABEL)}{' ' * (each * len(buckets))}"
    heads = "".join(fit(word, _FIGURE, right=True) for word in ("now", "most"))
    yield (Cell(f"{title}{heads}", "dim"),)

    def line(
        label: str,
        style: str,
        value: Callable[[Bucket], float | None],
        told: Callable[[float], str],
    ) -> tuple[Cell, ...]:
        values = [value(bucket) for bucket in buckets]
        known = [each_one for each_one in values if each_one is not None]
        last, most = values[-1], max(known, default=None)
        return (
            Cell(fit(label, _LABEL)),
            Cell(spark(values, each=each), style),
            Cell(fit(NOTHING if last is None else told(last), _FIGURE, right=True)),
            Cell(fit(NOTHING if most is None else told(most), _FIGURE, right=True), "dim"),
        )

    yield line("started", "run", lambda b: _rate(b, b.started), _per_s)
    yield line("done", "done", lambda b: _rate(b, b.done), _per_s)
    yield line("failed", "fail", lambda b: _rate(b, b.failed), _per_s)
    yield line("wait p50", "retry", lambda b: b.wait_p50_s if b.is_known else None, span)
    if not is_brief:
        yield line("     p95", "retry", lambda b: b.wait_p95_s if b.is_known else None, span)
        yield line("model p50", "run", lambda b: b.model_p50_s if b.is_priced else None, span)
    yield line("cost an hour", "accent", _cost_rate, lambda usd: money(Decimal(str(usd))))
    yield (Cell(fit("spent", _LABEL)), *_spent(recent))


def _rate(bucket: Bucket, count: int) -> float | None:
    return count / max(bucket.span_s, RATE_SPAN_MIN_S) if bucket.is_known else None


def _cost_rate(bucket: Bucket) -> float | None:
    if not bucket.is_priced:
        return None
    return float(bucket.usd) / max(bucket.span_s, RATE_SPAN_MIN_S) * _HOUR_S


def _per_s(rate: float) -> str:
    return f"{rate:.0f}/s" if rate >= 10 or not rate else f"{rate:.2g}/s"  # noqa: PLR2004 -- two digits


def _spent(recent: Recent) -> tuple[Cell, ...]:
    calls = f"{recent.calls:,} {'call' if recent.calls == 1 else 'calls'}"
    since = "hour" if recent.spent_s >= _HOUR_S else countdown(recent.spent_s)
    return Cell(money(recent.spent_usd)), Cell(f" in the last {since} · {calls}", "dim")


# --- what is wrong


def _alerts(pulse: Pulse, now: datetime, width: int) -> Iterator[tuple[Cell, ...]]:
    yield (Cell("alerts", "dim"),)
    if pulse.troubles is None:
        yield (Cell("reading …", "dim"),)
        return
    found = alerts(pulse, now).shown
    for alert in found:
        yield (Cell("! ", "alarm"), Cell(fit(alert.text, max(0, width - 2)), alert.style))
    if not found:
        yield (Cell("none", "dim"),)


@attrs.frozen(kw_only=True)
class Alerts:
    """What somebody should know of, and what went wrong while it was put into words."""

    shown: Sequence[Cell]
    faults: Sequence[Exception]
    """Each has its line in `shown`, without the alert's own text."""


def alerts(pulse: Pulse, now: datetime) -> Alerts:
    """Put each alert into words, the gravest first; one that fails costs no other one its line."""
    shown: list[Cell] = []
    faults: list[Exception] = []
    for alert in _found(pulse, now):
        try:
            shown.append(alert())
        except Exception as fault:  # noqa: BLE001 -- a fault of one line must not end the program
            faults.append(fault)
            shown.append(Cell(f"an alert cannot be shown ({type(fault).__name__})", "alarm"))
    return Alerts(shown=shown, faults=faults)


def _found(pulse: Pulse, now: datetime) -> Iterator[Alert]:
    troubles, head, figures = pulse.troubles or [], pulse.head, pulse.figures
    if head is not None and head.is_frozen:
        yield partial(Cell, "effects are frozen: no tool that acts may begin", "alarm")
    if head is not None and head.pods_living == head.pods_lost:
        yield partial(Cell, "no pod is there: nothing runs; start one: cortex up", "alarm")
    if soon := [each for each in troubles if each.kind == "approval"]:
        yield partial(_soon, soon, now)
    for each in troubles:
        if each.kind == "breaker":
            yield partial(_breaker, each, now)
        elif each.kind == "pod":
            yield partial(_silent, each, now)
    held = [row for row in pulse.queues or () if row.paused_at is not None and row.ready]
    if held:
        yield partial(_held_back, held, now)
    if figures is not None and figures.oldest_due_s > DUE_LONG_S:
        late = countdown(figures.oldest_due_s)
        yield partial(Cell, f"a job has been due for {late} and still waits", "warn")
    if head is not None and head.dead > DEAD_MANY:
        dead = f"{head.dead:,}" if head.dead < COUNT_MAX else f"{COUNT_MAX:,}+"
        yield partial(Cell, f"{dead} dead letters wait for somebody (5)", "warn")


def _soon(found: Sequence[Trouble], now: datetime) -> Cell:
    first = min(found, key=lambda each: each.at or now)
    count = f"{len(found)}{'+' if len(found) == TROUBLES_MAX else ''}"
    word = "approval expires" if len(found) == 1 else "approvals expire"
    name, left = safe(first.name), _left(first.at or now, now)
    which = name if len(found) == 1 else f"first {name}"
    return Cell(f"{count} {word} within 5 min: {which}, {left} left (A)", "appr")


def _held_back(held: Sequence[QueueRow], now: datetime) -> Cell:
    """Name the first queue in which jobs wait because a person paused it."""
    first = held[0]
    others = f", and {len(held) - 1} more" if len(held) > 1 else ""
    return Cell(
        safe(f"queue {queue_shown(first.queue)} is {pause_told(first, now)}{others}"), "warn"
    )


def _breaker(trouble: Trouble, now: datetime) -> Cell:
    if trouble.forced_by is not None:
        return Cell(safe(f"breaker {trouble.name} {held_told(trouble, now)}"), "fail")
    since = "" if trouble.at is None else f" for {_past(trouble.at, now)}"
    word = trouble.word.replace("_", " ").lower()
    return Cell(safe(f"breaker {trouble.name} is {word}{since}"), "fail")


def _silent(trouble: Trouble, now: datetime) -> Cell:
    heard = "" if trouble.at is None else f" for {_past(trouble.at, now)}"
    told = "is dead: its session ended" if trouble.word == DEAD else f"says nothing{heard}"
    return Cell(safe(f"pod {trouble.name} {told}"), "fail")


def _left(instant: datetime, now: datetime) -> str:
    return countdown((instant - now).total_seconds())


def _past(instant: datetime, now: datetime) -> str:
    return countdown((now - instant).total_seconds())
