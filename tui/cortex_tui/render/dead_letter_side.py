"""The pane beside the errors: the message, the newest letters, and bulk operations on them."""

import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from cortex.domain.bulk_operation import progress
from cortex.domain.dead_letter import DeadLetter, DeadLetterGroup
from cortex.domain.phrases import NOTHING, age, short_id
from cortex.domain.safe import safe
from cortex.view.cells import Cell
from cortex.view.dead_letters import why_cell
from cortex.view.steps import last_step
from cortex_tui.backend.protocol import ActRow
from cortex_tui.render.bulk_rows import is_over, mark_of
from cortex_tui.render.dead_letter_rows import on_retry
from cortex_tui.render.labelled import Line, labelled, said, titled, valued
from cortex_tui.render.table import fit

ACTS_MAX: Final = 5
STEP_AT: Final = 15
"""Cells before the step of a letter."""
FINGERPRINT: Final = "--fingerprint"


def side_head(row: DeadLetterGroup) -> Cell:
    count = f"{row.count:,}{'' if row.is_all else '+'}"
    code = row.error_code or row.error_class or "error"
    return Cell(safe(f"{count} {'letter' if row.count == 1 else 'letters'}  {code}"), "bold")


def side_lines(
    row: DeadLetterGroup,
    acts: Sequence[ActRow],
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
    yield from titled("acts on these letters")
    yield from _acts(acts_on(row.fingerprint, acts), now, width)
    yield from titled("newest jobs")
    for letter in letters:
        waits = age((now - letter.created_at).total_seconds())
        yield Cell(f"{short_id(letter.job_id)}{waits:>6}  ", "dim"), *_step_of(letter, width)
    if not letters:
        yield (Cell(NOTHING, "dim"),)


def _step_of(letter: DeadLetter, width: int) -> Line:
    step = fit(safe(last_step(letter.step or NOTHING)), max(0, width - STEP_AT))
    return (Cell(step, "" if letter.step else "dim"),)


def acts_on(fingerprint: str, acts: Sequence[ActRow]) -> Sequence[ActRow]:
    """Return the operations that were started for the letters of an error."""
    return [act for act in acts if _is_on(fingerprint, act["which"])]


def _is_on(fingerprint: str, which: str) -> bool:
    try:
        words = shlex.split(which)
    except ValueError:  # not written by this command
        return False
    return any(
        word == f"{FINGERPRINT}={fingerprint}"
        or (word == FINGERPRINT and words[at + 1 : at + 2] == [fingerprint])
        for at, word in enumerate(words)
    )


def _acts(acts: Sequence[ActRow], now: datetime, width: int) -> Iterator[Line]:
    """Yield running operations first, as they were read."""
    if not acts:
        yield (Cell(NOTHING, "dim"),)
    for act in acts[:ACTS_MAX]:
        mark = mark_of(act)
        told = f"act {act['id']}: {progress(act)}"
        yield from labelled(mark.text, told, width, "dim" if is_over(act) else mark.style)
        why = why_cell(act, now)
        yield from labelled(" ", why.text, width, why.style)
    if len(acts) > ACTS_MAX:
        yield (Cell(f"{len(acts) - ACTS_MAX} more", "dim"),)
