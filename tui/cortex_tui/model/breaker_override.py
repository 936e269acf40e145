"""Asks how long to hold a breaker open, then why, then `y`; a timed override ends by itself."""

from typing import Final

from cortex.domain.breaker import HOLD_MAX_S
from cortex.domain.errors import UsageError
from cortex.domain.phrases import parse_span
from cortex_tui.model.question import CANCEL, KeyAnswer
from cortex_tui.model.reason import ReasonQuestion

CHOICES: Final = ("30m", "2h", "8h", "")
"""`tab` selects the next; "": until somebody closes it."""
CHARS_MAX: Final = 8


class OverrideQuestion:
    """One line that names the breaker; Enter accepts the time, esc declines at any point."""

    def __init__(self, text: str) -> None:
        """`text`: safe."""
        self._text = text
        self._reason = ReasonQuestion(text, is_required=True)
        self._is_typed = False
        """Enter was pressed: the reason comes next."""
        self._is_own = False
        """The text was typed, and is not a choice that the first character replaces."""
        self.typed = CHOICES[0]

    @property
    def text(self) -> str:
        if not self._is_typed:
            return self._text
        return f"{self._text} {f'for {self.typed}' if self.typed else 'until it is closed'}"

    @property
    def reason(self) -> str:
        return self._reason.reason

    @property
    def for_s(self) -> float | None:
        """The duration; None: until somebody closes it. Raises `UsageError` for an invalid one."""
        seconds = parse_span(self.typed) if self.typed else None
        if seconds is not None and not 0 < seconds <= HOLD_MAX_S:
            raise UsageError("from 1s to 30d")
        return seconds

    def press(self, key: str, character: str | None) -> KeyAnswer:
        if key == CANCEL:
            return KeyAnswer.NO
        if self._is_typed:
            return self._reason.press(key, character)
        if key == "enter":
            self._is_typed = not self._wrong
        elif key == "tab":
            known = CHOICES.index(self.typed) if self.typed in CHOICES else -1
            self.typed, self._is_own = CHOICES[(known + 1) % len(CHOICES)], False
        elif key == "backspace":
            self.typed, self._is_own = self.typed[:-1], True
        elif character is not None and character in "0123456789smhdw":
            before = self.typed if self._is_own else ""
            self.typed, self._is_own = (before + character)[:CHARS_MAX], True
        return KeyAnswer.NONE

    def may_agree(self, character: str | None) -> bool:
        return self._is_typed and self._reason.may_agree(character)

    def how(self) -> str:
        if self._is_typed:
            return self._reason.how()
        if not self.typed:
            return "  for: ▏ until it is closed   enter   tab others   esc no "
        return f"  for: {self.typed}▏ {self._wrong or 'enter'}   tab others   esc no "

    @property
    def _wrong(self) -> str:
        try:
            _ = self.for_s
        except UsageError:
            return "such as 90s, 15m, 2h, 3d"
        return ""


class ForceQuestion:
    """Asks whether to close a breaker that is not closed, and why; `tab` switches to holding it."""

    def __init__(self, text: str, *, hold_text: str) -> None:
        """Both texts are safe."""
        self._close = ReasonQuestion(text, is_required=True)
        self._hold = OverrideQuestion(hold_text)
        self._asks: ReasonQuestion | OverrideQuestion = self._close

    @property
    def hold(self) -> OverrideQuestion | None:
        """The active question about an override; None: the question is whether to close it."""
        return self._hold if self._asks is self._hold else None

    @property
    def text(self) -> str:
        return self._asks.text

    @property
    def reason(self) -> str:
        return self._asks.reason

    def press(self, key: str, character: str | None) -> KeyAnswer:
        if key == "tab" and self._asks is self._close and not self._close.typed:
            self._asks = self._hold
            return KeyAnswer.NONE
        return self._asks.press(key, character)

    def may_agree(self, character: str | None) -> bool:
        return self._asks.may_agree(character)

    def how(self) -> str:
        if self._asks is self._close and not self._close.typed:
            return "  why: ▏ enter   tab holds it open   esc no "
        return self._asks.how()
