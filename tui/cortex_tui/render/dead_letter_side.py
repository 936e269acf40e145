"""The pane beside the errors: the message and the newest letters."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from cortex.domain.dead_letter import DeadLetter, DeadLetterGroup
from cortex.domain.phrases import short_id
from cortex.domain.safe import safe
from cortex.view.cells import Cell
from cortex.view.dead_letters import on_retry
from cortex.view.phrases import NOTHING, age
from cortex.view.steps import last_step
from cortex_tui.render.labelled import Line, labelled, said, titled, valued
from cortex_tui.render.table import fit

STEP_AT: Final = 15
"""Cells before the step of a letter."""


def side_head(row: DeadLetterGroup) -> Cell:
    count = f"{row.count:,}{'' if row.is_all else '+'}"
    code = row.error_code or row.error_class or "error"
    return Cell(safe(f"{count} {'letter' if row.count == 1 else 'letters'}  {code}"), "bold")


def side_lines(
    row: DeadLetterGroup,
    letters: Sequence[DeadLetter],
    now: datetime,
    width: int,
) -> Iterator[Line]:
    """Yield fixed labels, then the growing parts. `letters`: the newest ones."""
    escalated = row.escalated_count
    for label, text in (
        ("error", " · ".join(filter(None, (row.error_class, row.error_code)))),
        ("breaker", (row.breaker or "").lower().replace("_", " ")),
        ("first", age((now - row.first_at).total_seconds())),
        ("last", age((now - row.last_at).total_seconds())),
        ("escalated", f"{escalated:,}" if escalated else ""),
    ):
        yield from valued(label, text, width)
    yield from titled("newest letter")
    for label, text in (
        ("job", short_id(row.job_id)),
        ("agent", row.agent or row.type),
        ("last step", last_step(row.step or "")),
    ):
        yield from valued(label, text, width)
    yield from labelled("on retry", on_retry(row), width)
    yield from titled("it says")
    yield from said(row.error_message or "", width, style="fail")
    yield from titled("fingerprint")
    yield from said(row.fingerprint, width, style="")
    yield from titled("newest jobs")
    for letter in letters:
        waits = age((now - letter.created_at).total_seconds())
        yield Cell(f"{short_id(letter.job_id)}{waits:>6}  ", "dim"), *_step_of(letter, width)
    if not letters:
        yield (Cell(NOTHING, "dim"),)


def _step_of(letter: DeadLetter, width: int) -> Line:
    step = fit(safe(last_step(letter.step or NOTHING)), max(0, width - STEP_AT))
    return (Cell(step, "" if letter.step else "dim"),)
