"""The one line of text above the footer: what it says, and how long it stays."""

from typing import Final

from cortex.view.cells import Cell

BRIEF_S: Final = 10.0
"""How long a text that is not an outcome stays without a key."""
SEEN_S: Final = 1.0
"""How long a text stays before a key removes it: it may have appeared just before the key."""
OUTCOME_SEEN_S: Final = 5.0
"""The same for an outcome; without a key an outcome stays."""
UNDER_WAY: Final = "…"
"""Ends the text of something that is not over."""


class Notice:
    """The text, since when it is shown, and whether it is an outcome."""

    def __init__(self) -> None:
        self.cell = Cell("")
        self.is_outcome = False
        self._since = float("-inf")

    @property
    def is_under_way(self) -> bool:
        return self.cell.style == "accent" or self.cell.text.endswith(UNDER_WAY)

    def show(self, cell: Cell, now: float, *, is_outcome: bool) -> None:
        """Show a text; one in the style of success or failure always is an outcome."""
        self.cell, self._since = cell, now
        self.is_outcome = is_outcome or cell.style in ("done", "fail")

    def clear(self) -> None:
        """Show nothing, without a change of what it was."""
        self.cell = Cell("")

    def may_be_replaced(self, now: float) -> bool:
        """Whether a text that may be skipped may take its place."""
        is_unseen = now - self._since < OUTCOME_SEEN_S
        return not (self.is_outcome and self.cell.text and is_unseen)

    def is_over(self, now: float, *, after_s: float) -> bool:
        """Whether it was shown for `after_s`; progress stays until it is over."""
        is_old = now - self._since >= after_s
        return bool(self.cell.text) and is_old and not self.is_under_way

    def is_over_by_key(self, now: float) -> bool:
        return self.is_over(now, after_s=OUTCOME_SEEN_S if self.is_outcome else SEEN_S)
