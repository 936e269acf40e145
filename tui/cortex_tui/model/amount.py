"""A question that needs a number before the `y`; esc declines."""

from collections.abc import Callable
from decimal import Decimal
from typing import Final

from cortex_tui.model.question import CANCEL, CLEAR, YES, KeyAnswer

DIGITS_MAX: Final = 12


class AmountQuestion:
    """Accepts digits and one point, then `y` once the number is valid."""

    def __init__(self, text: str, *, why_not: Callable[[Decimal], str]) -> None:
        """`why_not` returns what is wrong with a number, or ""."""
        self.text = text
        self._why_not = why_not
        self._typed = ""

    @property
    def amount(self) -> Decimal | None:
        """The number typed; None if there is none yet."""
        return Decimal(self._typed) if self._typed.strip(".") else None

    def press(self, key: str, character: str | None) -> KeyAnswer:
        if key == CANCEL:
            return KeyAnswer.NO
        if key == "backspace":
            self._typed = self._typed[:-1]
        elif key == CLEAR:
            self._typed = ""
        elif character == YES:
            is_allowed = self.amount is not None and not self._why_not(self.amount)
            return KeyAnswer.YES if is_allowed else KeyAnswer.NONE
        elif character and character in "0123456789." and len(self._typed) < DIGITS_MAX:
            is_point_again = character == "." and "." in self._typed
            self._typed += "" if is_point_again else character
        return KeyAnswer.NONE

    def may_agree(self, character: str | None) -> bool:
        return character == YES

    def how(self) -> str:
        if self.amount is None:
            return f"  type the new limit: {self._typed}_   esc no "
        wrong = self._why_not(self.amount)
        return f"  {self._typed}_  {wrong or 'y yes'}   esc no "
