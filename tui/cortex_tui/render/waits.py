"""What waits for a person, worded for the top bar and the first screen."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from cortex.store.screen_head import COUNT_MAX, Head
from cortex.view.cells import Cell
from cortex_tui.render.words import countdown

NOTHING_WAITS: Final = "✓ nothing waits"
_KINDS: Final = {
    "effects": ("?", "effect", "effects"),
    "budgets": ("$", "budget", "budgets"),
    "persons": ("!", "person", "persons"),
}
"""By the field of a head: the sign, the singular and the plural."""


def count(number: int) -> str:
    """Format a number of a head, which is capped."""
    return f"{number:,}" if number < COUNT_MAX else f"{COUNT_MAX:,}+"


def wait_cells(head: Head, now: datetime) -> Iterator[Cell]:
    """Yield one cell per kind of wait; dead letters have their own cell."""
    if head.approvals:
        word = "approval" if head.approvals == 1 else "approvals"
        verb = "expires" if head.approvals == 1 else "first expires"
        expiry = head.first_expiry
        left = "" if expiry is None else f" · {verb} in {_left(expiry, now)}"
        yield Cell(f"◆ {count(head.approvals)} {word}{left}", "appr")
    for name, (sign, one, more) in _KINDS.items():
        if number := getattr(head, name):
            yield Cell(f"{sign} {count(number)} {one if number == 1 else more}", "appr")


def waits_briefly(head: Head, now: datetime) -> Iterator[Cell]:
    """Yield the same in one cell of signs and numbers, if anything waits."""
    numbers = {"◆": head.approvals}
    numbers |= {sign: getattr(head, name) for name, (sign, *_) in _KINDS.items()}
    texts = [f"{sign} {count(number)}" for sign, number in numbers.items() if number]
    if head.approvals and head.first_expiry is not None:
        texts.append(f"in {_left(head.first_expiry, now)}")
    if texts:
        yield Cell(" ".join(texts), "appr")


def _left(instant: datetime, now: datetime) -> str:
    return countdown((instant - now).total_seconds())
