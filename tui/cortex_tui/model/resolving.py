"""Questions of the effects screen: the outcome of an effect, and the new limit of a quota."""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final

from cortex.domain.effect import Resolution
from cortex_tui.model.amount import DIGITS_MAX
from cortex_tui.model.question import CANCEL, CLEAR, KeyAnswer
from cortex_tui.model.reason import ReasonQuestion

KEYS: Final = {"1": Resolution.APPLIED, "2": Resolution.NOT_APPLIED, "3": Resolution.GIVE_UP}
SAID: Final = {
    Resolution.APPLIED: "was applied",
    Resolution.NOT_APPLIED: "was not applied",
    Resolution.GIVE_UP: "is given up",
}


class ResolveQuestion:
    """Asks for the outcome of an effect by digit, a reason, then `y`; esc declines at any time."""

    def __init__(self, name: str, prospects: Mapping[Resolution, str]) -> None:
        """`name`, and the consequence of each answer, are safe."""
        self._name = name
        self._prospects = prospects
        self._why: ReasonQuestion | None = None
        self.said: Resolution | None = None
        """The chosen outcome."""

    @property
    def text(self) -> str:
        return f"{self._name}: what became of it" if self._why is None else self._why.text

    @property
    def reason(self) -> str:
        return "" if self._why is None else self._why.reason

    def press(self, key: str, character: str | None) -> KeyAnswer:
        if self._why is not None:
            return self._why.press(key, character)
        if key == CANCEL:
            return KeyAnswer.NO
        if character in KEYS:
            self.said = KEYS[character]
            text = f"{self._name} {SAID[self.said]}: {self._prospects[self.said]}"
            self._why = ReasonQuestion(text, is_required=True)
        return KeyAnswer.NONE

    def may_agree(self, character: str | None) -> bool:
        return self._why is not None and self._why.may_agree(character)

    def how(self) -> str:
        if self._why is not None:
            return self._why.how()
        return "  1 applied  2 not applied  3 give up   esc no "


class LimitQuestion:
    """A number and Enter, a reason, then `y`; esc declines at any time."""

    def __init__(self, text: str, *, why_not: Callable[[str], str]) -> None:
        """`text`: safe. `why_not` returns what is wrong with the text typed, or ""."""
        self._text = text
        self._why_not = why_not
        self._why: ReasonQuestion | None = None
        self._typed = ""

    @property
    def text(self) -> str:
        return self._text if self._why is None else self._why.text

    @property
    def reason(self) -> str:
        return "" if self._why is None else self._why.reason

    @property
    def limit(self) -> Decimal:
        return Decimal(self._typed)

    def press(self, key: str, character: str | None) -> KeyAnswer:
        if self._why is not None:
            return self._why.press(key, character)
        if key == CANCEL:
            return KeyAnswer.NO
        if key == "enter" and not self._wrong:
            self._why = ReasonQuestion(f"{self._text} to {self._typed}", is_required=True)
        elif key == "backspace":
            self._typed = self._typed[:-1]
        elif key == CLEAR:
            self._typed = ""
        elif character and character in "0123456789." and len(self._typed) < DIGITS_MAX:
            self._typed += character
        return KeyAnswer.NONE

    def may_agree(self, character: str | None) -> bool:
        return self._why is not None and self._why.may_agree(character)

    def how(self) -> str:
        if self._why is not None:
            return self._why.how()
        if not self._typed:
            return "  type the new limit: ▏   esc no "
        return f"  {self._typed}▏ {self._wrong or 'enter'}   esc no "

    @property
    def _wrong(self) -> str:
        return self._why_not(self._typed) if self._typed else "type the new limit"
