"""The first screen: what needs a person, what fails, what runs, the last quarter of an hour.

In this order, each with as many lines as fit.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from cortex.domain.job import JobStatus
from cortex.domain.messages.message import MessageStatus
from cortex.store.screen_head import COUNT_MAX
from cortex.view.cells import Cell
from cortex.view.phrases import NOTHING, age
from cortex_tui.model.pulse import Pulse, PulseLine
from cortex_tui.render.pulse_alerts import alerts, is_due_long
from cortex_tui.render.pulse_rows import failure_lines, need_lines
from cortex_tui.render.pulse_sparks import LABEL, LINES_MAX, lines_wanted, spark_lines
from cortex_tui.render.queue_lines import SHOWN_MAX, queue_lines
from cortex_tui.render.table import fit
from cortex_tui.render.waits import count, wait_cells

DEAD_MANY: Final = 100
SPARKS_MIN: Final = 3
"""Fewer lines show nothing useful."""
_UNSENT: Final = (MessageStatus.PENDING, MessageStatus.PROCESSING)
_TALL: Final = 24
"""From this height on there are gaps between sections."""
_ROUNDS: Final = ((4, 4, 3, 1, 4), (8, 8, 6, 4, LINES_MAX), (20, 40, 20, SHOWN_MAX, LINES_MAX))
"""Lines of needs, alerts, failures, queues and sparklines: rounds are filled in order."""


def pulse_lines(pulse: Pulse, now: datetime, width: int, *, height: int) -> Sequence[PulseLine]:
    """Return the page below its head, as `height` lines of `width` cells."""
    attention = pulse.attention
    needs = [] if attention is None else list(need_lines(attention.needs, now, width))
    failures = [] if attention is None else list(failure_lines(attention.failures, now, width))
    alert_lines = [] if attention is None else alerts(pulse, now).shown
    queues = 1 if pulse.queues is None else len(pulse.queues)
    gap = [PulseLine()] if height >= _TALL else []
    room = height - 2 - 3 * len(gap)  # the titles of two sections; the first one's is the head
    need_total = max(_total(pulse), len(needs))
    wanted = (
        len(needs) + (need_total > len(needs)),
        len(alert_lines),
        len(failures),
        queues,
        lines_wanted(pulse),
    )
    need_count, alert_count, failure_count, queue_count, spark_count = _shares(room, wanted)
    sparks = spark_lines(pulse, width, lines_max=spark_count)
    shown_queues = queue_lines(pulse.queues, now, width, lines_max=queue_count)
    return [
        *_cut(needs, need_count, need_total, width),
        *gap,
        PulseLine(tuple(_failing(pulse, len(alert_lines), width))),
        *_cut([_fitted(line, width) for line in alert_lines], alert_count, len(alert_lines), width),
        *failures[:failure_count],
        *gap,
        PulseLine(tuple(_running(pulse))),
        *(PulseLine(line) for line in (shown_queues if queue_count else ())),
        *gap,
        *(PulseLine(line) for line in (sparks if spark_count >= SPARKS_MIN else ())),
    ]


def headline(pulse: Pulse, now: datetime) -> Cell:
    """Return in one line how many of each kind wait for a person."""
    if pulse.attention is None or pulse.head is None or pulse.figures is None:
        return Cell("reading …", "dim")
    shown = [cell.text for cell in wait_cells(pulse.head, now)]
    if pulse.head.approvals:
        shown[0] += " (A)"
    if pulse.head.dead:
        shown.append(f"✗ {count(pulse.head.dead)} dead (5)")
    if not shown:
        return Cell("✓ nothing needs you", "done")
    return Cell(f"{fit('needs you', LABEL)}{'   '.join(shown)}", "appr")


def _shares(room: int, wanted: Sequence[int]) -> list[int]:
    """Divide the lines among the sections."""
    shares = [0] * len(wanted)
    for most in _ROUNDS:
        for at, (want, limit) in enumerate(zip(wanted, most, strict=True)):
            more = max(0, min(want, limit, shares[at] + room) - shares[at])
            shares[at] += more
            room -= more
    return shares


def _total(pulse: Pulse) -> int:
    """Return how much waits for a person, apart from failed jobs."""
    head = pulse.head
    return 0 if head is None else head.approvals + head.effects + head.budgets + head.persons


def _cut(lines: Sequence[PulseLine], most: int, total: int, width: int) -> Sequence[PulseLine]:
    """Return at most `most` lines; if there are more, the last one counts the rest."""
    if total <= most or not most:
        return lines[:most]
    shown = most - 1
    more = f"  and {total - shown:,}{'+' if total >= COUNT_MAX else ''} more"
    where = f"{more} · 3 shows the requests" if total > len(lines) else more
    return [*lines[:shown], PulseLine((Cell(fit(where, width), "dim"),))]


def _fitted(line: PulseLine, width: int) -> PulseLine:
    sign, text = line.cells
    return PulseLine((sign, Cell(fit(text.text, max(0, width - 2)), text.style)), line.opens)


def _failing(pulse: Pulse, alert_count: int, width: int) -> Iterator[Cell]:
    """Yield the title of the failures."""
    yield Cell(fit("failing", LABEL), "bold")
    if pulse.attention is None or pulse.head is None:
        yield Cell("reading …", "dim")
        return
    dead = pulse.head.dead
    parts = (
        []
        if not dead
        else ["1 failed job waits" if dead == 1 else f"{count(dead)} failed jobs wait"]
    )
    if alert_count:
        parts.append("1 alert" if alert_count == 1 else f"{alert_count} alerts")
    if not parts:
        yield Cell("✓ nothing", "done")
        return
    is_grave = dead > DEAD_MANY or alert_count
    yield Cell(fit(" · ".join(parts), max(0, width - LABEL)), "alarm" if is_grave else "fail")


def _running(pulse: Pulse) -> Iterator[Cell]:
    """Yield the title of the running work, with its figures."""
    yield Cell(fit("running", LABEL), "bold")
    figures = pulse.figures
    if figures is None:
        yield Cell(NOTHING, "dim")
        return
    running, late_s = figures.jobs[JobStatus.RUNNING], figures.oldest_due_s
    yield Cell(f"{_count(running)} running", "run" if running else "dim")
    yield Cell(" · ", "dim")
    yield Cell(f"{_count(figures.due_count)} due", "" if figures.due_count else "dim")
    if late_s >= 1:
        yield Cell(" · ", "dim")
        yield Cell(f"oldest due {age(late_s)}", "alarm" if is_due_long(figures) else "")
    if unsent := sum(figures.messages[each] for each in _UNSENT):
        yield Cell(f" · {_count(unsent)} {'message' if unsent == 1 else 'messages'} to send", "dim")


def _count(number: int) -> str:
    return f"{number:,}" if number < COUNT_MAX else f"{COUNT_MAX:,}+"
