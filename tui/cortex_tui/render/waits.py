"""What waits for a person, in the words of the top bar and of the first screen."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from cortex.store.operator import COUNT_MAX, Head
from cortex.view.cells import Cell
from cortex_tui.render.words import countdown

NOTHING_WAITS: Final = "✓ nothing waits"
_KINDS: Final = {
    "effects": ("?", "effect", "effects"),
    "budgets": ("$", "budget", "budgets"),
    "persons": ("!", "person", "persons"),
}
"""By the field of a head: the sign, one and more of them."""


def count(number: int) -> str:
    """Return a number of a head; those end at a cap."""
    return f"{number:,}" if number < COUNT_MAX else f"{COUNT_MAX:,}+"


def wait_cells(head: Head, now: datetime) -> Iterator[Cell]:
    """Yield what waits, one cell for each kind; dead letters have a cell of their own."""
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
    told = [f"{sign} {count(number)}" for sign, number in numbers.items() if number]
    if head.approvals and head.first_expiry is not None:
        told.append(f"in {_left(head.first_expiry, now)}")
    if told:
        yield Cell(" ".join(told), "appr")


def _left(instant: datetime, now: datetime) -> str:
    return countdown((instant - now).total_seconds())
